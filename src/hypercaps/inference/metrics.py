"""How good a classification is: numpy in, a frozen dataclass out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Legend


@dataclass(frozen=True)
class ClassScore:
    """One class of the legend: how many of its test pixels were found, in percent."""

    label: int
    name: str
    accuracy: float | None  # None where the test set holds no pixel of this class
    test: int


BINS = 15  # of confidence, in the reliability table and the expected calibration error
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of the rejection table
COVERAGES = (0.8, 0.9, 0.95, 0.99)  # of the table of conformal sets
Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ConfidenceReport:
    """Whether confidence is what it says, on the test set; all numbers are shares from 0 to 1."""

    before: tuple[dict[str, Any], ...]  # reliability table of the network's own scores
    calibration: str | None = None  # its kind; None: the model is not calibrated, nor are the following there
    after: tuple[dict[str, Any], ...] = ()
    rejection: tuple[dict[str, Any], ...] = ()
    # Of COVERAGES: how many conformal sets made for it hold the true class, and how many classes they hold on average
    sets: tuple[dict[str, float], ...] = ()

    def to_json(self) -> dict[str, Any]:
        calibrated = self.calibration is not None
        return {
            "calibration": self.calibration,
            "ece_before": calibration_error(self.before),
            "ece_after": calibration_error(self.after) if calibrated else None,
            "reliability": {"before": list(self.before), "after": list(self.after) if calibrated else None},
            "rejection": list(self.rejection) if calibrated else None,
            "sets": list(self.sets) if calibrated else None,
            "coverage_90": next((row["held"] for row in self.sets if row["coverage"] == 0.9), None),
            "set_size_90": next((row["size"] for row in self.sets if row["coverage"] == 0.9), None),
        }


def reliability(confidence: Floats, right: Flags) -> tuple[dict[str, Any], ...]:
    """By bins of confidence (N,): how sure the pixels in it are on average, what share is right, and how many."""
    at = np.clip((confidence.astype(np.float64) * BINS).astype(np.int64), 0, BINS - 1)
    count = np.bincount(at, minlength=BINS)
    sure, hits = (np.bincount(at, weights=v, minlength=BINS) / np.maximum(count, 1) for v in (confidence, right))
    return tuple(
        {
            "from": k / BINS,
            "to": (k + 1) / BINS,
            "confidence": float(sure[k]) if count[k] else None,
            "accuracy": float(hits[k]) if count[k] else None,
            "count": int(count[k]),
        }
        for k in range(BINS)
    )


def calibration_error(table: tuple[dict[str, Any], ...]) -> float:
    """Expected calibration error: how far confidence and accuracy are apart, over the bins by their pixels."""
    total = sum(row["count"] for row in table)
    return float(sum(r["count"] * abs(r["confidence"] - r["accuracy"]) for r in table if r["count"]) / total)


def rejection_table(confidence: Floats, right: Flags) -> tuple[dict[str, Any], ...]:
    """What is kept if pixels (N,) below a threshold are called unsure, and how good that is; None: nothing is kept."""
    rows = []
    for threshold in THRESHOLDS:
        kept = confidence >= threshold
        accuracy = float(right[kept].mean()) if kept.any() else None
        rows.append({"threshold": threshold, "kept": float(kept.mean()), "accuracy": accuracy})
    return tuple(rows)


@dataclass(frozen=True)
class Scores:
    """Overall accuracy, average accuracy and Cohen's kappa in percent, per class, and the confusion."""

    oa: float
    aa: float
    kappa: float
    per_class: tuple[ClassScore, ...]
    confusion: npt.NDArray[np.int64]  # (n, n): rows are the truth, columns what was predicted
    trust: ConfidenceReport | None = None  # where confidence was looked at

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
        } | ({} if self.trust is None else self.trust.to_json())


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
