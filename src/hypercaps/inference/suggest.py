"""Suggest pixels to label next: uncertain ones, spread over the scene and over the classes.

A pixel is uncertain if its margin, the difference between its two highest scores, is small. The most uncertain pixels
lie side by side along the same few borders, where ten labels add little more information than one. So pixels are chosen
one after another, class by class in turn, each time the one with the largest product of uncertainty and distance to the
nearest chosen or labelled pixel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Legend, Suggestion
from hypercaps.errors import SceneError
from hypercaps.inference.predict import MappedWindow

KEPT = 4000  # candidates of each class: more are thinned, so that memory does not grow with the scene
_KEPT_OF_WINDOW = 400  # of each class, in one window
_FAR = 0.1  # of the longer side of the mapped area: larger distances count as this one

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Candidates:
    """N pixels of one predicted class."""

    rows: Integers  # (N,)
    cols: Integers  # (N,)
    second: Integers  # (N,) number of the class with the second-highest score
    margin: Floats  # (N,) the highest score minus the second
    confidence: Floats  # (N,)

    def __getitem__(self, which: Any) -> _Candidates:
        return _Candidates(*(getattr(self, field.name)[which] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def empty() -> _Candidates:
        none = np.empty(0, dtype=np.int64)
        return _Candidates(none, none, none, np.empty(0), np.empty(0))

    @staticmethod
    def concatenate(parts: Sequence[_Candidates]) -> _Candidates:
        names = [field.name for field in fields(_Candidates)]
        return _Candidates(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def suggest(
    windows: Iterable[MappedWindow],
    legend: Legend,
    n: int,
    *,
    labelled: npt.NDArray[np.bool_] | None = None,
    name: str = "scene",
) -> list[Suggestion]:
    """Choose up to ``n`` pixels to label next, best first, from the windows of a map with raw scores.

    Calibrated scores would not do: many of the most uncertain pixels have the same one. Pixels that are ``labelled``
    (rows, columns) are not suggested, and their neighbours only if nothing else is left.
    """
    if len(legend) < 2:
        raise SceneError("the model has only one class: no pixel can be uncertain")
    candidates = [_Candidates.empty() for _ in legend]
    labelled_pixels: list[Integers] = [np.empty((0, 2), dtype=np.int64)]
    box = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).max, 0, 0])  # of the mapped area: r0, c0, r1, c1
    for window in windows:
        at = window.at
        box = np.concatenate([np.minimum(box[:2], (at.r0, at.c0)), np.maximum(box[2:], (at.r1, at.c1))])
        labelled_here = None if labelled is None else labelled[at.rows, at.cols]
        if labelled_here is not None:
            labelled_pixels.append(np.argwhere(labelled_here) + np.array([at.r0, at.c0]))
        for number, more in enumerate(_candidates_of_window(window, labelled_here, len(legend))):
            if len(more):
                candidates[number] = _thinned(_Candidates.concatenate([candidates[number], more]), KEPT)
    if not any(map(len, candidates)):
        raise SceneError(f"scene {name!r} has no pixel left to suggest: all are labelled or without data")
    far = max(1.0, _FAR * float((box[2:] - box[:2]).max()))
    return _choose(candidates, legend, n, np.concatenate(labelled_pixels), far)


def _candidates_of_window(
    window: MappedWindow, labelled: npt.NDArray[np.bool_] | None, classes: int
) -> list[_Candidates]:
    """The unlabelled pixels of a window by predicted class, thinned."""
    if window.scores is None:
        raise ValueError("windows are needed with the scores of all classes")
    usable = ~np.isnan(window.scores[:, :, 0])
    if labelled is not None:
        usable &= ~labelled
    rows, cols = np.nonzero(usable)
    scores = window.scores[rows, cols]  # (N, n)
    second, first = np.argsort(scores, axis=1, kind="stable")[:, -2:].T
    # Of equal scores the map takes the first class.
    top = scores.argmax(axis=1)
    second, first = np.where(top == first, second, first), top
    best = np.take_along_axis(scores, np.stack([first, second], axis=1), axis=1).astype(np.float64)
    margin, confidence = best[:, 0] - best[:, 1], window.confidence[rows, cols].astype(np.float64)
    pixels = _Candidates(rows + window.at.r0, cols + window.at.c0, second.astype(np.int64), margin, confidence)
    return [_thinned(pixels[first == number], _KEPT_OF_WINDOW) for number in range(classes)]


def _thinned(candidates: _Candidates, most: int) -> _Candidates:
    """Keep the most uncertain candidate of each grid cell; cells are doubled until at most ``most`` are left."""
    side = 1
    while len(candidates) > most:
        side *= 2
        order = np.lexsort((candidates.cols, candidates.rows, candidates.margin))
        cells = np.stack([candidates.rows[order] // side, candidates.cols[order] // side], axis=1)
        _, first = np.unique(cells, axis=0, return_index=True)
        candidates = candidates[np.sort(order[first])]
    return candidates


def _choose(candidates: list[_Candidates], legend: Legend, n: int, labelled: Integers, far: float) -> list[Suggestion]:
    """Choose up to ``n`` candidates, in rounds of one of every class, the most useful class first."""
    distances = [_distances(own, labelled, far) for own in candidates]  # to the nearest chosen or labelled pixel
    uncertainty = [1.0 - np.clip(own.margin, 0.0, 1.0) for own in candidates]
    chosen: list[Suggestion] = []
    while len(chosen) < n:
        values = [u * d for u, d in zip(uncertainty, distances, strict=True)]
        highest = {number: float(value.max()) for number, value in enumerate(values) if value.size and value.max() > 0}
        if not highest:
            break
        for number in sorted(highest, key=lambda number: -highest[number])[: n - len(chosen)]:
            value = uncertainty[number] * distances[number]
            best = int(value.argmax())
            if value[best] <= 0:  # the choices of other classes in this round left nothing
                continue
            own = candidates[number]
            row, col, second = int(own.rows[best]), int(own.cols[best]), legend.entries[int(own.second[best])]
            certainty = float(own.confidence[best]), float(own.margin[best])
            chosen.append(Suggestion(len(chosen) + 1, row, col, legend.entries[number], second, *certainty))
            pixel = np.array([[row, col]])
            distances = [np.minimum(d, _distances(c, pixel, far)) for d, c in zip(distances, candidates, strict=True)]
    return chosen


def _distances(candidates: _Candidates, points: Integers, far: float) -> Floats:
    """Distance (M,) from each candidate to the nearest of ``points`` (N, 2), in units of ``far`` and at most 1."""
    nearest = np.full(len(candidates), far * far)
    if not len(candidates):
        return nearest
    # Points nearer than ``far`` lie in the same cell of a grid of that side, or in one of the eight around it.
    by_cell: dict[tuple[int, int], list[Integers]] = {}
    for point, cell in zip(points, np.floor(points / far).astype(np.int64).tolist(), strict=True):
        by_cell.setdefault((cell[0], cell[1]), []).append(point)
    cells = np.floor(np.stack([candidates.rows, candidates.cols], axis=1) / far).astype(np.int64)  # (M, 2)
    for row, col in np.unique(cells, axis=0).tolist():
        close = [p for r in (-1, 0, 1) for c in (-1, 0, 1) for p in by_cell.get((row + r, col + c), ())]
        if not close:
            continue
        own = np.flatnonzero((cells == (row, col)).all(axis=1))
        p_rows, p_cols = np.array(close).T  # (P,) each
        squares = (candidates.rows[own, None] - p_rows) ** 2 + (candidates.cols[own, None] - p_cols) ** 2
        nearest[own] = np.minimum(nearest[own], squares.min(axis=1))
    return np.asarray(np.sqrt(nearest) / far)
