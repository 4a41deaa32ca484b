"""Multinomial logistic regression with an L2 penalty, fitted by scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
from torch import Generator

from hypercaps.compute import linalg
from hypercaps.errors import ModelError
from hypercaps.models.folds import Integers, unit_folds
from hypercaps.models.linear import Array, LinearClassifier
from hypercaps.models.protocols import Samples

_MOST_TO_CHOOSE = 1500  # pixels to choose the cost by: more cost time and hardly change the choice
_TOLERANCE = 1e-3  # of the largest entry of the gradient, while costs are compared
_FINAL_TOLERANCE = 1e-4
_MOST_STEPS = 2000
_LEAST = 1e-12  # lower bound of a probability, for logarithms


class LogisticRegression(LinearClassifier):
    """``cost`` is the weight C of the data against the penalty; None: chosen by cross-validation.

    The chosen cost has the lowest log loss of pixels in units that were left out as a whole.
    """

    COSTS = (0.01, 0.1, 1.0, 10.0)
    DEFAULT_COST = 1.0  # where there are too few units to choose

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 1,
        cost: float | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(bands, classes, patch=patch, generator=generator)
        if cost is not None and not (isinstance(cost, int | float) and cost > 0):
            raise ModelError(f"cost is {cost!r}: a number above 0 is expected")
        self.cost = cost

    @property
    def found(self) -> dict[str, int | float]:
        return {} if self.cost is None else {"cost": self.cost}

    def solve(self, training: Samples, validation: Samples | None = None) -> None:
        """Fit to spectra; validation pixels are not used."""
        spectra, classes, units = training.features.numpy(), training.targets.numpy(), training.units
        with linalg.one_thread():
            if self.cost is None:
                self.cost = _choose_cost(spectra, classes, None if units is None else units.numpy())
            weight, bias, present = _Path(spectra, classes, _FINAL_TOLERANCE).fit(self.cost)
        self._set(weight, bias, present)


class _Path:
    """Fits with increasing costs, each of which starts where the one before ended."""

    def __init__(self, spectra: Array, targets: Integers, tolerance: float) -> None:
        from sklearn.linear_model import LogisticRegression as Fitted

        self.spectra, self.targets = spectra, targets
        self.fitted = Fitted(tol=tolerance, max_iter=_MOST_STEPS, warm_start=True)

    def fit(self, cost: float) -> tuple[Array, Array, Integers]:
        """Weights (m, C), biases (m,) and the class indices (m,) among the targets."""
        from sklearn.exceptions import ConvergenceWarning

        present = np.unique(self.targets)
        if present.size == 1:  # nothing to tell apart, which scikit-learn refuses
            return np.zeros((1, self.spectra.shape[1])), np.zeros(1), present
        self.fitted.C = cost
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.fitted.fit(self.spectra, self.targets)
        weight, bias = self.fitted.coef_, self.fitted.intercept_
        if len(weight) == 1:  # two classes have one row, for the second against the first
            weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
        return weight, bias, present


def _choose_cost(spectra: Array, targets: Integers, units: Integers | None) -> float:
    """The cost with the lowest log loss of pixels in units that were left out."""
    if targets.size > _MOST_TO_CHOOSE:
        some = np.sort(np.random.default_rng(0).choice(targets.size, _MOST_TO_CHOOSE, replace=False))
        spectra, targets, units = spectra[some], targets[some], None if units is None else units[some]
    fold_of, folds = unit_folds(targets, units)
    if folds < 2:
        return LogisticRegression.DEFAULT_COST
    inside = [fold_of != fold for fold in range(folds)]
    paths = [_Path(spectra[some], targets[some], _TOLERANCE) for some in inside]
    # No cost can predict a class that was left out entirely.
    can_predict = [~some & np.isin(targets, targets[some]) for some in inside]
    best, least = LogisticRegression.DEFAULT_COST, np.inf
    for cost in LogisticRegression.COSTS:
        fits = zip(can_predict, paths, strict=True)
        loss = sum(_log_loss(spectra[some], targets[some], *path.fit(cost)) for some, path in fits)
        if loss >= least:  # it has one minimum, and larger costs take the longest
            break
        best, least = cost, loss
    return best


def _log_loss(spectra: Array, targets: Integers, weight: Array, bias: Array, present: Integers) -> float:
    """Sum over pixels (N, C) of -log of the probability of their class."""
    scores = spectra @ weight.T + bias  # (N, m)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    of_class = likely[np.arange(targets.size), np.searchsorted(present, targets)]
    return float(-np.log(np.maximum(of_class, _LEAST)).sum())
