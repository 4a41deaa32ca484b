"""One explicit training loop for every network, and what it will need of memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from hypercaps.compute import native
from hypercaps.compute.devices import Device
from hypercaps.errors import Interrupted, TrainingError
from hypercaps.training.patches import PatchStore, symmetries

Loss = Callable[[Tensor, Tensor], Tensor]  # scores (B, n), class positions (B,) -> scalar
# (network, patches, class positions, unlabelled patches) -> scalar
SemiSupervisedLoss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]

# What else is learned from in an epoch, as numbers of patches whose targets are known
Extra = Callable[[int], Tensor]

INFERENCE_BATCH = 64  # at most: what a pixel needs on the way stays near the cache


class EpochRecord(NamedTuple):
    """One line of a run's history."""

    epoch: int  # from 1
    loss: float  # mean over the training pixels, while the weights moved
    val_oa: float | None  # percent; None without validation pixels
    seconds: float  # this epoch's, validation included
    stage: int = 1  # of recipes that train twice


class Progress(NamedTuple):
    """How far a training is; sent after every batch and after every epoch's validation."""

    epoch: int
    epochs: int
    done: float  # of all epochs, 0 to 1
    loss: float  # mean of this epoch so far
    last: EpochRecord | None  # the last finished epoch


@dataclass(frozen=True)
class History(Sequence[EpochRecord]):
    """What happened in a training: a sequence of its epochs, and which of them was kept."""

    records: tuple[EpochRecord, ...]
    best_epoch: int
    seconds: float
    interrupted: bool  # the user stopped it; the best epoch so far was kept

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]


def _nothing() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class Examples:
    """Labelled patches: ``store`` holds them all, ``targets`` their class positions."""

    store: PatchStore
    targets: Tensor  # (N,) int64
    train: Tensor  # numbers of the patches to learn from
    val: Tensor  # and of those to choose the epoch by
    unlabelled: Tensor = field(default_factory=_nothing)  # and of those that teach without a label

    def to(self, device: str) -> Examples:
        """The same on another device."""
        parts = (part.to(device) for part in (self.targets, self.train, self.val, self.unlabelled))
        return Examples(self.store.to(device), *parts)


@dataclass(frozen=True)
class Augmentation:
    """What is done otherwise than in the paper; as it stands, nothing, and nothing is drawn for it."""

    symmetries: bool = False  # every patch is turned or reflected at random
    noise: float = 0.0  # standard deviation of what is added to the preprocessed spectra, drawn anew every epoch
    one_cycle: bool = False  # the learning rate rises to the optimizer's and falls to nothing
    keep_last: bool = False  # the last weights are kept, not those of the best validation epoch


def one_cycle(step: int, steps: int) -> float:
    """The share of the highest learning rate at a step, from 0: up from 1/25 over a quarter of the steps, then down.

    Both ways are half a cosine; the end is at 1/250,000.
    """
    up = 0.25 * steps - 1
    if step < up:
        return _between(1 / 25, 1.0, step / up)
    return _between(1.0, 1 / 250_000, (step - up) / (steps - 1 - up))


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


def train(
    network: nn.Module,
    loss_of: Loss,
    examples: Examples,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    semi_supervised: SemiSupervisedLoss | None = None,
    device: Device | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    augmentation: Augmentation | None = None,
    extra: Extra | None = None,
) -> History:
    """Train in place, on the ``device`` that the network is on.

    The network ends with the weights of its (earliest) best validation epoch, or the last with
    ``augmentation.keep_last``.

    Without validation pixels the last epoch counts as the best. Ctrl-C after the first epoch ends the
    training and keeps the best so far. With ``semi_supervised``, every step also takes as many unlabelled patches as
    it has labelled ones, and that loss takes the place of ``loss_of``. ``extra`` gives, for each epoch
    from 1, patches to learn from beside ``examples.train``.
    """
    order = Generator().manual_seed(seed)
    augmentation = augmentation or Augmentation()
    noise = np.random.default_rng(seed)
    device = device or Device()
    examples = examples.to(device.name)
    store = examples.store  # of this epoch
    turns = symmetries(store.patch).to(device.name) if augmentation.symmetries else None
    highest = [group["lr"] for group in optimizer.param_groups]

    def step_loss(which: Tensor) -> Tensor:
        targets = examples.targets[which]
        with device.arithmetic():
            turned = None
            if turns is not None:
                turned = turns[torch.randint(len(turns), (len(which),), generator=order).to(device.name)]
            if semi_supervised is None:
                return loss_of(_scores(network, store, which, turned), targets)
            patches = store.gather(which) if turned is None else store.gather(which, turned)
            pool = examples.unlabelled  # may be empty: then the labelled pixels are rebuilt alone
            drawn = pool[torch.randint(len(pool), (len(which),), generator=order)] if len(pool) else pool
            return semi_supervised(network, patches, targets, store.gather(drawn))

    def backward(which: Tensor) -> float:
        """Gradients of a batch, and its mean loss."""
        loss = step_loss(which)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def count_right() -> int:
        return _count_right(network, examples, examples.val, batch_size)

    records: list[EpochRecord] = []
    best_epoch, best_right = 0, -1
    best_weights: dict[str, Tensor] = {}
    interrupted = False
    started = time.perf_counter()
    try:
        with torch.random.fork_rng(devices=[]), native.cores_for(network):
            torch.manual_seed(seed)  # dropout draws from torch's own generator
            for epoch in range(1, epochs + 1):
                epoch_started = time.perf_counter()

                def report(share: float, loss: float, epoch: int = epoch) -> None:
                    if on_progress is not None:
                        done = (epoch - 1 + share) / epochs
                        on_progress(Progress(epoch, epochs, done, loss, records[-1] if records else None))

                learned = examples.train
                if extra is not None:
                    learned = torch.cat([learned, extra(epoch).to(device.name)])
                if augmentation.noise:
                    store = examples.store.with_noise(learned, augmentation.noise, noise)

                def step(number: int, batches: int, epoch: int = epoch) -> None:
                    if augmentation.one_cycle:
                        share = one_cycle((epoch - 1) * batches + number, epochs * batches + 1)
                        for group, rate in zip(optimizer.param_groups, highest, strict=True):
                            group["lr"] = share * rate
                    optimizer.step()

                loss = _train_epoch(network, backward, learned, step, batch_size, order, report)
                if not math.isfinite(loss):
                    raise TrainingError(
                        f"training diverged in epoch {epoch}: the loss is {loss}; lower the learning rate of "
                        f"{optimizer.param_groups[0]['lr']}"
                    )
                with device.arithmetic():
                    right = count_right()
                n_val = len(examples.val)
                val_oa = 100.0 * right / n_val if n_val else None
                better = right > best_right or n_val == 0
                weights = {key: value.clone() for key, value in network.state_dict().items()} if better else {}
                records.append(EpochRecord(epoch, loss, val_oa, time.perf_counter() - epoch_started))
                if better:  # at once, so that an interrupt finds the three together
                    best_epoch, best_right, best_weights = epoch, right, weights
                report(1.0, loss)
    except KeyboardInterrupt:
        if not best_epoch:
            raise Interrupted("stopped before the first epoch ended: there is no model to keep") from None
        interrupted = True
    if augmentation.keep_last and not interrupted:
        best_epoch = epochs
    else:
        network.load_state_dict(best_weights)
    return History(tuple(records), best_epoch, time.perf_counter() - started, interrupted)


def _scores(network: nn.Module, store: PatchStore, which: Tensor, turned: Tensor | None = None) -> Tensor:
    """Scores (B, n) of patches number ``which``; they are put together only for a network that needs it."""
    how = () if turned is None else (turned,)
    if hasattr(network, "forward_indexed"):
        scores: Tensor = network.forward_indexed(store.spectra, store.places(which, *how))  # type: ignore[operator]
    else:
        scores = network(store.gather(which, *how))
    return scores


def _train_epoch(
    network: nn.Module,
    backward: Callable[[Tensor], float],
    learned: Tensor,
    step: Callable[[int, int], None],
    batch_size: int,
    order: Generator,
    report: Callable[[float, float], None],
) -> float:
    """One pass over the patches to learn from, in random order; the mean loss."""
    network.train()
    shuffled = learned[torch.randperm(len(learned), generator=order)]
    total, seen = 0.0, 0
    batches = torch.split(shuffled, batch_size)
    for number, which in enumerate(batches):
        loss = backward(which)
        step(number, len(batches))
        total += loss * len(which)
        seen += len(which)
        report(seen / len(shuffled), total / seen)
    return total / seen


def _count_right(network: nn.Module, examples: Examples, among: Tensor, batch_size: int) -> int:
    """Patches ``among`` those for validation that the network classifies correctly."""
    network.eval()
    right = 0
    if len(among) == 0:  # split would give one empty batch, not none
        return right
    with torch.inference_mode():
        for which in torch.split(among, _most_at_once(network, batch_size)):
            predicted = _scores(network, examples.store, which).argmax(dim=1)
            right += int((predicted == examples.targets[which]).sum())
    return right


def _most_at_once(network: nn.Module, batch_size: int) -> int:
    # Compiled kernels make their own small steps; for the others, what a pixel needs should stay near the cache.
    return 8192 if hasattr(network, "forward_indexed") and native.available() else min(INFERENCE_BATCH, batch_size)


def scores_of_all(network: nn.Module, store: PatchStore, batch_size: int) -> Tensor:
    """Scores (N, n) of every patch of a store, without augmentation."""
    network.eval()
    batches = torch.split(torch.arange(len(store), device=store.spectra.device), _most_at_once(network, batch_size))
    with torch.inference_mode():
        return torch.cat([_scores(network, store, which).float().cpu() for which in batches])


def solve(network: nn.Module, loss_of: Loss, examples: Examples) -> History:
    """Fit a network that solves itself at once (it has ``solve``): a history of one epoch, with its loss."""
    started = time.perf_counter()
    store, targets = examples.store, examples.targets
    features_of: Callable[[Tensor], Tensor] = network.features  # type: ignore[assignment]  # torch: always a module

    def known(which: Tensor) -> tuple[Tensor, Tensor]:
        # In small steps: whole patches of all training pixels may be far larger than what is looked at.
        parts = [features_of(store.gather(some)) for some in torch.split(which, INFERENCE_BATCH)]
        return torch.cat(parts), targets[which]

    network.solve(*known(examples.train), *known(examples.val))  # type: ignore[operator]
    seconds = time.perf_counter() - started
    with torch.inference_mode():
        losses = [
            len(some) * float(loss_of(network(store.gather(some)), targets[some]))
            for some in torch.split(examples.train, INFERENCE_BATCH)
        ]
    n_val = len(examples.val)
    val_oa = 100.0 * _count_right(network, examples, examples.val, INFERENCE_BATCH) / n_val if n_val else None
    loss = sum(losses) / len(examples.train)
    return History((EpochRecord(1, loss, val_oa, seconds),), 1, seconds, interrupted=False)
