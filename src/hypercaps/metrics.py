"""How good a classification is: numpy in, a frozen dataclass out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.scene import Legend


@dataclass(frozen=True)
class ClassScore:
    """One class of the legend: how many of its test pixels were found, in percent."""

    label: int
    name: str
    accuracy: float | None  # None where the test set holds no pixel of this class
    test: int


@dataclass(frozen=True)
class Scores:
    """Overall accuracy, average accuracy and Cohen's kappa in percent, per class, and the confusion."""

    oa: float
    aa: float
    kappa: float
    per_class: tuple[ClassScore, ...]
    confusion: npt.NDArray[np.int64]  # (n, n): rows are the truth, columns what was predicted

    @property
    def n_test(self) -> int:
        return int(self.confusion.sum())

    def to_json(self) -> dict[str, Any]:
        """The part of metrics.json that scores make up."""
        return {
            "oa": self.oa,
            "aa": self.aa,
            "kappa": self.kappa,
            "per_class": [vars(score) for score in self.per_class],
            "confusion": self.confusion.tolist(),
        }


def confusion_matrix(
    truth: npt.NDArray[np.integer[Any]], predicted: npt.NDArray[np.integer[Any]], legend: Legend
) -> npt.NDArray[np.int64]:
    """Count test pixels by true class (row) and predicted class (column), in the legend's order."""
    labels = legend.labels
    n = len(labels)
    for what, values in (("true", truth), ("predicted", predicted)):
        strange = np.setdiff1d(values, labels)
        if strange.size:
            raise ValueError(f"{what} labels {strange.tolist()} are not in the legend {labels.tolist()}")
    pairs = np.searchsorted(labels, truth) * n + np.searchsorted(labels, predicted)
    return np.bincount(pairs, minlength=n * n).reshape(n, n).astype(np.int64)


def score(truth: npt.NDArray[np.integer[Any]], predicted: npt.NDArray[np.integer[Any]], legend: Legend) -> Scores:
    """Compare labels of test pixels with predictions for them. Classes without test pixels don't count in AA."""
    if truth.shape != predicted.shape or truth.size == 0:
        raise ValueError(f"{truth.shape} true and {predicted.shape} predicted labels can't be compared")
    confusion = confusion_matrix(truth, predicted, legend)
    total = confusion.sum()
    of_class = confusion.sum(axis=1)
    hits = confusion.diagonal()
    observed = hits.sum() / total
    by_chance = float((of_class * confusion.sum(axis=0)).sum()) / float(total) ** 2
    # One class only, always right: no agreement beyond chance can be shown, and none is missing.
    kappa = 1.0 if by_chance == 1.0 else (observed - by_chance) / (1.0 - by_chance)
    per_class = tuple(
        ClassScore(entry.label, entry.name, 100.0 * float(h) / int(n) if n else None, int(n))
        for entry, h, n in zip(legend, hits, of_class, strict=True)
    )
    measured = [s.accuracy for s in per_class if s.accuracy is not None]
    return Scores(
        oa=100.0 * float(observed),
        aa=float(np.mean(measured)),
        kappa=100.0 * float(kappa),
        per_class=per_class,
        confusion=confusion,
    )
