"""How much memory a training takes, estimated before it starts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hypercaps.compute.devices import available_memory
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.errors import ModelError
from hypercaps.models.registry import Method, Recipe, SelfTraining, SolvedRecipe
from hypercaps.training.label_propagation import MOST_PIXELS, bytes_to_propagate
from hypercaps.training.loop import Loss, SemiSupervisedLoss


def bytes_to_train(
    network: nn.Module,
    loss_of: Loss,
    patch_shape: tuple[int, int, int],
    batch_size: int,
    *,
    semi_supervised: SemiSupervisedLoss | None = None,
    optimizer_copies: int = 2,
) -> int:
    """Memory that a training step takes at its height, from a network without memory (a blueprint).

    Weights, their gradients and the optimizer's copies of them, the best weights so far, and what the forward pass
    keeps for the backward one, which is counted while it runs on shapes alone.
    """
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    patches = torch.empty(batch_size, *patch_shape, device="meta")
    targets = torch.zeros(batch_size, dtype=torch.int64, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        if semi_supervised is None:
            loss_of(network(patches), targets)
        else:
            semi_supervised(network, patches, targets, patches)
    weights = 4 * sum(weight.numel() for weight in network.parameters())
    return weights * (3 + optimizer_copies) + kept + 4 * patches.numel()


MOST_UNLABELLED = 20_000  # pixels of the scene that teach without a label, for methods that can use them


def check_memory(
    method: Method,
    recipe: Recipe | SolvedRecipe,
    scene: Scene,
    classes: int,
    patch: int,
    structure: dict[str, Any],
    split: Split,
    training: dict[str, Any],
) -> None:
    """Refuse what would not fit into memory before it starts, not after an hour."""
    blueprint = method.blueprint(scene.bands, classes, patch=patch, structure=structure)
    examples = split.train.size + split.val.size
    if method.semi_supervised is not None:
        examples += MOST_UNLABELLED
    other = "take another method"
    around = 0  # pixels that get a label from the flow
    if isinstance(recipe, SelfTraining):
        around = min(scene.rows * scene.cols, MOST_PIXELS)
        other = "take the recipe paper"
    examples += around
    spectra = 4 * scene.bands * min(scene.rows * scene.cols, examples * patch * patch)
    needed = spectra + 4 * examples * patch * patch  # what PatchStore keeps
    if around:
        needed += spectra + bytes_to_propagate(around, classes)  # the spectra with noise
    if training:
        shape, batch = (patch, patch, scene.bands), min(training["batch_size"], split.train.size)
        needed += bytes_to_train(blueprint, method.loss, shape, batch, semi_supervised=method.semi_supervised)
    available = available_memory()
    if needed > available:
        raise ModelError(
            f"{method.name} needs about {needed / 1e9:.1f} GB to train on scene {scene.name!r} and "
            f"{available / 1e9:.1f} GB of memory are free: give a smaller batch size, or {other}"
        )
