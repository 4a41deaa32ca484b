"""Classify labelled pixels as a map does, to calibrate a model and to score it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.inference.calibration import (
    FITS,
    MOST_PIXELS,
    Calibration,
    Positions,
    conformity_table,
    cross_calibrate,
    fit_calibration,
)
from hypercaps.inference.intervals import Interval, score_intervals
from hypercaps.inference.known_scores import KnownScores
from hypercaps.inference.metrics import COVERAGES, ConfidenceReport, Scores, SetRow, rejection_table, reliability, score
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import WINDOW, Mask, OnProgress, WindowOutputs, map_windows, windows_of


def calibrate(
    model: TrainedModel,
    scene: Scene,
    labels: Labels,
    val: npt.NDArray[np.integer[Any]],
    known: KnownScores | None = None,
) -> Calibration | None:
    """Fit a calibration to the validation pixels (flat indices); None if there are none."""
    if val.size == 0:
        return None
    if val.size > MOST_PIXELS:
        val = np.random.default_rng(0).choice(val, MOST_PIXELS, replace=False)
    mask = np.zeros(labels.shape, dtype=bool)
    mask.ravel()[val] = True
    scores, truth = zip(*_classify(model, scene, labels, mask, known=known), strict=True)
    return fit_calibration(np.concatenate(scores), np.concatenate(truth))


def compare(
    model: TrainedModel,
    scene: Scene,
    labels: Labels,
    mask: Mask,
    on_progress: OnProgress | None = None,
    known: KnownScores | None = None,
) -> Scores:
    """Score classes and confidence on the labelled pixels of ``mask`` (rows, columns)."""
    columns: list[list[npt.NDArray[Any]]] = []  # of each window; the scores themselves are not kept
    for raw_scores, true in _classify(model, scene, labels, mask, on_progress, known):
        columns.append([true, raw_scores.argmax(axis=1), raw_scores.max(axis=1)])
        if model.calibration is not None:
            probabilities = model.calibration(raw_scores)
            held = [model.calibration.covers(probabilities, true, coverage) for coverage in COVERAGES]
            sizes = [model.calibration.sets(probabilities, coverage) for coverage in COVERAGES]
            columns[-1] += [probabilities.max(axis=1), np.stack(held, axis=1), np.stack(sizes, axis=1)]  # (N, 4) both
    truth, predicted, raw, *calibrated = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _score_columns(model, truth, predicted, raw, calibrated)


def score_out_of_fold(model: TrainedModel, raw: npt.NDArray[np.float32], truth: Positions, fold: Positions) -> Scores:
    """Score out-of-fold predictions: raw scores (N, n), true class indices (N,) and the fold of each pixel (N,).

    Confidence is judged as calibrated without the pixel's own fold; ``model`` is the final one, with its calibration.
    """
    columns: list[npt.NDArray[Any]] = []
    if model.calibration is not None:
        probabilities = cross_calibrate(raw, truth, fold, FITS[model.calibration.kind])
        columns = [probabilities.max(axis=1), *_cross_sets(probabilities, truth, fold)]
    return _score_columns(model, truth, raw.argmax(axis=1), raw.max(axis=1), columns)


def _cross_sets(
    probabilities: npt.NDArray[np.float32], truth: Positions, fold: Positions
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint8]]:
    """Whether each set includes the true class, and its size, (N, coverages) both, by thresholds of the other folds."""
    held = np.empty((len(truth), len(COVERAGES)), dtype=bool)
    sizes = np.empty(held.shape, dtype=np.uint8)
    of_truth = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    for k in np.unique(fold):
        out = fold == k
        others = ~out if not out.all() else out
        table = Calibration(1.0, int(others.sum()), conformity=conformity_table(of_truth[others]))
        for column, coverage in enumerate(COVERAGES):
            held[out, column] = table.covers(probabilities[out], truth[out], coverage)
            sizes[out, column] = table.sets(probabilities[out], coverage)
    return held, sizes


def with_intervals(scores: Scores, units: npt.NDArray[np.integer[Any]]) -> Scores:
    """The scores with 95 % intervals; ``units`` (n,) is the number of units with test pixels of each class."""
    intervals = score_intervals(scores.confusion, units)
    per_class = tuple(
        replace(row, units=int(count), interval=_bounds(producers), users_interval=_bounds(users))
        for row, count, producers, users in zip(
            scores.per_class, units, intervals.per_class, intervals.users, strict=True
        )
    )
    oa, aa, kappa = map(_bounds, (intervals.oa, intervals.aa, intervals.kappa))
    return replace(scores, per_class=per_class, oa_interval=oa, aa_interval=aa, kappa_interval=kappa)


def _bounds(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.low, interval.high)


def _score_columns(
    model: TrainedModel,
    truth: Positions,
    predicted: Positions,
    raw: npt.NDArray[np.float32],
    calibrated: list[npt.NDArray[Any]],
) -> Scores:
    """Scores of pixels (N,) from their classes and confidences: raw and, with their sets, calibrated."""
    right = truth == predicted
    report = ConfidenceReport(reliability(raw, right))
    if model.calibration is not None:
        confidence, *of_sets = calibrated
        rows = zip(COVERAGES, *(column.mean(axis=0).tolist() for column in of_sets), strict=True)
        report = replace(
            report,
            calibration=model.calibration.kind,
            after=reliability(confidence, right),
            rejection=rejection_table(confidence, right),
            sets=tuple(SetRow(*row) for row in rows),
            pixels=model.calibration.pixels,
        )
    labels_of = model.legend.labels
    return replace(score(labels_of[truth], labels_of[predicted], model.legend), confidence=report)


def pixel_scores(
    model: TrainedModel, scene: Scene, pixels: npt.NDArray[np.int64], on_progress: OnProgress | None = None
) -> npt.NDArray[np.float32]:
    """Raw scores (N, n) of valid pixels, flat indices in ascending order, classified as a map does."""
    mask = np.zeros(scene.shape[:2], dtype=bool)
    mask.ravel()[pixels] = True
    scores = np.full((pixels.size, len(model.legend)), np.nan, dtype=np.float32)
    outputs = WindowOutputs(with_scores=True, raw=True)
    for part in map_windows(model, scene, windows_of(scene, WINDOW), outputs, only=mask, on_progress=on_progress):
        assert part.scores is not None
        rows, cols = np.nonzero(part.classes)
        flat = (rows + part.at.r0) * scene.cols + cols + part.at.c0
        scores[np.searchsorted(pixels, flat)] = part.scores[rows, cols]
    return scores


def _classify(
    model: TrainedModel,
    scene: Scene,
    labels: Labels,
    mask: Mask,
    on_progress: OnProgress | None = None,
    known: KnownScores | None = None,
) -> Iterator[tuple[npt.NDArray[np.float32], Positions]]:
    """Raw scores (N, n) and class indices (N,) of the pixels of ``mask``, window by window."""
    outputs = WindowOutputs(with_scores=True, raw=True)
    windows = windows_of(scene, WINDOW)
    for part in map_windows(model, scene, windows, outputs, only=mask, on_progress=on_progress, known=known):
        assert part.scores is not None
        classified = part.classes > 0
        truth = labels.array[part.at.rows, part.at.cols][classified]
        yield part.scores[classified], np.searchsorted(model.legend.labels, truth)
