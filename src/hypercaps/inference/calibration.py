"""Scores that mean something: probabilities learned from validation pixels, and sets of classes that hold the truth.

A network's scores say which class is likelier, not how likely it is. From pixels that it did not learn from, one learns
how often it is right at a given score: by one number (a temperature) or by a rising line on top of it (isotonic),
whichever does better on validation pixels that were kept out of its own fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.floating[Any]]  # (N, n), 0 to 1, the highest for the class that is taken
Probabilities = npt.NDArray[np.float32]  # (N, n)
Positions = npt.NDArray[np.integer[Any]]  # (N,) of the true classes
Floats = npt.NDArray[np.float64]

MOST_PIXELS = 20_000  # of validation: more don't make it better
_LEAST = 1e-12  # scores are kept above this
_LEAST_FOR_ISOTONIC = 10  # validation pixels that are wrong, below which only a temperature is learned
_FOLDS = 5
_TEMPERATURES = (0.05, 20.0)
_TABLE = 1000  # longest table of conformity
_AT_ONCE = 16_384  # pixels in float64 at a time


def _nothing() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores (N, n) -> probabilities (N, n) that sum to 1; the winner stays the winner.

    Probabilities are proportional to score ** (1 / temperature). With knots, that of the winner is then read off the
    line through them, and the others share what is left.
    """

    temperature: float
    pixels: int  # of validation that it was learned from
    at: Floats = field(default_factory=_nothing)  # (K,) the winner's probability by the temperature alone, rising
    share: Floats = field(default_factory=_nothing)  # (K,) share of pixels that was right there, rising
    # Probability that true classes of validation pixels had, from the lowest; every k-th if there are many.
    conformity: Floats = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        """Refuse what no fit gives: it may come from a file."""
        sound = np.isfinite(self.temperature) and self.temperature > 0 and self.pixels > 0
        sound = sound and self.at.shape == self.share.shape
        for values in (self.at, self.share, self.conformity):
            sound = sound and values.ndim == 1 and values.dtype == np.float64
            sound = sound and bool(((values >= 0) & (values <= 1)).all() and (np.diff(values) >= 0).all())
        if not (sound and self.conformity.size in (0, self.pixels // self._step)):
            raise ValueError("its calibration is not one")

    @property
    def kind(self) -> str:
        return "isotonic" if self.at.size else "temperature"

    @property
    def _step(self) -> int:
        """How many validation pixels stand behind each number of the table of conformity."""
        return -(-self.pixels // _TABLE)

    def __call__(self, scores: Scores) -> Probabilities:
        """Each pixel for itself, so that it gets the same bits whatever is computed beside it."""
        found = np.empty(scores.shape, dtype=np.float32)
        for first in range(0, len(scores), _AT_ONCE):
            found[first : first + _AT_ONCE] = self._of(scores[first : first + _AT_ONCE])
        return found

    def _of(self, scores: Scores) -> Probabilities:
        winner = scores.argmax(axis=1)[:, None]  # (N, 1)
        # numpy's sums over a row may be made in another order for other shapes: one class after the other.
        likely = np.power(np.maximum(scores.astype(np.float64), _LEAST), 1 / self.temperature)  # (N, n)
        won = np.take_along_axis(likely, winner, axis=1)  # (N, 1)
        np.put_along_axis(likely, winner, 0.0, axis=1)
        others = np.zeros_like(won)
        for column in likely.T:
            others[:, 0] += column
        sure = won / (won + others)
        if self.at.size:
            sure = np.interp(sure, self.at, self.share)
        # At least as likely as the second, which has its part of what is left.
        second = likely.max(axis=1, keepdims=True)
        sure = np.maximum(sure, second / (second + others))
        left = likely * ((1.0 - sure) / others)
        sure = sure.astype(np.float32)
        # No ties by rounding: just below the winner at most.
        found: Probabilities = np.minimum(left.astype(np.float32), np.nextafter(sure, np.float32(0)))
        np.put_along_axis(found, winner, sure, axis=1)
        return found

    def threshold(self, coverage: float) -> float:
        """The probability from which a class belongs to a pixel's set, so that sets hold the truth in ``coverage``.

        Split conformal prediction: a new pixel takes any place among the N validation pixels with the same chance, so
        (N + 1)(1 - coverage) of the places may lie below. With too few pixels for that it is 0: all classes.
        """
        below = int((self.pixels + 1) * (1 - coverage) + 1e-9) // self._step  # safer where the table is coarse
        return float(self.conformity[below - 1]) if 0 < below <= self.conformity.size else 0.0

    def sets(self, probabilities: Probabilities, coverage: float) -> npt.NDArray[np.uint8]:
        """(N, n) -> (N,) number of classes in each pixel's set, which always holds the winner; 255 for more."""
        inside = (probabilities >= self.threshold(coverage)).sum(axis=1)
        sizes: npt.NDArray[np.uint8] = np.clip(inside, 1, 255).astype(np.uint8)
        return sizes

    def covers(self, probabilities: Probabilities, truth: Positions, coverage: float) -> npt.NDArray[np.bool_]:
        """(N, n), (N,) -> (N,) whether each pixel's set holds its true class."""
        of_truth = probabilities[np.arange(len(truth)), truth]
        won = probabilities.argmax(axis=1) == truth
        inside: npt.NDArray[np.bool_] = won | (of_truth >= self.threshold(coverage))
        return inside

    def describe(self) -> dict[str, Any]:
        """All but the arrays, as JSON takes it."""
        return {"kind": self.kind, "temperature": self.temperature, "pixels": self.pixels}

    def arrays(self) -> dict[str, Floats]:
        return {"at": self.at, "share": self.share, "conformity": self.conformity}


def fit_calibration(scores: Scores, truth: Positions) -> Calibration:
    """Learn from the scores (N, n) of validation pixels and their true classes (N,).

    The kind is the one with the lower log loss on pixels that were kept out of its fit, five times a fifth. The sets
    are learned from those probabilities too: with its own pixels, a calibration looks better than it is.
    """
    wrong = int((scores.argmax(axis=1) != truth).sum())
    kinds = [False, True] if wrong >= _LEAST_FOR_ISOTONIC else [False]
    kept_out = [_kept_out(scores, truth, isotonic) for isotonic in kinds]
    best = int(np.argmin([_log_loss(of_truth) for of_truth in kept_out]))
    found = _fit(scores, truth, kinds[best])
    step = -(-len(scores) // _TABLE)
    conformity = np.sort(kept_out[best])[step - 1 :: step].copy()  # in one piece, as a model file wants it
    return Calibration(found.temperature, len(scores), found.at, found.share, conformity)


def _fit(scores: Scores, truth: Positions, isotonic: bool) -> Calibration:
    by_temperature = Calibration(_fit_temperature(scores, truth), len(scores))
    if not isotonic:
        return by_temperature
    from sklearn.isotonic import IsotonicRegression

    sure = by_temperature(scores).max(axis=1).astype(np.float64)
    right = scores.argmax(axis=1) == truth
    # N pixels, all right, don't say that the next one must be: the rule of succession.
    most = (len(right) + 1) / (len(right) + 2)
    fitted = IsotonicRegression(y_min=0.0, y_max=most).fit_transform(sure, right)
    share, step = np.unique(fitted, return_inverse=True)
    # Its steps as a line through their middles: on a step, all pixels would seem equally sure.
    at = np.bincount(step, weights=sure) / np.bincount(step)
    if at[-1] < 1 and share[-1] < most:
        at, share = np.append(at, 1.0), np.append(share, most)
    return Calibration(by_temperature.temperature, len(scores), np.minimum(at, 1.0), share.astype(np.float64))


def _fit_temperature(scores: Scores, truth: Positions) -> float:
    """With the least log loss; the truth is smoothed by one pixel more, or all right would mean never in doubt."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    logs = np.log(np.maximum(scores.astype(np.float64), _LEAST))  # (N, n)
    smooth = 1 / (len(scores) + 2)
    wanted = (1 - smooth) * logs[np.arange(len(truth)), truth] + smooth * logs.mean(axis=1)

    def loss(log_temperature: float) -> float:
        warm = np.exp(-log_temperature)
        return float((logsumexp(logs * warm, axis=1) - wanted * warm).mean())

    found = minimize_scalar(loss, bounds=tuple(np.log(_TEMPERATURES)), method="bounded")
    return float(np.exp(found.x))


def _kept_out(scores: Scores, truth: Positions, isotonic: bool) -> Floats:
    """(N,) probability of each pixel's true class by a calibration that was learned without this pixel."""
    of_truth = np.empty(len(scores))
    fold = np.random.default_rng(0).permutation(len(scores)) % _FOLDS
    for k in range(_FOLDS):
        out = fold == k
        if out.any():
            others = ~out if not out.all() else out  # one pixel can't be kept out of itself
            found = _fit(scores[others], truth[others], isotonic)(scores[out])
            of_truth[out] = found[np.arange(len(found)), truth[out]]
    return of_truth


def _log_loss(of_truth: Floats) -> float:
    return float(-np.log(np.maximum(of_truth, _LEAST)).mean())
