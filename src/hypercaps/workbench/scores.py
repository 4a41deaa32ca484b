"""Scores for the page, from the metrics of a run: the same figures, by class number."""

from __future__ import annotations

from typing import Any

import numpy as np

from hypercaps.data.labels import Legend
from hypercaps.inference.run_metrics import Bounds, RunMetrics
from hypercaps.report.wording import one_area_text, partly_seen_text, split_text, too_few_text, untested_text


def score_json(metrics: RunMetrics, legend: Legend) -> dict[str, Any] | None:
    """Accuracies in percent; None: nothing was scored."""
    if metrics.oa is None:
        return None
    numbers = legend.labels.tolist()
    confusion = np.array(metrics.confusion, dtype=np.int64).reshape(len(numbers), len(numbers))
    about = (too_few_text, untested_text, one_area_text, partly_seen_text)
    notes = [*(text(metrics) for text in about), metrics.distances]
    return {
        "split": split_text(metrics),
        "notes": [text for text in notes if text],
        "leakage": metrics.leakage,
        "test_pixels": metrics.n_test,
        "oa": _estimate(metrics.oa, metrics.oa_interval),
        "aa": _estimate(metrics.aa, metrics.aa_interval),
        "kappa": _estimate(metrics.kappa, metrics.kappa_interval),
        "classes": [_class_row(number, confusion, place) for place, number in enumerate(numbers)],
        "confusion": {"ids": numbers, "counts": confusion.tolist()},
        "reliability": None if metrics.confidence is None else metrics.confidence.to_json().get("reliability"),
    }


def _estimate(value: float | None, bounds: Bounds | None) -> dict[str, float | None] | None:
    if value is None:
        return None
    low, high = bounds or (None, None)
    return {"value": value, "low": low, "high": high}


def _class_row(number: int, confusion: np.ndarray[Any, np.dtype[np.int64]], place: int) -> dict[str, Any]:
    right = int(confusion[place, place])
    tested, predicted = int(confusion[place].sum()), int(confusion[:, place].sum())
    return {
        "id": number,
        "f1": 200.0 * right / (tested + predicted) if tested else None,
        "users": 100.0 * right / predicted if tested and predicted else None,
        "producers": 100.0 * right / tested if tested else None,
        "tested": tested,
    }
