"""Calibration of scores to probabilities on validation pixels, and conformal prediction sets.

A network's scores rank the classes but are no probabilities. The validation pixels tell how often it is right at a
given score: temperature scaling, or isotonic regression on top of it, whichever has the lower cross-validated log loss.
With few pixels both are shrunk towards the network's own scores, which are kept as they are unless a calibration is
clearly better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.floating[Any]]  # (N, n), 0 to 1, highest for the predicted class
Probabilities = npt.NDArray[np.float32]  # (N, n)
Positions = npt.NDArray[np.integer[Any]]  # (N,) indices of the true classes
Floats = npt.NDArray[np.float64]

MOST_PIXELS = 20_000  # validation pixels used: more do not improve the fit
FEWEST_PIXELS = 10  # validation pixels, below which the scores are kept as they are
_FEW = 20  # validation pixels, at which the network's own scores have a quarter of the weight in a fit
LEAST_SCORE = 1e-12  # lower bound of scores, for logarithms and powers
_LEAST_LIKELY = 1e-6  # lower bound of probabilities in log losses: so that no single pixel dominates
_LEAST_FOR_ISOTONIC = 10  # wrong validation pixels, below which only a temperature is fitted
_FOLDS = 5
_TEMPERATURES = (0.05, 20.0)  # bounds of the search
_TABLE = 1000  # longest table of conformity scores
_CHUNK = 16_384  # pixels converted to float64 at once


_nothing = partial(np.empty, 0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores (N, n) -> probabilities (N, n) that sum to 1; the predicted class stays the same.

    Probabilities are proportional to score ** (1 / temperature). With isotonic regression, the probability of the
    predicted class is interpolated between knots, and the other classes share the rest in proportion. Without
    calibration, the probability of the predicted class is its score, unless that of another class would be higher.
    """

    temperature: float
    pixels: int  # validation pixels that it was fitted to
    at: Floats = field(default_factory=_nothing)  # (K,) probability of the predicted class by temperature, ascending
    share: Floats = field(default_factory=_nothing)  # (K,) share of pixels that are right there, ascending
    # Cross-validated probability of the true class of validation pixels, ascending; every k-th if there are many.
    conformity: Floats = field(default_factory=_nothing)
    keeps_scores: bool = False  # the fit was not clearly better than the network's own scores

    def __post_init__(self) -> None:
        """Refuse values that no fit gives: they may come from a damaged file."""
        valid = np.isfinite(self.temperature) and self.temperature > 0 and self.pixels > 0
        valid = valid and self.at.shape == self.share.shape and not (self.keeps_scores and self.at.size)
        for values in self.arrays().values():
            valid = valid and values.ndim == 1 and values.dtype == np.float64
            valid = valid and bool(((values >= 0) & (values <= 1)).all() and (np.diff(values) >= 0).all())
        if not (valid and self.conformity.size in (0, self.pixels // self._step)):
            raise ValueError("its calibration is not one")

    @property
    def kind(self) -> str:
        return "none" if self.keeps_scores else "isotonic" if self.at.size else "temperature"

    @property
    def _step(self) -> int:
        """Validation pixels per entry of the table of conformity scores."""
        return -(-self.pixels // _TABLE)

    def __call__(self, scores: Scores) -> Probabilities:
        """Calibrate each pixel independently, so that its bits do not depend on the other pixels of the batch."""
        probabilities = np.empty(scores.shape, dtype=np.float32)
        for first in range(0, len(scores), _CHUNK):
            probabilities[first : first + _CHUNK] = self._calibrate(scores[first : first + _CHUNK])
        return probabilities

    def _calibrate(self, scores: Scores) -> Probabilities:
        winner = scores.argmax(axis=1)[:, None]  # (N, 1)
        # numpy may sum a row in another order for other shapes: add one class after the other.
        likely = np.power(np.maximum(scores.astype(np.float64), LEAST_SCORE), 1 / self.temperature)  # (N, n)
        won = np.take_along_axis(likely, winner, axis=1)  # (N, 1)
        np.put_along_axis(likely, winner, 0.0, axis=1)
        others = np.zeros_like(won)
        for column in likely.T:
            others[:, 0] += column
        sure = np.minimum(won, 1.0) if self.keeps_scores else won / (won + others)
        if self.at.size:
            sure = np.interp(sure, self.at, self.share)
        # Not below the probability of the second class, which has its part of the rest.
        second = likely.max(axis=1, keepdims=True)
        sure = np.maximum(sure, second / (second + others))
        left = likely * ((1.0 - sure) / others)
        sure = sure.astype(np.float32)
        # Rounding must not make ties: the others stay just below the predicted class.
        probabilities: Probabilities = np.minimum(left.astype(np.float32), np.nextafter(sure, np.float32(0)))
        np.put_along_axis(probabilities, winner, sure, axis=1)
        return probabilities

    def threshold(self, coverage: float) -> float:
        """Least probability of the classes in a set, so that a share ``coverage`` of sets includes the true class.

        Split conformal prediction: a new pixel has any rank among the N validation pixels with equal probability, so
        (N + 1)(1 - coverage) ranks may lie below the threshold. With too few pixels it is 0: all classes.
        """
        below = int((self.pixels + 1) * (1 - coverage) + 1e-9) // self._step  # a coarse table errs on the safe side
        return float(self.conformity[below - 1]) if 0 < below <= self.conformity.size else 0.0

    def sets(self, probabilities: Probabilities, coverage: float) -> npt.NDArray[np.uint8]:
        """(N, n) -> (N,) number of classes in each set, which always includes the predicted class; at most 255."""
        inside = (probabilities >= self.threshold(coverage)).sum(axis=1)
        sizes: npt.NDArray[np.uint8] = np.clip(inside, 1, 255).astype(np.uint8)
        return sizes

    def covers(self, probabilities: Probabilities, truth: Positions, coverage: float) -> npt.NDArray[np.bool_]:
        """(N, n), (N,) -> (N,) whether each pixel's set includes its true class."""
        of_truth = probabilities[np.arange(len(truth)), truth]
        won = probabilities.argmax(axis=1) == truth
        inside: npt.NDArray[np.bool_] = won | (of_truth >= self.threshold(coverage))
        return inside

    def describe(self) -> dict[str, object]:
        """Everything but the arrays, as JSON."""
        return {"kind": self.kind, "temperature": self.temperature, "pixels": self.pixels}

    def arrays(self) -> dict[str, Floats]:
        return {"at": self.at, "share": self.share, "conformity": self.conformity}


def fit_calibration(scores: Scores, truth: Positions, fold: Positions | None = None) -> Calibration:
    """Fit to the scores (N, n) of validation pixels and their true classes (N,).

    The kind is the one whose confidence has the lowest log loss in cross-validation, in five random folds or in the
    given ``fold`` (N,) of each pixel; "none" unless another is better by more than the standard error of the
    difference. The sets use the cross-validated probabilities too: on the pixels of its own fit, a calibration looks
    better than it is.
    """
    right = scores.argmax(axis=1) == truth
    kinds = ["none"]
    if right.size >= FEWEST_PIXELS:
        kinds += ["temperature", "isotonic"] if (~right).sum() >= _LEAST_FOR_ISOTONIC else ["temperature"]
    likely = {kind: cross_calibrate(scores, truth, fold, FITS[kind]) for kind in kinds}
    losses = {kind: confidence_losses(likely[kind].max(axis=1), right) for kind in kinds}
    best = min(kinds, key=lambda kind: float(losses[kind].mean()))
    gain = losses["none"] - losses[best]
    if gain.mean() <= gain.std() / np.sqrt(gain.size):
        best = "none"
    of_truth = likely[best][np.arange(right.size), truth]
    return replace(FITS[best](scores, truth), conformity=conformity_table(of_truth))


def conformity_table(of_truth: npt.NDArray[np.floating[Any]]) -> Floats:
    """Probabilities of the true classes of pixels (N,), ascending; every k-th if there are many."""
    step = -(-len(of_truth) // _TABLE)
    return np.sort(of_truth.astype(np.float64))[step - 1 :: step].copy()  # contiguous, for the model file


def cross_calibrate(
    scores: Scores, truth: Positions, fold: Positions | None = None, fit: Fit | None = None
) -> Probabilities:
    """(N, n) probabilities by calibrations that were fitted without the pixel's fold.

    Parameters
    ----------
    fold : (N,), or None for five random folds
    fit : of a calibration without sets; None: temperature scaling by the pixels alone
    """
    if fold is None:
        fold = np.random.default_rng(0).permutation(len(scores)) % _FOLDS
    probabilities = np.empty(scores.shape, dtype=np.float32)
    for k in np.unique(fold):
        out = fold == k
        others = ~out if not out.all() else out  # a single fold has no others
        probabilities[out] = (fit or fit_temperature)(scores[others], truth[others])(scores[out])
    return probabilities


def confidence_losses(confidence: npt.NDArray[np.floating[Any]], right: npt.NDArray[np.bool_]) -> Floats:
    """Log losses of pixels, given the confidences (N,) in their classes and whether these are right (N,)."""
    sure = confidence.astype(np.float64)
    losses: Floats = -np.log(np.maximum(np.where(right, sure, 1 - sure), _LEAST_LIKELY))
    return losses


def fit_temperature(scores: Scores, truth: Positions) -> Calibration:
    """Temperature scaling by the pixels alone, to compare methods whose scores mean different things; without sets."""
    return Calibration(_find_temperature(scores, truth, own=0.0), len(scores))


def _keep_scores(scores: Scores, truth: Positions) -> Calibration:
    return Calibration(1.0, len(truth), keeps_scores=True)


def _fit_temperature(scores: Scores, truth: Positions) -> Calibration:
    return Calibration(_find_temperature(scores, truth, _own_weight(len(scores))), len(scores))


def _fit_isotonic(scores: Scores, truth: Positions) -> Calibration:
    by_temperature = _fit_temperature(scores, truth)
    sure = by_temperature(scores).max(axis=1).astype(np.float64)
    right = scores.argmax(axis=1) == truth
    n = len(right)
    own, weight = _keep_scores(scores, truth)(scores).max(axis=1), _own_weight(n)
    blended = (1 - weight) * right + weight * own
    # Rule of succession: N right pixels out of N do not make the next one certain.
    most = (n + 1) / (n + 2)
    fitted = np.clip(isotonic(sure, blended), 0.0, most)
    share, step = np.unique(fitted, return_inverse=True)
    # A line through the middles of the steps: on a step, all pixels would get the same confidence.
    at = np.bincount(step, weights=sure) / np.bincount(step)
    if at[-1] < 1 and share[-1] < most:
        at, share = np.append(at, 1.0), np.append(share, most)
    return Calibration(by_temperature.temperature, n, np.minimum(at, 1.0), share.astype(np.float64))


def isotonic(at: Floats, values: Floats) -> Floats:
    """Isotonic regression: the values (N,) that ascend with ``at`` (N,) and are nearest to the given ones."""
    from scipy.optimize import isotonic_regression

    places, of_each, counts = np.unique(at, return_inverse=True, return_counts=True)
    ascending = np.argsort(values, kind="stable")  # the order of the sums
    sums = np.bincount(of_each[ascending], weights=values[ascending], minlength=places.size)
    steps = isotonic_regression(sums / counts, weights=counts.astype(np.float64)).x
    return np.asarray(steps[of_each])


def _own_weight(pixels: int) -> float:
    """Weight of the network's own scores in a fit: large for few pixels, small for many."""
    return (_FEW / (pixels + _FEW)) ** 2


def _find_temperature(scores: Scores, truth: Positions, own: float) -> float:
    """Temperature of the least log loss.

    Labels are smoothed, or pixels that are all right would give certainty. Their weight is 1 - ``own``; the rest is
    that of classes as likely as the network's own scores say.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    logs = np.log(np.maximum(scores.astype(np.float64), LEAST_SCORE))  # (N, n)
    smooth = 1 / (len(scores) + 2)
    target = (1 - smooth) * logs[np.arange(len(truth)), truth] + smooth * logs.mean(axis=1)
    if own:
        target = (1 - own) * target + own * (_keep_scores(scores, truth)(scores) * logs).sum(axis=1)

    def loss(log_temperature: float) -> float:
        inverse = np.exp(-log_temperature)
        return float((logsumexp(logs * inverse, axis=1) - target * inverse).mean())

    best = minimize_scalar(loss, bounds=tuple(np.log(_TEMPERATURES)), method="bounded")
    return float(np.exp(best.x))


Fit = Callable[[Scores, Positions], Calibration]  # of scores (N, n) and true classes (N,), without sets

# By the kinds that `Calibration.kind` names
FITS: dict[str, Fit] = {"none": _keep_scores, "temperature": _fit_temperature, "isotonic": _fit_isotonic}
