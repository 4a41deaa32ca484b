"""Fit a network without epochs, such as an SVM."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from hypercaps.models.history import EpochRecord, History
from hypercaps.models.protocols import Samples, Solvable
from hypercaps.training.examples import INFERENCE_BATCH, Examples, count_correct, patch_scores
from hypercaps.training.loop import Loss


def solve(network: nn.Module, loss_of: Loss, examples: Examples) -> History:
    """Fit a network without epochs: a history of one epoch, with its loss."""
    assert isinstance(network, Solvable)
    started = time.perf_counter()
    n_val = len(examples.val)
    network.solve(
        _samples(network, examples, examples.train), _samples(network, examples, examples.val) if n_val else None
    )
    seconds = time.perf_counter() - started
    with torch.inference_mode():
        losses = [
            len(some) * float(loss_of(patch_scores(network, examples.store, some), examples.targets[some]))
            for some in torch.split(examples.train, INFERENCE_BATCH)
        ]
    val_oa = 100.0 * count_correct(network, examples, INFERENCE_BATCH) / n_val if n_val else None
    loss = sum(losses) / len(examples.train)
    return History((EpochRecord(1, loss, val_oa, seconds),), 1, seconds, interrupted=False)


def _samples(network: Solvable, examples: Examples, which: Tensor) -> Samples:
    """What the network uses of patches ``which`` (B,)."""
    # In small batches: the patches of all training pixels may be far larger than their features.
    features = [network.features(examples.store.gather(some)) for some in torch.split(which, INFERENCE_BATCH)]
    units = None if examples.units is None else examples.units[which]
    return Samples(torch.cat(features), examples.targets[which], units)
