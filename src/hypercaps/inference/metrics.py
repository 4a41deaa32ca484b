"""Accuracy and reliability of a classification: numpy arrays in, frozen dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.display import Displayed
from hypercaps.data.labels import Legend

BINS = 15  # of confidence, in the reliability table and the expected calibration error
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of the rejection table
COVERAGES = (0.8, 0.9, 0.95, 0.99)  # of the table of conformal sets
Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]
Json = Mapping[str, Any]


@dataclass(frozen=True)
class ClassScore:
    """Producer's accuracy of one class, in percent."""

    label: int
    name: str
    accuracy: float | None  # None: no test pixel of this class
    test: int  # test pixels
    interval: tuple[float, float] | None = None  # 95 %, with spatial units as the sample
    units: int | None = None  # spatial units with test pixels of this class
    users_interval: tuple[float, float] | None = None  # 95 %, of the user's accuracy

    def to_json(self) -> dict[str, object]:
        """Without interval and units where they are not known, as older versions wrote it."""
        return {name: value for name, value in vars(self).items() if value is not None or name == "accuracy"}

    @classmethod
    def from_json(cls, row: Json) -> ClassScore:
        bounds = {key: tuple(row[key]) for key in ("interval", "users_interval") if row.get(key) is not None}
        return cls(**{**row, **bounds})


@dataclass(frozen=True)
class ReliabilityBin:
    """Test pixels whose confidence lies in one bin; shares from 0 to 1."""

    lower: float
    upper: float
    confidence: float | None  # mean; None: the bin is empty
    accuracy: float | None
    count: int

    def to_json(self) -> Json:
        figures = vars(self).copy()
        return {"from": figures.pop("lower"), "to": figures.pop("upper"), **figures}

    @classmethod
    def from_json(cls, row: Json) -> ReliabilityBin:
        return cls(row["from"], row["to"], row["confidence"], row["accuracy"], row["count"])


@dataclass(frozen=True)
class RejectionRow:
    """What remains if test pixels below a confidence are rejected; shares from 0 to 1."""

    threshold: float
    kept: float
    accuracy: float | None  # of the pixels kept; None: none is kept


@dataclass(frozen=True)
class SetRow:
    """Conformal sets at one coverage."""

    coverage: float
    held: float  # share of sets that include the true class
    size: float  # mean number of classes


@dataclass(frozen=True)
class ConfidenceReport:
    """How well confidence agrees with accuracy on the test set; shares from 0 to 1."""

    before: tuple[ReliabilityBin, ...]  # of the network's own scores
    # Its kind; "none": the scores were kept; None: there were no pixels to calibrate on and the following are empty
    calibration: str | None = None
    after: tuple[ReliabilityBin, ...] = ()
    rejection: tuple[RejectionRow, ...] = ()  # at THRESHOLDS
    sets: tuple[SetRow, ...] = ()  # at COVERAGES
    pixels: int | None = None  # that the calibration was fitted to; None: unknown, or not calibrated

    @property
    def ece_before(self) -> float:
        return calibration_error(self.before)

    @property
    def ece_after(self) -> float | None:
        return None if self.calibration is None else calibration_error(self.after)

    def to_json(self) -> dict[str, object]:
        calibrated = self.calibration is not None
        at_90 = next((row for row in self.sets if row.coverage == 0.9), None)
        after = [row.to_json() for row in self.after] if calibrated else None
        return {
            "calibration": self.calibration,
            "calibration_pixels": self.pixels,
            "ece_before": self.ece_before,
            "ece_after": self.ece_after,
            "reliability": {"before": [row.to_json() for row in self.before], "after": after},
            "rejection": [vars(row) for row in self.rejection] if calibrated else None,
            "sets": [vars(row) for row in self.sets] if calibrated else None,
            "coverage_90": None if at_90 is None else at_90.held,
            "set_size_90": None if at_90 is None else at_90.size,
        }

    @classmethod
    def from_json(cls, figures: Json) -> ConfidenceReport:
        before, after = figures["reliability"]["before"], figures["reliability"]["after"]
        return cls(
            tuple(ReliabilityBin.from_json(row) for row in before),
            figures["calibration"],
            tuple(ReliabilityBin.from_json(row) for row in after or ()),
            tuple(RejectionRow(**row) for row in figures["rejection"] or ()),
            tuple(SetRow(**row) for row in figures["sets"] or ()),
            figures.get("calibration_pixels"),
        )


def reliability(confidence: Floats, right: Flags) -> tuple[ReliabilityBin, ...]:
    """Mean confidence and accuracy of pixels (N,) by bins of their confidence."""
    at = np.clip((confidence.astype(np.float64) * BINS).astype(np.int64), 0, BINS - 1)
    count = np.bincount(at, minlength=BINS)
    sure, hits = (np.bincount(at, weights=v, minlength=BINS) / np.maximum(count, 1) for v in (confidence, right))
    return tuple(
        ReliabilityBin(
            k / BINS,
            (k + 1) / BINS,
            float(sure[k]) if count[k] else None,
            float(hits[k]) if count[k] else None,
            int(count[k]),
        )
        for k in range(BINS)
    )


def calibration_error(table: tuple[ReliabilityBin, ...]) -> float:
    """Expected calibration error: mean difference of confidence and accuracy over the bins, weighted by pixels."""
    total = sum(row.count for row in table)
    gaps = (
        row.count * abs(row.confidence - row.accuracy)
        for row in table
        if row.confidence is not None and row.accuracy is not None
    )
    return float(sum(gaps) / total)


def rejection_table(confidence: Floats, right: Flags) -> tuple[RejectionRow, ...]:
    """Share and accuracy of the pixels (N,) that are kept at each of THRESHOLDS."""
    rows = []
    for threshold in THRESHOLDS:
        is_kept = confidence >= threshold
        accuracy = float(right[is_kept].mean()) if is_kept.any() else None
        rows.append(RejectionRow(threshold, float(is_kept.mean()), accuracy))
    return tuple(rows)


@dataclass(frozen=True, repr=False)
class Scores(Displayed):
    """Overall accuracy, average accuracy and Cohen's kappa in percent, accuracy by class, and confusion matrix.

    Parameters
    ----------
    oa, aa, kappa : float
        Overall accuracy, average (producer's) accuracy of the classes, and Cohen's kappa, in percent.
    per_class : tuple of ClassScore
        ``label``, ``name``, ``accuracy`` in percent, number of ``test`` pixels, and 95 % ``interval`` of each class.
    confusion : (n, n) int64 array
        Test pixels by true class (row) and predicted class (column), in the order of ``per_class``.
    confidence : ConfidenceReport, optional
        How well confidence agrees with accuracy; None: it was not evaluated.
    oa_interval, aa_interval, kappa_interval : (float, float), optional
        95 % intervals, with spatial units as the sample.

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import ConvCapsClassifier
    >>> cube = np.random.default_rng(0).normal(size=(20, 20, 8)) + 3 * (np.arange(20)[:, None, None] // 10)
    >>> scores = ConvCapsClassifier(method="lda").fit(cube, 1 + np.arange(400).reshape(20, 20) // 200).scores_
    >>> scores.oa > 95, scores.confusion.shape
    (True, (2, 2))
    """

    oa: float
    aa: float
    kappa: float
    per_class: tuple[ClassScore, ...]
    confusion: npt.NDArray[np.int64]  # (n, n): true class by row, predicted class by column
    confidence: ConfidenceReport | None = None  # None: confidence was not evaluated
    oa_interval: tuple[float, float] | None = None  # 95 %
    aa_interval: tuple[float, float] | None = None
    kappa_interval: tuple[float, float] | None = None

    def __repr__(self) -> str:
        figures = (
            f"{name} {value:.1f} %{'' if interval is None else f' ({interval[0]:.1f} to {interval[1]:.1f})'}"
            for name, value, interval in (
                ("OA", self.oa, self.oa_interval),
                ("AA", self.aa, self.aa_interval),
                ("kappa", self.kappa, self.kappa_interval),
            )
        )
        return f"<Scores: {', '.join(figures)}; {self.n_test:,} test pixels, {len(self.per_class)} classes>"

    @property
    def n_test(self) -> int:
        """Number of test pixels."""
        return int(self.confusion.sum())

    def to_json(self) -> dict[str, object]:
        """The scores as they stand in metrics.json."""
        return {
            "oa": self.oa,
            "aa": self.aa,
            "kappa": self.kappa,
            "oa_interval": self.oa_interval,
            "aa_interval": self.aa_interval,
            "kappa_interval": self.kappa_interval,
            "per_class": [score.to_json() for score in self.per_class],
            "confusion": self.confusion.tolist(),
        } | ({} if self.confidence is None else self.confidence.to_json())


def confusion_matrix(
    truth: npt.NDArray[np.integer[Any]], predicted: npt.NDArray[np.integer[Any]], legend: Legend
) -> npt.NDArray[np.int64]:
    """Count test pixels by true class (row) and predicted class (column), in the legend's order."""
    labels = legend.labels
    n = len(labels)
    for what, values in (("true", truth), ("predicted", predicted)):
        unknown = np.setdiff1d(values, labels)
        if unknown.size:
            raise ValueError(f"{what} labels {unknown.tolist()} are not in the legend {labels.tolist()}")
    return confusion_counts(np.searchsorted(labels, truth), np.searchsorted(labels, predicted), n)


def confusion_counts(
    truth: npt.NDArray[np.integer[Any]], predicted: npt.NDArray[np.integer[Any]], classes: int
) -> npt.NDArray[np.int64]:
    """The same from class indices (N,) each."""
    pairs = truth.astype(np.int64) * classes + predicted
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes).astype(np.int64)


def score(truth: npt.NDArray[np.integer[Any]], predicted: npt.NDArray[np.integer[Any]], legend: Legend) -> Scores:
    """Compare true and predicted labels of test pixels, (N,) each. Classes without test pixels don't count in AA."""
    if truth.shape != predicted.shape or truth.size == 0:
        raise ValueError(f"{truth.shape} true and {predicted.shape} predicted labels can't be compared")
    confusion = confusion_matrix(truth, predicted, legend)
    total = confusion.sum()
    of_class = confusion.sum(axis=1)  # (n,) test pixels
    hits = confusion.diagonal()
    observed = hits.sum() / total
    by_chance = float((of_class * confusion.sum(axis=0)).sum()) / float(total) ** 2
    # With a single class that is always right, agreement by chance is complete: kappa is defined as 1.
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
