"""Suggest pixels to label next: where a label would decide about the largest uncertain area.

A pixel is uncertain if its margin, the difference between its two highest scores, is small. The most uncertain single
pixels lie along borders and on ground of no class, where a label teaches little. So a pixel is worth the uncertainty of
all pixels around it that are mapped as the same class, weighted by their distance. Pixels are chosen one after another:
what lies around a chosen or labelled pixel and is mapped as its class counts less from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.compute.blas import one_blas_thread
from hypercaps.data.labels import Legend, Suggestion
from hypercaps.errors import SceneError
from hypercaps.inference.predict import MappedWindow

KEPT = 4000  # candidates of each class: more are thinned, so that memory does not grow with the scene
_KEPT_OF_WINDOW = 400  # of each class, in one window
_REACH = 0.05  # of the longer side of the mapped area: standard deviation of the weights
_GRID = 128  # cells along the longer side of the mapped area, on which uncertainty is added up
_NEAR = 2  # pixels to each side: around a pixel that stands for its cell

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
    near: Floats  # (N,) uncertainty of the class within ``_NEAR`` pixels
    mass: Floats  # (N,) uncertainty of the pixels that this one stands for

    def __getitem__(self, which: Any) -> _Candidates:
        return _Candidates(*(getattr(self, field.name)[which] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def empty() -> _Candidates:
        none = np.empty(0, dtype=np.int64)
        return _Candidates(none, none, none, *(np.empty(0) for _ in range(4)))

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
    (rows, columns) are not suggested, and what lies around them counts less.
    """
    if len(legend) < 2:
        raise SceneError("the model has only one class: no pixel can be uncertain")
    candidates = [_Candidates.empty() for _ in legend]
    known = [np.empty((0, 3), dtype=np.int64)]  # labelled pixels: row, column, number of the predicted class
    box = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).max, 0, 0])  # of the mapped area: r0, c0, r1, c1
    for window in windows:
        at = window.at
        box = np.concatenate([np.minimum(box[:2], (at.r0, at.c0)), np.maximum(box[2:], (at.r1, at.c1))])
        labelled_here = None if labelled is None else labelled[at.rows, at.cols]
        mapped = _first_and_second(window)
        if labelled_here is not None:
            rows, cols = np.nonzero(labelled_here)
            known.append(np.stack([rows + at.r0, cols + at.c0, mapped[0][rows, cols]], axis=1))
        for number, more in enumerate(_candidates_of_window(window, mapped, labelled_here, len(legend))):
            if len(more):
                candidates[number] = _thinned(_Candidates.concatenate([candidates[number], more]), KEPT)
    if not any(map(len, candidates)):
        raise SceneError(f"scene {name!r} has no pixel left to suggest: all are labelled or without data")
    with one_blas_thread():
        return _choose(candidates, legend, n, np.concatenate(known), _Grid(box))


def _first_and_second(window: MappedWindow) -> tuple[Integers, Integers]:
    """The numbers (h, w) of the classes with the highest and the second-highest score; -1: no class."""
    if window.scores is None:
        raise ValueError("windows are needed with the scores of all classes")
    scores = np.where(np.isnan(window.scores), -np.inf, window.scores)
    first = scores.argmax(axis=2)  # of equal scores the first, as in the map
    np.put_along_axis(scores, first[:, :, None], -np.inf, axis=2)
    is_valid = ~np.isnan(window.scores[:, :, 0])
    return np.where(is_valid, first, -1), np.where(is_valid, scores.argmax(axis=2), -1)


def _candidates_of_window(
    window: MappedWindow, mapped: tuple[Integers, Integers], labelled: npt.NDArray[np.bool_] | None, classes: int
) -> list[_Candidates]:
    """The unlabelled pixels of a window by predicted class, thinned."""
    assert window.scores is not None
    (first, second), at = mapped, window.at
    usable = first >= 0 if labelled is None else (first >= 0) & ~labelled
    rows, cols = np.nonzero(usable)
    first_here, second_here = first[rows, cols], second[rows, cols]
    best = window.scores[rows, cols, first_here].astype(np.float64)  # in float32 a second score of 1e-9 would be lost
    margin = best - window.scores[rows, cols, second_here]
    uncertainty = np.zeros(first.shape)
    uncertainty[rows, cols] = 1.0 - np.clip(margin, 0.0, 1.0)
    near = _near(uncertainty, first)[rows, cols]
    confidence = window.confidence[rows, cols].astype(np.float64)
    mass = uncertainty[rows, cols]
    pixels = _Candidates(rows + at.r0, cols + at.c0, second_here, margin, confidence, near, mass)
    return [_thinned(pixels[first_here == number], _KEPT_OF_WINDOW) for number in range(classes)]


def _near(uncertainty: Floats, first: Integers) -> Floats:
    """Sum (h, w) of the uncertainty of the same class within ``_NEAR`` rows and columns."""
    total = np.zeros(uncertainty.shape)
    shifts = range(-_NEAR, _NEAR + 1)
    for down, right in ((d, r) for d in shifts for r in shifts):
        here = _shifted(down), _shifted(right)
        there = _shifted(-down), _shifted(-right)
        total[here] += uncertainty[there] * (first[here] == first[there])
    return total


def _shifted(by: int) -> slice:
    """What is left of an axis that is moved by some pixels."""
    return slice(max(0, by), min(0, by) or None)


def _thinned(candidates: _Candidates, most: int) -> _Candidates:
    """Keep one candidate of each grid cell for all; cells are doubled until at most ``most`` are left."""
    side = 1
    while len(candidates) > most:
        side *= 2
        order = np.lexsort((candidates.cols, candidates.rows, candidates.margin, -candidates.near))
        cells = np.stack([candidates.rows[order] // side, candidates.cols[order] // side], axis=1)
        _, first, cell_of = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        mass = np.bincount(cell_of.ravel(), weights=candidates.mass[order]).astype(np.float64)
        candidates = replace(candidates[order[first]], mass=mass)
    return candidates


class _Grid:
    """Cells over the mapped area, and the weight of each for each other one, by rows and by columns."""

    def __init__(self, box: Integers) -> None:
        self._origin, size = box[:2], box[2:] - box[:2]
        self._side = max(1, -(-int(size.max()) // _GRID))  # pixels
        reach = max(1.0, _REACH * float(size.max()))
        shape = [int(extent) for extent in -(-size // self._side)]
        self.rows, self.cols = (self._weights(extent, reach) for extent in shape)

    def _weights(self, extent: int, reach: float) -> Floats:
        places = self._side * np.arange(extent)
        return np.exp(-((places[:, None] - places) ** 2) / (2 * reach**2))

    def cells(self, rows: Integers, cols: Integers) -> Integers:
        """Cells (N, 2) of pixels."""
        return (np.stack([rows, cols], axis=1) - self._origin) // self._side


class _ClassArea:
    """What is mapped as one class: its uncertainty that no label is near, and what each candidate is worth."""

    def __init__(self, own: _Candidates, known: Integers, grid: _Grid) -> None:
        self.own, self._grid = own, grid
        self._cells = grid.cells(own.rows, own.cols)
        self._mass = np.zeros((len(grid.rows), len(grid.cols)))
        np.add.at(self._mass, tuple(self._cells.T), own.mass)
        self._known = np.zeros_like(self._mass)  # weight of the nearest labelled or chosen pixel
        self._is_left = own.mass > 0
        for row, col in np.unique(grid.cells(known[:, 0], known[:, 1]), axis=0):
            self._cover(row, col)
        self._weigh()

    def _cover(self, row: int, col: int) -> None:
        np.maximum(self._known, np.outer(self._grid.rows[row], self._grid.cols[col]), out=self._known)

    def _weigh(self) -> None:
        unknown = 1.0 - self._known
        worth = unknown * (self._grid.rows @ (self._mass * unknown) @ self._grid.cols)
        self._worth = np.where(self._is_left, worth[tuple(self._cells.T)], 0.0)  # (N,)
        self.best = float(self._worth.max(initial=0.0))

    @property
    def has_more(self) -> bool:
        """Whether an uncertain candidate is left."""
        return bool(self._is_left.any())

    def take(self) -> int:
        """Choose the best candidate: of those that share a cell, the one with most uncertainty near it.

        Cells with a label or a chosen pixel are worth nothing; what is left in them comes last, when ``best`` is 0.
        """
        shared = np.flatnonzero(self._is_left & (self._worth == self.best))
        chosen = int(shared[self.own.near[shared].argmax()])
        self._is_left[chosen] = False
        self._cover(*self._cells[chosen])
        self._weigh()
        return chosen


def _choose(candidates: list[_Candidates], legend: Legend, n: int, known: Integers, grid: _Grid) -> list[Suggestion]:
    """Choose up to ``n`` candidates, one after another the best of all classes."""
    # Of labelled pixels outside of the map, nobody knows as what they would be mapped: they count for every class.
    areas = [_ClassArea(own, known[np.isin(known[:, 2], (number, -1))], grid) for number, own in enumerate(candidates)]
    chosen: list[Suggestion] = []
    while len(chosen) < n and any(area.has_more for area in areas):
        number = int(np.argmax([area.best if area.has_more else -1.0 for area in areas]))
        own, best = candidates[number], areas[number].take()
        row, col, second = int(own.rows[best]), int(own.cols[best]), legend.entries[int(own.second[best])]
        certainty = float(own.confidence[best]), float(own.margin[best])
        chosen.append(Suggestion(len(chosen) + 1, row, col, legend.entries[number], second, *certainty))
    return chosen
