"""The training loop of every network: a step, an epoch, and the choice of the epoch to keep."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from hypercaps.compute import native
from hypercaps.compute.devices import Device
from hypercaps.errors import Interrupted, TrainingError
from hypercaps.models.history import EpochRecord, History
from hypercaps.models.protocols import IndexedForward, Solvable, kernel_threads
from hypercaps.models.recipes import Stage
from hypercaps.training.patches import PatchStore, symmetries

Loss = Callable[[Tensor, Tensor], Tensor]  # scores (B, n), class indices (B,) -> scalar
# (network, patches, class indices, unlabelled patches) -> scalar
SemiSupervisedLoss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]

INFERENCE_BATCH = 64  # at most: the intermediate results of a batch should stay near the cache


class Progress(NamedTuple):
    """How far a training is; reported after every batch and after every epoch's validation."""

    epoch: int  # from 1, counted on over all stages
    epochs: int  # of all stages
    done: float  # share of the whole training, 0 to 1
    loss: float  # mean of this epoch so far
    last: EpochRecord | None  # the last complete epoch


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Examples:
    """Patches to train and validate on; a patch is named by its number in ``store``."""

    store: PatchStore
    targets: Tensor  # (N,) int64: class index of each labelled patch
    train: Tensor  # (T,) patches to learn from
    val: Tensor  # (V,) patches to choose the epoch by
    unlabelled: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # (U,) without a label
    extra: Callable[[int], Tensor] | None = None  # epoch, from 1 -> further patches to learn from, which have a target
    units: Tensor | None = None  # (N,) int64: number of the spatial unit, such as a polygon, of each labelled patch

    def to(self, device: str) -> Examples:
        """The same on another device."""
        moved = {name: getattr(self, name).to(device) for name in ("store", "targets", "train", "val", "unlabelled")}
        return replace(self, **moved)


@dataclass(frozen=True)
class LoopSettings:
    """How to compute a training; what all stages of a recipe share."""

    loss: Loss
    batch_size: int
    # Takes the place of ``loss`` where given: every step also takes as many unlabelled patches as labelled ones.
    semi_supervised: SemiSupervisedLoss | None = None
    device: Device = field(default_factory=Device)
    on_progress: OnProgress | None = None


class _Best(NamedTuple):
    """The best epoch so far; one object, so that Ctrl-C can never separate its parts."""

    epoch: int = 0  # of this stage
    correct: int = -1  # validation pixels
    weights: dict[str, Tensor] = {}  # noqa: RUF012 - never changed


class TrainingLoop:
    """One stage of a training, in place, on the device that the network is on.

    ``run`` leaves the network with the weights of its (earliest) best validation epoch, or with the last ones if the
    stage's augmentation says ``keep_last``. Without validation pixels the last epoch counts as the best. Ctrl-C after
    the first epoch ends the training and keeps the best epoch so far.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        examples: Examples,
        settings: LoopSettings,
        stage: Stage,
    ) -> None:
        device = settings.device.name
        self.network, self.optimizer, self.settings, self.stage = network, optimizer, settings, stage
        self.examples = examples.to(device)
        self._store = self.examples.store  # with the noise of this epoch
        self._order = Generator().manual_seed(stage.seed)
        self._noise = np.random.default_rng(stage.seed)
        self._turns = symmetries(self._store.patch).to(device) if stage.augmentation.symmetries else None  # (8, D*D)
        self._highest_rates = [group["lr"] for group in optimizer.param_groups]
        self._records: list[EpochRecord] = []
        self._best = _Best()

    def run(self) -> History:
        started = time.perf_counter()
        interrupted = False
        try:
            with torch.random.fork_rng(devices=[]), kernel_threads(self.network):
                torch.manual_seed(self.stage.seed)  # dropout draws from torch's global generator
                for epoch in range(1, self.stage.epochs + 1):
                    self._epoch(epoch)
        except KeyboardInterrupt:
            if not self._best.epoch:
                raise Interrupted("stopped before the first epoch ended: there is no model to keep") from None
            interrupted = True
        kept = self._best.epoch
        if self.stage.augmentation.keep_last and not interrupted:
            kept = self.stage.epochs
        else:
            self.network.load_state_dict(self._best.weights)
        seconds = time.perf_counter() - started
        return History(tuple(self._records), kept + self.stage.epochs_before, seconds, interrupted)

    def _epoch(self, epoch: int) -> None:
        """Train on all patches once, validate, and remember the weights if they are the best so far."""
        started = time.perf_counter()
        loss = self._train_epoch(epoch)
        if not math.isfinite(loss):
            raise TrainingError(
                f"training diverged in epoch {epoch + self.stage.epochs_before}: the loss is {loss}; choose another "
                "recipe or seed, or check the scene for extreme values"
            )
        n_val = len(self.examples.val)
        with self.settings.device.arithmetic():
            correct = count_correct(self.network, self.examples, self.settings.batch_size)
        is_better = correct > self._best.correct or n_val == 0
        weights = {key: value.clone() for key, value in self.network.state_dict().items()} if is_better else {}
        val_oa = 100.0 * correct / n_val if n_val else None
        seconds = time.perf_counter() - started
        number = epoch + self.stage.epochs_before
        self._records.append(EpochRecord(number, loss, val_oa, seconds, self.stage.number))
        if is_better:
            self._best = _Best(epoch, correct, weights)
        self._report(epoch, 1.0, loss)

    def _train_epoch(self, epoch: int) -> float:
        """One pass over the patches to learn from, in random order; the mean loss."""
        patches = self.examples.train
        if self.examples.extra is not None:
            patches = torch.cat([patches, self.examples.extra(epoch).to(patches.device)])
        if self.stage.augmentation.noise:
            self._store = self.examples.store.with_noise(patches, self.stage.augmentation.noise, self._noise)
        self.network.train()
        batches = torch.split(patches[torch.randperm(len(patches), generator=self._order)], self.settings.batch_size)
        total, seen = 0.0, 0
        for number, batch in enumerate(batches):
            if self.stage.augmentation.one_cycle:
                step, steps = (epoch - 1) * len(batches) + number, self.stage.epochs * len(batches) + 1
                for group, highest in zip(self.optimizer.param_groups, self._highest_rates, strict=True):
                    group["lr"] = one_cycle(step, steps) * highest
            total += self._step(batch) * len(batch)
            seen += len(batch)
            self._report(epoch, seen / len(patches), total / seen)
        return total / seen

    def _step(self, batch: Tensor) -> float:
        """One step of the optimizer on patches ``batch`` (B,); their mean loss."""
        with self.settings.device.arithmetic():
            loss = self._loss(batch)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        value = loss.item()
        self.optimizer.step()
        return value

    def _loss(self, batch: Tensor) -> Tensor:
        targets, count, device = self.examples.targets[batch], len(batch), batch.device
        turned = None  # (B, D*D)
        if self._turns is not None:
            turned = self._turns[torch.randint(len(self._turns), (count,), generator=self._order).to(device)]
        if self.settings.semi_supervised is None:
            return self.settings.loss(patch_scores(self.network, self._store, batch, turned), targets)
        patches = self._store.gather(batch, turned)
        unlabelled = self.examples.unlabelled  # may be empty: then only labelled pixels are reconstructed
        if len(unlabelled):
            unlabelled = unlabelled[torch.randint(len(unlabelled), (count,), generator=self._order)]
        return self.settings.semi_supervised(self.network, patches, targets, self._store.gather(unlabelled))

    def _report(self, epoch: int, share: float, loss: float) -> None:
        """Report progress: ``share`` of this epoch is done, with mean ``loss``."""
        if self.settings.on_progress is None:
            return
        stage = self.stage
        done = stage.done_before + stage.share * ((epoch - 1 + share) / stage.epochs)
        epochs = stage.epochs_before + stage.epochs + stage.epochs_after
        last = self._records[-1] if self._records else None
        self.settings.on_progress(Progress(epoch + stage.epochs_before, epochs, done, loss, last))


def one_cycle(step: int, steps: int) -> float:
    """Share of the highest learning rate at ``step`` (from 0) of ``steps``.

    Half a cosine up from 1/25 over a quarter of the steps, then half a cosine down to 1/250,000. This is the curve of
    torch's OneCycleLR, which rounds otherwise and divides by zero for four steps.
    """
    up = 0.25 * steps - 1
    if step < up:
        start, end, share = 1 / 25, 1.0, step / up
    else:
        start, end, share = 1.0, 1 / 250_000, (step - up) / (steps - 1 - up)
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


def patch_scores(network: nn.Module, store: PatchStore, which: Tensor, order: Tensor | None = None) -> Tensor:
    """Scores (B, n) of patches ``which`` (B,), turned by ``order`` (B, D*D); copied only where the network needs it."""
    if isinstance(network, IndexedForward):
        return network.forward_indexed(store.spectra, store.places(which, order))
    scores: Tensor = network(store.gather(which, order))
    return scores


def count_correct(network: nn.Module, examples: Examples, batch_size: int) -> int:
    """Number of validation patches that the network classifies correctly."""
    network.eval()
    if len(examples.val) == 0:  # torch.split would give one empty batch
        return 0
    batches = torch.split(examples.val, _inference_batch(network, batch_size))
    with torch.inference_mode():
        predicted = torch.cat([patch_scores(network, examples.store, which).argmax(dim=1) for which in batches])
        return int((predicted == examples.targets[examples.val]).sum())


def _inference_batch(network: nn.Module, batch_size: int) -> int:
    # The compiled kernels divide a batch themselves; for other networks a batch should stay near the cache.
    is_compiled = isinstance(network, IndexedForward) and native.available()
    return 8192 if is_compiled else min(INFERENCE_BATCH, batch_size)


def all_scores(network: nn.Module, store: PatchStore, batch_size: int) -> Tensor:
    """Scores (N, n) of every patch of a store, without augmentation."""
    network.eval()
    batches = torch.split(torch.arange(len(store), device=store.spectra.device), _inference_batch(network, batch_size))
    with torch.inference_mode():
        return torch.cat([patch_scores(network, store, which).float().cpu() for which in batches])


def solve(network: nn.Module, loss_of: Loss, examples: Examples) -> History:
    """Fit a network without epochs: a history of one epoch, with its loss."""
    assert isinstance(network, Solvable)
    started = time.perf_counter()
    train, val, units = examples.train, examples.val, examples.units
    features, val_features = (_all_features(network, examples.store, which) for which in (train, val))
    of_train = None if units is None else units[train]
    network.solve(features, examples.targets[train], val_features, examples.targets[val], of_train)
    seconds = time.perf_counter() - started
    with torch.inference_mode():
        losses = [
            len(some) * float(loss_of(patch_scores(network, examples.store, some), examples.targets[some]))
            for some in torch.split(examples.train, INFERENCE_BATCH)
        ]
    n_val = len(examples.val)
    val_oa = 100.0 * count_correct(network, examples, INFERENCE_BATCH) / n_val if n_val else None
    loss = sum(losses) / len(examples.train)
    return History((EpochRecord(1, loss, val_oa, seconds),), 1, seconds, interrupted=False)


def _all_features(network: Solvable, store: PatchStore, which: Tensor) -> Tensor:
    """Features (B, F) of patches ``which``, in small batches: the patches of all training pixels may be far larger."""
    return torch.cat([network.features(store.gather(some)) for some in torch.split(which, INFERENCE_BATCH)])
