"""Which of the compared candidates is trained on all labels: one of them, or an average of the best few.

By log loss of the out-of-fold pixels, which uses all of a probability, not only its argmax: on the tile draws on which
this was decided it chose better than overall accuracy (docs/evidence.md). Choosing is not free either: folds flatter
flexible methods, whose scores fall most on new ground. So a network must be better than the simple methods by more than
the standard error, and simple methods are averaged rather than picked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.inference.calibration import log_loss
from hypercaps.selection.candidates import Candidate
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold

Floats = npt.NDArray[np.float64]

MOST_MEMBERS = 3
_LEAST = 1e-12  # probability, for logarithms
_LEAST_WEIGHT = 0.1  # members below it are left out
_ITERATIONS = 200
_PRIOR = 2.0  # units by which the data is extended for each member, at equal weights: few units say little


@dataclass(frozen=True)
class Choice:
    """Members of an average and their weights; a single one has weight 1."""

    members: tuple[Candidate, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Losses:
    """Log loss of each pixel, comparable between candidates."""

    loss: Floats  # (K,)
    unit: npt.NDArray[np.int64]  # (K,)

    @classmethod
    def of(cls, result: OutOfFold) -> Losses:
        known = result.known
        truth = result.problem.truth[known]
        of_truth = result.probabilities()[np.arange(truth.size), truth]
        return cls(-np.log(np.maximum(of_truth.astype(np.float64), _LEAST)), result.problem.unit[known])

    @property
    def mean(self) -> float:
        return float(self.loss.mean())


def excess(one: Losses, other: Losses) -> tuple[float, float]:
    """Mean of one log loss minus another on the same pixels, and its standard error with units as the sample.

    Both must have run the same folds.
    """
    difference = one.loss - other.loss
    mean = float(difference.mean())
    units = np.unique(one.unit, return_inverse=True)[1]
    sums = np.bincount(units, weights=difference - mean)
    count = max(sums.size, 2)
    error = float(np.sqrt(np.square(sums).sum() * count / (count - 1)) / difference.size)
    return mean, error


def can_replace(network: OutOfFold, own: Losses, leader: OutOfFold, leading: Losses) -> bool:
    """Whether a network is better than a simple method: in log loss by more than the standard error, and in OA."""
    mean, error = excess(own, leading)
    return mean < -error and network.correct > leader.correct


def choose(problem: FoldProblem, results: Mapping[Candidate, OutOfFold]) -> Choice:
    """The candidate of the lowest log loss, or an average of the best few if its log loss is lower still."""
    complete = {one: result for one, result in results.items() if result.is_complete}
    losses = {one: Losses.of(result) for one, result in complete.items()}
    simple = [one for one in complete if one.is_simple]
    if simple:  # a network must be clearly better than the best simple method
        leader = min(simple, key=lambda one: losses[one].mean)
        losses = {
            one: loss
            for one, loss in losses.items()
            if one.is_simple or can_replace(complete[one], loss, complete[leader], losses[leader])
        }
    ranked = sorted(losses, key=lambda one: losses[one].mean)
    members = _members(ranked)
    probabilities = [complete[one].probabilities() for one in members]
    weights = _weights(problem, probabilities)
    if weights is None:
        return Choice((ranked[0],), (1.0,))
    kept = [(one, weight) for one, weight in zip(members, weights.tolist(), strict=True) if weight > 0]
    return Choice(tuple(one for one, _ in kept), tuple(weight for _, weight in kept))


def _members(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The best few of different methods: two windows of one method err alike."""
    members: list[Candidate] = []
    for one in ranked:
        if len(members) < MOST_MEMBERS and one.method not in [other.method for other in members]:
            members.append(one)
    return members


def _weights(problem: FoldProblem, probabilities: Sequence[npt.NDArray[np.float32]]) -> Floats | None:
    """Weights of the average, 0 for members that hardly count; None: the first member alone is better."""
    at, truth = np.arange(problem.truth.size), problem.truth
    of_truth = np.stack([member[at, truth] for member in probabilities], axis=1).astype(np.float64)  # (M, m)
    weights = mixture_weights(np.maximum(of_truth, _LEAST), np.unique(problem.unit).size)
    weights = np.where(weights >= _LEAST_WEIGHT, weights, 0.0)
    weights /= weights.sum()
    if weights[0] == 1.0:
        return None
    together, alone = (log_loss(likely) for likely in (of_truth @ weights, of_truth[:, 0]))
    return weights if together < alone else None


def mixture_weights(of_truth: Floats, units: int) -> Floats:
    """Weights (m,) that minimise the log loss of an average, given each member's probability of the truth (N, m).

    Expectation maximisation of the mixture; with few spatial units the weights stay near equal.
    """
    members = of_truth.shape[1]
    weights = np.full(members, 1 / members)
    for _ in range(_ITERATIONS):
        shares = of_truth * weights
        shares /= shares.sum(axis=1, keepdims=True)
        weights = (units * shares.mean(axis=0) + _PRIOR) / (units + _PRIOR * members)
    return weights
