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

_ROUNDING = 1e-9


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
    users: tuple[Interval | None, ...]  # user's accuracies; None: no test pixel was predicted as the class


def score_intervals(confusion: Numbers, units: Numbers, *, level: float = 0.95) -> ScoreIntervals:
    """Intervals that contain the accuracy on ground like that of the labels with probability ``level``, about.

    The accuracy of a class with the share p of its pixels right in u units has the posterior Beta(u p + 1/2,
    u (1 - p) + 1/2) (Jeffreys' prior). OA and AA are weighted sums over the classes: their effective number of units is
    the one for which a plain share has the variance of the sum, and their posterior is that of such a share. Draws of
    the classes' own posteriors would not do: each is pulled towards 1/2, which adds up over many classes of few units,
    so that the interval often misses the accuracy (the tests simulate both). Every interval includes the score itself.

    Parameters
    ----------
    confusion : (n, n) test pixels, true class by row
    units : (n,) number of units with test pixels of each class
    level : probability, 0 to 1
    """
    of_class = np.asarray(confusion, dtype=np.float64).sum(axis=1)  # (n,)
    tested: Bools = of_class > 0
    if not tested.any():
        raise ValueError("the confusion matrix has no test pixel")
    weight = of_class / of_class.sum()
    right, errors = _rows(confusion)
    u = np.maximum(np.asarray(units, dtype=np.float64), 1.0)
    likely, variance = _likely(right, u, tested)
    per_class = tuple(_jeffreys(p, k, level) if ok else None for p, k, ok in zip(right, u, tested, strict=True))
    alike = tested / tested.sum()
    oa, aa = (_weighted_interval(w, right, likely, variance, level) for w in (weight, alike))
    kappa = _kappa_interval(oa, right, weight, errors, variance)
    return ScoreIntervals(oa, aa, kappa, per_class, _users_intervals(confusion, u, level))


def map_accuracy(
    confusion: Numbers, mapped: Numbers, units: Numbers, *, level: float = 0.95
) -> tuple[float, Interval] | None:
    """Share of a map's pixels that are right, in percent, with its interval: user's accuracies weighted by the area of
    each class in the map (stratified estimator, Olofsson et al. 2014).

    The plain share of test pixels describes the map only if classes are labelled in proportion to their areas.

    Parameters
    ----------
    confusion : (n, n) test pixels, true class by row
    mapped : (n,) pixels of each class in the map; classes without a test pixel mapped as them are left out
    units : (n,) number of units mapped as each class, see :func:`predicted_units`
    level : probability, 0 to 1

    Returns
    -------
    None if no class of the map has a test pixel.
    """
    counts = np.asarray(confusion, dtype=np.float64)
    predicted = counts.sum(axis=0)
    area = np.where(predicted > 0, np.asarray(mapped, dtype=np.float64), 0.0)
    if not area.sum() > 0:
        return None
    right = counts.diagonal() / np.maximum(predicted, 1.0)
    u = np.maximum(np.asarray(units, dtype=np.float64), 1.0)
    weight = area / area.sum()
    interval = _weighted_interval(weight, right, *_likely(right, u, predicted > 0), level)
    return 100.0 * float(weight @ right), interval


def _likely(right: Floats, units: Floats, tested: Bools) -> tuple[Floats, Floats]:
    """(n,) accuracies of classes for estimates of their variance, and the variances; 0 of classes without test pixels.

    A class that was always right has a variance too: it is estimated with one more unit, of the accuracy of all.
    """
    pooled = (float((units * right)[tested].sum()) + 0.5) / (float(units[tested].sum()) + 1.0)
    likely = (units * right + pooled) / (units + 1.0)
    return likely, np.where(tested, likely * (1.0 - likely) / units, 0.0)


def _weighted_interval(weight: Floats, right: Floats, likely: Floats, variance: Floats, level: float) -> Interval:
    """Interval of a weighted sum of shares (n,), by the number of units for which a plain share has its variance."""
    return _jeffreys(
        float(weight @ right), _share_variance(float(weight @ likely)) / float(weight**2 @ variance), level
    )


def _users_intervals(confusion: Numbers, units: Floats, level: float) -> tuple[Interval | None, ...]:
    """Of the share of pixels predicted as each class that belong to it; each pixel counts as its part of a unit."""
    counts = np.asarray(confusion, dtype=np.float64)
    return tuple(
        _jeffreys(float(hits / total), float(u), level) if total else None
        for hits, total, u in zip(counts.diagonal(), counts.sum(axis=0), predicted_units(counts, units), strict=True)
    )


def predicted_units(confusion: Numbers, units: Numbers) -> Floats:
    """(n,) number of units predicted as each class, from that of each true class; each pixel counts as its part of one.

    So a few stray pixels in every unit do not make a class well tested, and units are not counted twice.
    """
    counts = np.asarray(confusion, dtype=np.float64)
    per_pixel = np.asarray(units, dtype=np.float64) / np.maximum(counts.sum(axis=1), 1.0)
    units_predicted: Floats = per_pixel @ counts
    return units_predicted


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


def _by_chance(right: Floats, weight: Floats, errors: Floats) -> tuple[float, Floats]:
    """Agreement by chance, and (n,) its derivative by the accuracy of each class.

    It is the sum over classes j of w_j q_j, where q_j, the share mapped as j, is w_j p_j and the errors of others.
    """
    missed = weight * (errors @ weight)  # (n,)
    return float(right @ weight**2 + (1.0 - right) @ missed), weight**2 - missed


def _kappa(right: Floats, weight: Floats, errors: Floats) -> float:
    by_chance, _ = _by_chance(right, weight, errors)
    # With one class that is always right, agreement by chance is complete: kappa is defined as 1.
    return 1.0 if by_chance >= 1.0 - 1e-12 else (float(weight @ right) - by_chance) / (1.0 - by_chance)


def _kappa_interval(oa: Interval, right: Floats, weight: Floats, errors: Floats, variance: Floats) -> Interval:
    """The interval of OA, scaled by the ratio of kappa's standard deviation to that of OA (delta method)."""
    by_chance, slope = _by_chance(right, weight, errors)
    if by_chance >= 1.0 - 1e-12:
        return Interval(0.0, 100.0)
    observed = float(weight @ right)
    gradient = (weight * (1.0 - by_chance) - slope * (1.0 - observed)) / (1.0 - by_chance) ** 2  # (n,)
    ratio = float(np.sqrt((gradient**2 @ variance) / (weight**2 @ variance)))
    kappa = 100.0 * _kappa(right, weight, errors)
    low, high = kappa - ratio * (100.0 * observed - oa.low), kappa + ratio * (oa.high - 100.0 * observed)
    return Interval(max(-100.0, min(low, kappa)), max(min(100.0, high), kappa))


def _share_variance(p: float) -> float:
    return p * (1.0 - p)


def _jeffreys(p: float, n: float, level: float) -> Interval:
    """Jeffreys' interval of a share ``p`` of ``n`` units, in percent, which includes the share itself.

    Less than one wrong unit does not exclude that all are right, nor less than one right unit that all are wrong: the
    interval then ends at 100 or 0 (Brown, Cai and DasGupta 2001 modify it likewise).
    """
    from scipy.special import betaincinv

    low, high = betaincinv(n * p + 0.5, n * (1.0 - p) + 0.5, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    low = 0.0 if n * p < 1 - _ROUNDING else min(float(low), p)
    high = 1.0 if n * (1.0 - p) < 1 - _ROUNDING else max(float(high), p)
    return Interval(100.0 * low, 100.0 * high)
