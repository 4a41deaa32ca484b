"""The recipe ``best``: a first network learns from the labels, a second one from the labels and what follows from them.

Between the two, the first one's scores and the labels flow along the scene's edges (``flow``), and the pixels of whose
class the flow is sure teach the second. That one alone is kept, so that a map needs nothing but its patches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hypercaps.compute import native
from hypercaps.compute.devices import Device
from hypercaps.errors import Interrupted
from hypercaps.models.registry import SelfTraining, Stages
from hypercaps.training import label_propagation
from hypercaps.training.loop import Augmentation, Examples, History, Loss, Progress, scores_of_all, train
from hypercaps.training.preprocessing import PCAWhitening

_SECOND_SEED = 1000  # is added to the seed of the first network


@dataclass(frozen=True)
class Ground:
    """Where the patches of the examples lie."""

    pixels: npt.NDArray[np.int64]  # (N,) flat index of each patch of the store
    cols: int  # of the scene
    whitening: PCAWhitening  # that the store's spectra went through


def self_train(
    build: Callable[[int], nn.Module],
    loss_of: Loss,
    examples: Examples,
    ground: Ground,
    recipe: SelfTraining,
    stages: Stages,
    *,
    batch_size: int,
    seed: int,
    device: Device,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[nn.Module, History]:
    """The second network and the history of both, whose epochs are counted on.

    ``build`` makes a network from a seed; ``examples.unlabelled`` are the pixels that may get a label from the flow.
    Ctrl-C keeps what there is: of the first network the best epoch; later the better of the two by validation, or
    without validation pixels the first, whose training ended.
    """
    started = time.perf_counter()
    augmentation = Augmentation(symmetries=True, noise=recipe.noise, one_cycle=True, keep_last=True)
    learned = len(examples.train)
    work = stages.first * learned, stages.second * (learned + stages.extra)

    def stage(number: int, now: Examples, extra: Callable[[int], Tensor] | None) -> tuple[nn.Module, History]:
        own_seed = seed + (number - 1) * _SECOND_SEED
        network = build(own_seed).to(device.name)
        history = train(
            network,
            loss_of,
            now,
            recipe.make_optimizer(network),
            epochs=(stages.first, stages.second)[number - 1],
            batch_size=batch_size,
            seed=own_seed,
            device=device,
            on_progress=None if on_progress is None else _counted_on(on_progress, number, stages, work),
            augmentation=augmentation,
            extra=extra,
        )
        return network, history

    first, before = stage(1, examples, None)
    if before.interrupted or not stages.second:
        return first, before
    try:
        taught, trust = _taught(first, examples, ground, batch_size, device)

        def extra(epoch: int) -> Tensor:
            drawn = label_propagation.draw(trust, stages.extra, np.random.default_rng((seed, epoch)))
            return examples.unlabelled[torch.from_numpy(drawn)]

        second, after = stage(2, taught, extra)
    except (KeyboardInterrupt, Interrupted):
        return first, replace(before, interrupted=True, seconds=time.perf_counter() - started)
    records = tuple(record._replace(epoch=record.epoch + stages.first, stage=2) for record in after.records)
    kept, network = after.best_epoch + stages.first, second
    if after.interrupted:
        reached, known = after.records[after.best_epoch - 1].val_oa, before.records[-1].val_oa
        if reached is None or known is None or reached < known:
            kept, network = before.best_epoch, first
    seconds = time.perf_counter() - started
    return network, History(before.records + records, kept, seconds, after.interrupted)


def _taught(
    network: nn.Module, examples: Examples, ground: Ground, batch_size: int, device: Device
) -> tuple[Examples, npt.NDArray[np.float64]]:
    """The examples with a class for every pixel, and how far those of ``unlabelled`` are to be trusted."""
    with device.arithmetic(), native.cores_for(network):
        scores = scores_of_all(network, examples.store.to(device.name), batch_size).numpy()
    store = examples.store
    guide = label_propagation.guide(ground.whitening, store.spectra.index_select(0, store.centres()).numpy())
    edges = label_propagation.laplacian(ground.pixels, ground.cols, guide)
    seeds = examples.train.numpy()
    labels = label_propagation.pseudo_labels(
        label_propagation.flow(scores, edges, seeds, examples.targets[examples.train].numpy())
    )
    # Only unlabelled pixels get the flow's class: a validation pixel that taught could not say how good the network is.
    targets = torch.cat([examples.targets, torch.from_numpy(labels.classes[len(examples.targets) :])])
    return replace(examples, targets=targets), labels.trust[examples.unlabelled.numpy()]


def _counted_on(
    on_progress: Callable[[Progress], None], number: int, stages: Stages, work: tuple[int, int]
) -> Callable[[Progress], None]:
    """Progress of a stage as that of both: epochs counted on, and what is done by how much work there is."""
    done_before, epochs_before = (0, 0) if number == 1 else (work[0], stages.first)

    def report(now: Progress) -> None:
        last = now.last and now.last._replace(epoch=now.last.epoch + epochs_before, stage=number)
        done = (done_before + now.done * work[number - 1]) / sum(work)
        on_progress(Progress(now.epoch + epochs_before, stages.first + stages.second, done, now.loss, last))

    return report
