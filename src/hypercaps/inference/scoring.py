"""Pixels whose class is known, scored just as a map shows them: to calibrate a model, and to say how good it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.inference.calibration import MOST_PIXELS, Calibration, Positions, fit_calibration
from hypercaps.inference.metrics import COVERAGES, ConfidenceReport, Scores, rejection_table, reliability, score
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import WINDOW, Mask, OnProgress, map_windows, windows_of


def calibrate(
    model: TrainedModel, scene: Scene, labels: Labels, val: npt.NDArray[np.integer[Any]]
) -> Calibration | None:
    """How likely classes are at their scores, from validation pixels (flat indices); None if there are none."""
    if val.size == 0:
        return None
    if val.size > MOST_PIXELS:
        val = np.random.default_rng(0).choice(val, MOST_PIXELS, replace=False)
    wanted = np.zeros(labels.shape, dtype=bool)
    wanted.ravel()[val] = True
    scores, truth = zip(*_scored(model, scene, labels, wanted), strict=True)
    return fit_calibration(np.concatenate(scores), np.concatenate(truth))


def compare(
    model: TrainedModel, scene: Scene, labels: Labels, wanted: Mask, on_progress: OnProgress | None = None
) -> Scores:
    """How good classes and confidence are on the wanted pixels (rows, columns)."""
    columns: list[list[npt.NDArray[Any]]] = []  # of each window; the scores themselves are not kept
    for said, true in _scored(model, scene, labels, wanted, on_progress):
        columns.append([true, said.argmax(axis=1), said.max(axis=1)])
        if model.calibration is not None:
            likely = model.calibration(said)
            held = [model.calibration.covers(likely, true, coverage) for coverage in COVERAGES]
            sizes = [model.calibration.sets(likely, coverage) for coverage in COVERAGES]
            columns[-1] += [likely.max(axis=1), np.stack(held, axis=1), np.stack(sizes, axis=1)]  # (N, 4) both
    truth, winner, raw, *calibrated = (np.concatenate(column) for column in zip(*columns, strict=True))
    right = truth == winner
    trust = ConfidenceReport(reliability(raw, right))
    if model.calibration is not None:
        sure, *of_sets = calibrated
        rows = zip(COVERAGES, *(column.mean(axis=0).tolist() for column in of_sets), strict=True)
        trust = replace(
            trust,
            calibration=model.calibration.kind,
            after=reliability(sure, right),
            rejection=rejection_table(sure, right),
            sets=tuple({"coverage": coverage, "held": held, "size": size} for coverage, held, size in rows),
        )
    numbers = model.legend.labels
    return replace(score(numbers[truth], numbers[winner], model.legend), trust=trust)


def _scored(
    model: TrainedModel, scene: Scene, labels: Labels, wanted: Mask, on_progress: OnProgress | None = None
) -> Iterator[tuple[npt.NDArray[np.float32], Positions]]:
    """Scores (N, n) as the network says them and positions (N,) of the true classes, window by window."""
    windows = windows_of(scene, WINDOW)
    for part in map_windows(model, scene, windows, only=wanted, with_scores=True, raw=True, on_progress=on_progress):
        assert part.scores is not None
        known = part.classes > 0
        truth = labels.array[part.at.rows, part.at.cols][known]
        yield part.scores[known], np.searchsorted(model.legend.labels, truth)
