"""One explicit training loop for every network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from hypercaps.errors import Interrupted, TrainingError
from hypercaps.patches import PatchStore

INFERENCE_BATCH = 64  # what a pixel needs on the way stays near the cache


def use_threads(threads: int) -> None:
    """How many processor threads training and mapping take."""
    torch.set_num_threads(threads)


class EpochRecord(NamedTuple):
    """One line of a run's history."""

    epoch: int  # from 1
    loss: float  # mean over the training pixels, while the weights moved
    val_oa: float | None  # percent; None without validation pixels
    seconds: float  # this epoch's, validation included


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


@dataclass(frozen=True)
class Examples:
    """Labelled patches: ``store`` holds them all, ``targets`` their class positions."""

    store: PatchStore
    targets: Tensor  # (N,) int64
    train: Tensor  # numbers of the patches to learn from
    val: Tensor  # and of those to choose the epoch by


def train(
    network: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    examples: Examples,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> History:
    """Train in place with Adam; the network ends with the weights of its (earliest) best validation epoch.

    Without validation pixels the last epoch counts as the best. Ctrl-C after the first epoch ends the
    training and keeps the best so far.
    """
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
    order = Generator().manual_seed(seed)
    records: list[EpochRecord] = []
    best_epoch, best_right = 0, -1
    best_weights: dict[str, Tensor] = {}
    interrupted = False
    started = time.perf_counter()
    try:
        for epoch in range(1, epochs + 1):
            epoch_started = time.perf_counter()

            def report(share: float, loss: float, epoch: int = epoch) -> None:
                if on_progress is not None:
                    done = (epoch - 1 + share) / epochs
                    on_progress(Progress(epoch, epochs, done, loss, records[-1] if records else None))

            loss = _train_epoch(network, loss_of, examples, optimizer, batch_size, order, report)
            if not math.isfinite(loss):
                raise TrainingError(
                    f"training diverged in epoch {epoch}: the loss is {loss}; lower the learning rate of "
                    f"{learning_rate}"
                )
            right = _count_right(network, examples)
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
    network.load_state_dict(best_weights)
    return History(tuple(records), best_epoch, time.perf_counter() - started, interrupted)


def _train_epoch(
    network: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    examples: Examples,
    optimizer: torch.optim.Optimizer,
    batch_size: int,
    order: Generator,
    report: Callable[[float, float], None],
) -> float:
    """One pass over the training patches in random order; the mean loss."""
    network.train()
    shuffled = examples.train[torch.randperm(len(examples.train), generator=order)]
    total, seen = 0.0, 0
    for which in torch.split(shuffled, batch_size):
        loss = loss_of(network(examples.store.gather(which)), examples.targets[which])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.item() * len(which)
        seen += len(which)
        report(seen / len(shuffled), total / seen)
    return total / seen


def _count_right(network: nn.Module, examples: Examples) -> int:
    """Validation patches that the network classifies correctly."""
    network.eval()
    right = 0
    if len(examples.val) == 0:  # split would give one empty batch, not none
        return right
    with torch.inference_mode():
        for which in torch.split(examples.val, INFERENCE_BATCH):
            predicted = network(examples.store.gather(which)).argmax(dim=1)
            right += int((predicted == examples.targets[which]).sum())
    return right
