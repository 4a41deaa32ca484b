"""Intervals of accuracies: what a score may be on other ground, given how many spatial units it was measured on.

Pixels of one unit (a polygon, an area, a tile) are nearly all right or all wrong. The size of the sample is therefore
the number of units, not that of pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.integer[Any]] | npt.NDArray[np.floating[Any]]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_EM_STEPS = 10_000
_EM_CHANGE = 1e-9  # of shares, below which EM stops


@dataclass(frozen=True)
class Interval:
    """Bounds in percent."""

    low: float
    high: float


@dataclass(frozen=True)
class ScoreIntervals:
    """Intervals of the scores of one confusion matrix."""

    oa: Interval
    aa: Interval
    kappa: Interval
    per_class: tuple[Interval | None, ...]  # producer's accuracies; None: no test pixel of the class


def score_intervals(
    confusion: Numbers, units: Numbers, weights: Numbers | None = None, *, level: float = 0.95, draws: int = 4000,
    seed: int = 0,
) -> ScoreIntervals:  # fmt: skip
    """Intervals that contain the accuracy on ground like that of the labels with probability ``level``.

    The accuracy of a class with the share p of its pixels right in u units has the posterior Beta(u p + 1/2,
    u (1 - p) + 1/2) (Jeffreys' prior). OA, AA and kappa are computed for draws of all classes. There the prior has the
    same weight, one unit, but its mean is the accuracy of all units: pulling every class towards 1/2 would add up over
    the classes. Every interval includes the score itself.

    Parameters
    ----------
    confusion : (n, n) test pixels, true class by row
    units : (n,) number of units with test pixels of each class
    weights : (n,) share of each true class on the ground; None: its share of the test pixels
    level : probability, 0 to 1
    draws : of the posterior
    seed : of the random number generator
    """
    from scipy.special import betaincinv

    tested, weight = _weights(confusion, weights)
    right, errors = _rows(confusion)
    u = np.maximum(np.asarray(units, dtype=np.float64), 1.0)
    ends = np.array([(1 - level) / 2, (1 + level) / 2])
    bounds = betaincinv((u * right + 0.5)[:, None], (u * (1 - right) + 0.5)[:, None], ends)  # (n, 2)
    per_class = tuple(_interval(b, p) if ok else None for b, p, ok in zip(bounds, right, tested, strict=True))
    total = float(u[tested].sum())
    mean = (float((u * right)[tested].sum()) + 0.5) / (total + 1.0)  # never 0 or 1
    rng = np.random.default_rng(seed)
    drawn = rng.beta(u * right + mean, u * (1 - right) + 1 - mean, (draws, u.size))  # (draws, n)
    found = [
        _interval(np.quantile(values, ends), float(score[0]))
        for values, score in zip(
            _scores(drawn, weight, tested, errors), _scores(right[None], weight, tested, errors), strict=True
        )
    ]
    return ScoreIntervals(*found, per_class)


def weighted_scores(confusion: Numbers, weights: Numbers | None) -> tuple[float, float, float]:
    """OA, AA and kappa in percent of a confusion matrix (n, n), if the true classes had the shares ``weights`` (n,).

    Classes without test pixels are left out, and the other weights are scaled to a sum of 1.
    """
    tested, weight = _weights(confusion, weights)
    right, errors = _rows(confusion)
    oa, aa, kappa = (100.0 * float(score[0]) for score in _scores(right[None], weight, tested, errors))
    return oa, aa, kappa


def class_shares(confusion: Numbers, mapped: Numbers) -> Floats:
    """(n,) shares of the true classes on the ground, from the pixels of each class in a map, ``mapped`` (n,).

    The mapped classes are a mixture of the rows P(predicted | true) of the confusion matrix (n, n); the shares of the
    mixture with the maximum likelihood are found by EM. Unlike the columns of the matrix, its rows do not depend on how
    many pixels of each class were labelled.
    """
    n = len(confusion)
    smoothed = np.asarray(confusion, dtype=np.float64) + 0.5 / n
    rows = smoothed / smoothed.sum(axis=1, keepdims=True)
    tested = np.asarray(confusion).sum(axis=1) > 0
    rows[~tested] = np.eye(n)[~tested]
    observed = np.asarray(mapped, dtype=np.float64)
    if not observed.sum() > 0:
        raise ValueError("the map has no pixel of any class")
    observed = observed / observed.sum()
    shares = (observed + 1e-6) / (1.0 + n * 1e-6)  # a share of exactly 0 would remain 0
    for _ in range(_EM_STEPS):
        expected = shares @ rows  # (n,) of the map
        ratio = np.divide(observed, expected, out=np.zeros(n), where=expected > 0)
        new = shares * (rows @ ratio)
        change = np.abs(new - shares).max()
        shares = new
        if change < _EM_CHANGE:
            break
    found: Floats = shares / shares.sum()
    return found


def wilson(successes: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's interval of a share, in percent, for ``n`` independent pixels of which ``successes`` are right."""
    from scipy.special import ndtri

    if n <= 0:
        return Interval(0.0, 100.0)
    z, p = float(ndtri((1 + level) / 2)), successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Interval(100.0 * max(0.0, min(centre - half, p)), 100.0 * min(1.0, max(centre + half, p)))


def _weights(confusion: Numbers, weights: Numbers | None) -> tuple[Bools, Floats]:
    """(n,) which classes have test pixels, and their weights with a sum of 1."""
    of_class = np.asarray(confusion, dtype=np.float64).sum(axis=1)
    tested: Bools = of_class > 0
    if not tested.any():
        raise ValueError("the confusion matrix has no test pixel")
    weight = np.where(tested, of_class if weights is None else np.asarray(weights, dtype=np.float64), 0.0)
    if not weight.sum() > 0:  # all the ground is of classes without test pixels: nothing better is known
        weight = of_class
    return tested, weight / weight.sum()


def _rows(confusion: Numbers) -> tuple[Floats, Floats]:
    """(n,) share of each class's pixels that are right, and (n, n) where its errors go, each row with a sum of 1."""
    counts = np.asarray(confusion, dtype=np.float64)
    n = len(counts)
    of_class = counts.sum(axis=1)
    right = counts.diagonal() / np.maximum(of_class, 1.0)
    errors = counts - np.diag(counts.diagonal())
    none = errors.sum(axis=1) == 0  # errors that were not seen go to all other classes alike
    errors[none] = (1.0 - np.eye(n))[none]
    return right, errors / np.maximum(errors.sum(axis=1, keepdims=True), 1e-300)


def _scores(right: Floats, weight: Floats, tested: Bools, errors: Floats) -> tuple[Floats, Floats, Floats]:
    """OA, AA and kappa (draws,) each, of accuracies (draws, n), as shares."""
    oa = right @ weight
    aa = right[:, tested].mean(axis=1)
    # By chance: the sum over classes j of w_j q_j, where q_j, the share mapped as j, is w_j p_j and errors of others.
    by_chance = right @ weight**2 + (1.0 - right) @ (weight * (errors @ weight))
    # With one class that is always right, agreement by chance is complete: kappa is defined as 1.
    certain = by_chance >= 1.0 - 1e-12
    kappa = np.where(certain, 1.0, (oa - by_chance) / np.where(certain, 1.0, 1.0 - by_chance))
    return oa, aa, kappa


def _interval(bounds: Floats, score: float) -> Interval:
    return Interval(100.0 * min(float(bounds[0]), score), 100.0 * max(float(bounds[1]), score))
