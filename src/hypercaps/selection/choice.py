"""Which of the compared candidates is trained on all labels: one of them, or an average of the best few.

By log loss of the out-of-fold pixels, which uses all of a probability, not only its argmax. Choosing has a cost: folds
overrate flexible methods, whose scores fall most on new ground, and with few units the choice is nearly random. So a
default is used unless a candidate is clearly better (a t test): in a scene of fields the network with label
propagation, elsewhere the average of LDA, logistic regression and random forest; docs/evidence.md has the experiments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from hypercaps.selection.candidates import Candidate
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold

Floats = npt.NDArray[np.float64]

BASIC = ("lda", "logistic", "random-forest")  # their average is hard to beat on mixed pixels
MOST_MEMBERS = 3
_LEAST = 1e-12  # probability, for logarithms
_LEAST_WEIGHT = 0.1  # members below it are left out
SURE = 0.9  # probability that a candidate is better than the basic methods, to replace them
LEAST_UNITS = 20  # held-out units; with fewer, chance decides, and only a candidate that is far better is chosen
_VERY_SURE = 0.99  # the same to replace a network in a scene of fields, where folds understate label propagation
_ITERATIONS = 200
_PRIOR = 2.0  # units, for the weights of an average
_BASIC_PRIOR = 10.0  # the same for the basic methods, which are nearly equal on most scenes


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

    Both must have run the same folds. One unit alone tells nothing of the error, which is then infinite.
    """
    difference = one.loss - other.loss
    mean = float(difference.mean())
    units = np.unique(one.unit, return_inverse=True)[1]
    sums = np.bincount(units, weights=difference - mean)
    count = sums.size
    if count < 2:
        return mean, inf
    return mean, float(np.sqrt(np.square(sums).sum() * count / (count - 1)) / difference.size)


def choose(problem: FoldProblem, results: Mapping[Candidate, OutOfFold], default: Candidate | None = None) -> Choice:
    """The default, or, where a candidate is clearly better, that one or an average of the best few.

    ``default`` is a network that suits the scene; None: the average of the basic methods.
    """
    complete = {one: result for one, result in results.items() if result.is_complete}
    if default in complete and not any(is_clearly_worse(complete[default], other) for other in complete.values()):
        return Choice((default,), (1.0,))
    basic = [one for one in complete if one.name in BASIC]
    losses = {one: Losses.of(result) for one, result in complete.items()}
    if basic:
        average = _average(problem, [complete[one] for one in basic], _BASIC_PRIOR)
        others = [one for one in complete if one not in basic]
        better = [one for one in others if average.is_beaten_by(one, complete[one], losses[one])]
        if not better:
            return Choice(tuple(basic), tuple(average.weights.tolist()))
        best = max(better, key=lambda one: (complete[one].correct, -losses[one].mean))
        losses = {one: loss for one, loss in losses.items() if one in better or one.is_simple}
    else:
        best = min(losses, key=lambda one: losses[one].mean)
    return _best_few(problem, complete, losses, best)


def is_clearly_worse(one: OutOfFold, other: OutOfFold, probability: float = _VERY_SURE) -> bool:
    """Whether a candidate is less accurate on the folds that it has run, by a t test."""
    same_folds = other.first_folds(one.done)
    more, error = excess(_errors(one), _errors(same_folds))
    return more > _quantile(one, probability) * error and more > 0


def _quantile(result: OutOfFold, probability: float) -> float:
    """Of Student's t distribution, with units as the sample."""
    from scipy.special import stdtrit

    units = np.unique(result.problem.unit[result.known]).size
    return float(stdtrit(max(units - 1, 1), probability))


def _best_few(
    problem: FoldProblem, results: Mapping[Candidate, OutOfFold], losses: Mapping[Candidate, Losses], best: Candidate
) -> Choice:
    """The best candidate, or an average with a few others if its log loss is lower and its accuracy not lower."""
    others = sorted((one for one in losses if one is not best), key=lambda one: losses[one].mean)
    members = _members([best, *others])
    average = _average(problem, [results[one] for one in members], _PRIOR, _LEAST_WEIGHT)
    if not (average.losses.mean < losses[best].mean and average.errors.mean <= _errors(results[best]).mean):
        return Choice((best,), (1.0,))
    kept = [(one, weight) for one, weight in zip(members, average.weights.tolist(), strict=True) if weight > 0]
    return Choice(tuple(one for one, _ in kept), tuple(weight for _, weight in kept))


def _members(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The best few of different methods: two windows of one method err alike."""
    members: list[Candidate] = []
    for one in ranked:
        if len(members) < MOST_MEMBERS and one.method not in [other.method for other in members]:
            members.append(one)
    return members


@dataclass(frozen=True, eq=False)
class _Average:
    """An average of several candidates' calibrated probabilities."""

    weights: Floats  # (m,)
    losses: Losses
    errors: Losses  # 1 for a pixel whose class is wrong, else 0

    def is_beaten_by(self, candidate: Candidate, other: OutOfFold, losses: Losses) -> bool:
        """Whether a candidate is better in log loss and in accuracy, in one of them by a t test.

        For a network, accuracy by the t test is enough: one wrong polygon with high confidence costs it as much log
        loss as many right ones save. With few units, both tests are needed, at a higher level.
        """
        few = np.unique(losses.unit).size < LEAST_UNITS
        quantile = _quantile(other, _VERY_SURE if few else SURE)
        compared = [excess(losses, self.losses), excess(_errors(other), self.errors)]
        by_loss, by_accuracy = (mean < -quantile * error for mean, error in compared)
        if few:
            return by_loss and by_accuracy
        if by_accuracy and not candidate.is_simple:
            return True
        return all(mean < 0 for mean, _ in compared) and (by_loss or by_accuracy)


def _errors(result: OutOfFold) -> Losses:
    """1 for each known pixel whose class is wrong, else 0."""
    problem, known = result.problem, result.known
    wrong = result.raw[known].argmax(axis=1) != problem.truth[known]
    return Losses(wrong.astype(np.float64), problem.unit[known])


def _average(problem: FoldProblem, results: Sequence[OutOfFold], prior: float, least_weight: float = 0.0) -> _Average:
    """The average of lowest log loss; members below ``least_weight`` get none."""
    at, truth = np.arange(problem.truth.size), problem.truth
    probabilities = np.stack([result.probabilities() for result in results])  # (m, M, n)
    of_truth = probabilities[:, at, truth].T.astype(np.float64)  # (M, m)
    weights = mixture_weights(np.maximum(of_truth, _LEAST), np.unique(problem.unit).size, prior)
    weights = np.where(weights >= least_weight, weights, 0.0)
    weights /= weights.sum()
    losses = Losses(-np.log(np.maximum(of_truth @ weights, _LEAST)), problem.unit)
    predicted = np.einsum("m,mij->ij", weights, probabilities).argmax(axis=1)
    return _Average(weights, losses, Losses((predicted != truth).astype(np.float64), problem.unit))


def mixture_weights(of_truth: Floats, units: int, prior: float) -> Floats:
    """Weights (m,) that minimise the log loss of an average, given each member's probability of the truth (N, m).

    Expectation maximisation of the mixture. ``prior`` is the number of units by which the data is extended for each
    member, at equal weights: few units say little.
    """
    members = of_truth.shape[1]
    weights = np.full(members, 1 / members)
    for _ in range(_ITERATIONS):
        shares = of_truth * weights
        shares /= shares.sum(axis=1, keepdims=True)
        weights = (units * shares.mean(axis=0) + prior) / (units + prior * members)
    return weights
