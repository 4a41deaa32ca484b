"""LabelRaster: the class and the stroke of each pixel, and the changes that undo and redo are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.workbench.spans import Flat, expanded, run_starts

_COLUMNS = 7  # row, first column, one past the last, old class, old stroke, new class, new stroke


@dataclass(frozen=True, eq=False)
class Change:
    """Pixels that changed, as runs of equal values: few numbers also for large areas."""

    runs: npt.NDArray[np.int32]  # (n, 7)

    def spans_by_class(self, *, undone: bool = False) -> dict[str, list[list[int]]]:
        """The spans of each class that pixels have after the change, or after it is undone."""
        new = self.runs[:, 3 if undone else 5]
        return {str(number): self.runs[new == number, :3].tolist() for number in np.unique(new).tolist()}

    def __len__(self) -> int:
        """Number of pixels."""
        return int((self.runs[:, 2] - self.runs[:, 1]).sum())


NOTHING = Change(np.empty((0, _COLUMNS), dtype=np.int32))


class LabelRaster:
    """Class and stroke of each pixel; 0 = unlabelled."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.classes = np.zeros(shape, dtype=np.uint8)
        self.strokes = np.zeros(shape, dtype=np.int32)
        self.counts = np.zeros(256, dtype=np.int64)  # pixels by class
        self.counts[0] = self.classes.size

    def paint(self, pixels: Flat, number: int, stroke: int, locked: npt.NDArray[np.bool_]) -> Change:
        """Give pixels the class ``number``, 0 to erase; those of ``locked`` (256,) classes stay as they are."""
        old = self.classes.ravel()[pixels]
        pixels = pixels[~locked[old] & (old != number)]
        new = np.full(pixels.size, number, dtype=np.uint8)
        return self._set(pixels, new, np.full(pixels.size, stroke if number else 0, dtype=np.int32))

    def merge(self, number: int, into: int) -> Change:
        """Give all pixels of a class to another one, 0 to erase; strokes stay."""
        pixels = np.flatnonzero(self.classes == number)
        strokes = self.strokes.ravel()[pixels] if into else np.zeros(pixels.size, dtype=np.int32)
        return self._set(pixels, np.full(pixels.size, into, dtype=np.uint8), strokes)

    def replace(self, classes: npt.NDArray[np.uint8], strokes: npt.NDArray[np.int32]) -> Change:
        """Take other labels (rows, columns)."""
        pixels = np.flatnonzero((classes != self.classes) | (strokes != self.strokes))
        return self._set(pixels, classes.ravel()[pixels], strokes.ravel()[pixels])

    def _set(self, pixels: Flat, new: npt.NDArray[np.uint8], strokes: npt.NDArray[np.int32]) -> Change:
        if not pixels.size:
            return NOTHING
        flat, flat_strokes = self.classes.reshape(-1), self.strokes.reshape(-1)
        columns: list[npt.NDArray[np.integer]] = [flat[pixels], flat_strokes[pixels], new, strokes]
        starts = run_starts(pixels, self.shape[1], *columns)
        lengths = np.diff(np.append(starts, pixels.size))
        rows, first = np.divmod(pixels[starts], self.shape[1])
        runs = np.stack([rows, first, first + lengths, *(column[starts] for column in columns)], axis=1)
        self._write(pixels, new, strokes)
        return Change(runs.astype(np.int32))

    def _write(self, pixels: Flat, new: npt.NDArray[np.uint8], strokes: npt.NDArray[np.int32]) -> None:
        flat = self.classes.reshape(-1)
        self.counts -= np.bincount(flat[pixels], minlength=256)
        self.counts += np.bincount(new, minlength=256)
        flat[pixels] = new
        self.strokes.reshape(-1)[pixels] = strokes

    def apply(self, change: Change, *, undo: bool) -> None:
        """Make a change again, or undo it."""
        if not len(change.runs):
            return
        runs = change.runs
        lengths = runs[:, 2] - runs[:, 1]
        pixels = expanded(runs[:, :3].astype(np.int64), self.shape[1])  # runs are ascending and don't overlap
        values = runs[:, 3:5] if undo else runs[:, 5:7]
        new, strokes = (np.repeat(column, lengths) for column in values.T)
        self._write(pixels, new.astype(np.uint8), strokes)

    @property
    def labelled(self) -> int:
        return int(self.counts[1:].sum())
