"""Fit a network without epochs, such as an SVM."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from hypercaps.models.history import EpochRecord, History
from hypercaps.models.protocols import Linear, Samples, Solvable
from hypercaps.training.examples import INFERENCE_BATCH, Examples, count_correct, patch_scores
from hypercaps.training.loop import Loss


def solve(network: nn.Module, loss_of: Loss, examples: Examples) -> History:
    """Fit a network without epochs: a history of one epoch, with its loss."""
    assert isinstance(network, Solvable)
    started = time.perf_counter()
    n_val = len(examples.val)
    training = _samples(network, examples, examples.train)
    network.solve(training, _samples(network, examples, examples.val) if n_val else None)
    seconds = time.perf_counter() - started
    val_oa = 100.0 * count_correct(network, examples, INFERENCE_BATCH) / n_val if n_val else None
    loss = _training_loss(network, loss_of, examples, training)
    return History((EpochRecord(1, loss, val_oa, seconds),), 1, seconds, interrupted=False)


def _training_loss(network: nn.Module, loss_of: Loss, examples: Examples, training: Samples) -> float:
    """Mean loss of the training patches."""
    total = 0.0
    with torch.inference_mode():
        for places in torch.split(torch.arange(len(examples.train)), INFERENCE_BATCH):
            if isinstance(network, Linear):  # the scores of a patch are those of its mean spectrum, computed already
                scores = network(training.features[places, None, None])
            else:
                scores = patch_scores(network, examples.store, examples.train[places])
            total += len(places) * float(loss_of(scores, training.targets[places]))
    return total / len(examples.train)


def _samples(network: Solvable, examples: Examples, which: Tensor) -> Samples:
    """What the network uses of patches ``which`` (B,)."""
    # In small batches: the patches of all training pixels may be far larger than their features.
    features = [network.features(examples.store.gather(some)) for some in torch.split(which, INFERENCE_BATCH)]
    units = None if examples.units is None else examples.units[which]
    return Samples(torch.cat(features), examples.targets[which], units)
