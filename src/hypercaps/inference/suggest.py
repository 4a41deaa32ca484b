"""Where to label next: pixels of which a model is unsure, spread over the scene and over the classes.

A pixel is unsure by its margin, the difference between its two highest scores. The most unsure pixels of a map lie side
by side, along the same few borders, and ten labels there teach little more than one. So pixels are chosen one after
another, class after class in turn, each time the one with the largest product of how unsure it is and how far it lies
from those chosen and from those labelled already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Legend, LegendEntry
from hypercaps.errors import SceneError
from hypercaps.inference.predict import MappedWindow

KEPT = 4000  # candidates of each class: more are thinned, so that memory does not grow with the scene
_KEPT_OF_WINDOW = 400  # of each class, in one window
_FAR = 0.1  # of the longer side of what was looked at: being further away than this is no longer better

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Suggestion:
    """A pixel that is worth a label."""

    rank: int  # from 1, the most useful first
    row: int
    col: int
    first: LegendEntry  # what the model takes it for
    second: LegendEntry  # and what it may be
    confidence: float  # in the first
    margin: float  # score of the first less that of the second


@dataclass(frozen=True)
class _Candidates:
    """Pixels of one class among which to choose."""

    rows: Whole  # (N,)
    cols: Whole
    second: Whole  # number of the class that came second
    margin: Floats  # (N,) the highest score less the second
    confidence: Floats  # (N,)

    def __getitem__(self, which: Any) -> _Candidates:
        return _Candidates(*(getattr(self, field.name)[which] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def joined(parts: Sequence[_Candidates]) -> _Candidates:
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
    """Up to ``n`` pixels to label next, best first, from the windows of a map with its raw scores.

    Calibrated ones would not do: of the most unsure pixels many have the same. Pixels ``labelled`` (rows, columns)
    already are not suggested, nor, if it can be helped, their neighbours.
    """
    if len(legend) < 2:
        raise SceneError("the model has one class only: there is nothing to be unsure of")
    kept: list[_Candidates] = [_none() for _ in legend]
    near: list[Whole] = []  # labelled pixels, (N, 2)
    box = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).max, 0, 0])
    for window in windows:
        at = window.at
        box = np.concatenate([np.minimum(box[:2], (at.r0, at.c0)), np.maximum(box[2:], (at.r1, at.c1))])
        known = None if labelled is None else labelled[at.rows, at.cols]
        if known is not None:
            near.append(np.argwhere(known) + np.array([at.r0, at.c0]))
        for number, found in enumerate(_of_window(window, known, len(legend))):
            if len(found):
                kept[number] = _thinned(_Candidates.joined([kept[number], found]), KEPT)
    if not any(map(len, kept)):
        raise SceneError(f"scene {name!r} has no pixel left to suggest: all are labelled or without data")
    far = max(1.0, _FAR * float((box[2:] - box[:2]).max()))
    return _chosen(kept, legend, n, np.concatenate(near) if near else np.empty((0, 2), dtype=np.int64), far)


def _none() -> _Candidates:
    empty = np.empty(0, dtype=np.int64)
    return _Candidates(empty, empty, empty, np.empty(0), np.empty(0))


def _of_window(window: MappedWindow, labelled: npt.NDArray[np.bool_] | None, classes: int) -> list[_Candidates]:
    """The candidates of each class in a window."""
    if window.scores is None:
        raise ValueError("windows are needed with the scores of all classes")
    wanted = ~np.isnan(window.scores[:, :, 0])
    if labelled is not None:
        wanted &= ~labelled
    rows, cols = np.nonzero(wanted)
    scores = window.scores[rows, cols]  # (N, n)
    second, first = np.argsort(scores, axis=1, kind="stable")[:, -2:].T
    # The map's own class where two scores are the same.
    top = scores.argmax(axis=1)
    second, first = np.where(top == first, second, first), top
    best = np.take_along_axis(scores, np.stack([first, second], axis=1), axis=1).astype(np.float64)
    margin, sure = best[:, 0] - best[:, 1], window.confidence[rows, cols].astype(np.float64)
    found = _Candidates(rows + window.at.r0, cols + window.at.c0, second.astype(np.int64), margin, sure)
    return [_thinned(found[first == number], _KEPT_OF_WINDOW) for number in range(classes)]


def _thinned(found: _Candidates, most: int) -> _Candidates:
    """The most unsure of each neighbourhood, as large as needed for ``most`` of them to be left."""
    side = 1
    while len(found) > most:
        side *= 2
        order = np.lexsort((found.cols, found.rows, found.margin))
        cells = np.stack([found.rows[order] // side, found.cols[order] // side], axis=1)
        _, first = np.unique(cells, axis=0, return_index=True)  # of each cell the most unsure
        found = found[np.sort(order[first])]
    return found


def _chosen(kept: list[_Candidates], legend: Legend, n: int, near: Whole, far: float) -> list[Suggestion]:
    # How far each candidate is from all that is chosen or labelled, at most ``far``.
    distances = [_distances(found, near, far) for found in kept]
    unsure = [1.0 - np.clip(found.margin, 0.0, 1.0) for found in kept]
    chosen: list[Suggestion] = []
    while len(chosen) < n:
        # Each round takes one of every class that has any left, the most unsure class first.
        worth = [u * d for u, d in zip(unsure, distances, strict=True)]
        order = sorted(
            (number for number in range(len(kept)) if worth[number].size and worth[number].max() > 0),
            key=lambda number: -float(worth[number].max()),
        )
        if not order:
            break
        for number in order[: n - len(chosen)]:
            value = unsure[number] * distances[number]
            best = int(value.argmax())
            if value[best] <= 0:  # another class took all places around
                continue
            found = kept[number]
            row, col = int(found.rows[best]), int(found.cols[best])
            first, second = legend.entries[number], legend.entries[int(found.second[best])]
            confidence, margin = float(found.confidence[best]), float(found.margin[best])
            chosen.append(Suggestion(len(chosen) + 1, row, col, first, second, confidence, margin))
            here = np.array([[row, col]])
            distances = [np.minimum(d, _distances(f, here, far)) for d, f in zip(distances, kept, strict=True)]
    return chosen


def _distances(found: _Candidates, points: Whole, far: float) -> Floats:
    """From each candidate to the nearest of ``points`` (N, 2), at most ``far``, as a share of it: (M,)"""
    nearest = np.full(len(found), far * far)
    if not len(found):
        return nearest
    # Only points that can be nearer than ``far``: squares of that side, and those around.
    cells = np.stack([found.rows, found.cols], axis=1) / far
    by_cell: dict[tuple[int, int], list[Whole]] = {}
    for point, cell in zip(points, np.floor(points / far).astype(np.int64).tolist(), strict=True):
        by_cell.setdefault((cell[0], cell[1]), []).append(point)
    of_cell = np.floor(cells).astype(np.int64)
    for row, col in np.unique(of_cell, axis=0).tolist():
        around = [p for r in (-1, 0, 1) for c in (-1, 0, 1) for p in by_cell.get((row + r, col + c), ())]
        if not around:
            continue
        mine = np.flatnonzero((of_cell == (row, col)).all(axis=1))
        there = np.array(around)  # (P, 2)
        squares = (found.rows[mine, None] - there[:, 0]) ** 2 + (found.cols[mine, None] - there[:, 1]) ** 2
        nearest[mine] = np.minimum(nearest[mine], squares.min(axis=1))
    return np.asarray(np.sqrt(nearest) / far)
