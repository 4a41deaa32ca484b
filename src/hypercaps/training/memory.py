"""How much memory a training takes, estimated before it starts."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hypercaps.compute import native
from hypercaps.compute.memory import available_memory
from hypercaps.errors import ModelError
from hypercaps.models.protocols import StepMemory
from hypercaps.training.job import MAX_UNLABELLED, TrainingJob
from hypercaps.training.label_propagation import MAX_PIXELS, bytes_to_propagate
from hypercaps.training.loop import Loss, SemiSupervisedLoss

_OPTIMIZER_COPIES = 2  # Adam keeps two numbers for every weight


def bytes_to_train(
    network: nn.Module,
    loss_of: Loss,
    patch_shape: tuple[int, int, int],
    batch_size: int,
    *,
    semi_supervised: SemiSupervisedLoss | None = None,
) -> int:
    """Peak memory of a training step, from a network without memory (a blueprint).

    Counts the weights, their gradients, the optimizer's copies of them, the best weights so far, and what the forward
    pass saves for the backward pass. Networks of the compiled kernels know that themselves; for others it is counted
    while it runs on shapes alone, for which torch loads its compiler: that takes seconds.
    """
    saved = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal saved
        saved += tensor.numel() * tensor.element_size()
        return tensor

    weights = 4 * sum(weight.numel() for weight in network.parameters()) * (3 + _OPTIMIZER_COPIES)
    inputs = 4 * batch_size * math.prod(patch_shape)
    if isinstance(network, StepMemory) and native.available():
        return weights + 4 * network.step_numbers(batch_size) + inputs
    patches = torch.empty(batch_size, *patch_shape, device="meta")
    targets = torch.zeros(batch_size, dtype=torch.int64, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        if semi_supervised is None:
            loss_of(network(patches), targets)
        else:
            semi_supervised(network, patches, targets, patches)
    return weights + saved + inputs


def check_memory(job: TrainingJob) -> None:
    """Refuse a training that does not fit into the free memory."""
    needed, available = bytes_needed(job), available_memory()
    if needed > available:
        raise ModelError(
            f"{job.method.name} needs about {needed / 1e9:.1f} GB to train on scene {job.scene.name!r} and "
            f"{available / 1e9:.1f} GB of memory are free: give a smaller batch size, or {job.recipe.alternative}"
        )


def bytes_needed(job: TrainingJob) -> int:
    """Peak memory of a training beyond the scene itself."""
    method, scene, split = job.method, job.scene, job.split
    scene_pixels, area = scene.rows * scene.cols, job.patch**2
    pseudo_labelled = min(scene_pixels, MAX_PIXELS) if job.recipe.uses_pseudo_labels else 0
    patches = split.train.size + split.val.size + pseudo_labelled
    if method.semi_supervised is not None:
        patches += MAX_UNLABELLED
    spectra = 4 * scene.bands * min(scene_pixels, patches * area)
    needed = spectra + 4 * patches * area  # kept by PatchStore
    if pseudo_labelled:
        needed += spectra + bytes_to_propagate(pseudo_labelled, len(job.labels.legend))  # spectra with noise
    # Refuses sizes that cannot be built, also where no step is counted
    blueprint = method.blueprint(*job.sizes, patch=job.patch, structure=job.structure)
    if job.record.batch_size is not None:
        shape, batch = (job.patch, job.patch, scene.bands), min(job.record.batch_size, split.train.size)
        needed += bytes_to_train(blueprint, method.loss, shape, batch, semi_supervised=method.semi_supervised)
    return needed
