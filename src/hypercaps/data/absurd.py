"""Absurd values: pixels far beyond the values of their scene, which count as invalid, like nodata.

A flipped bit or a fill value without a tag, such as 1e30, would dominate the statistics of all other pixels. The limit
is so far away that no real target reaches it, and it is found once for each scene, so that the validity of a pixel does
not depend on the window that it is read in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]  # (h, w, bands)
Mask = npt.NDArray[np.bool_]  # (h, w)

FACTOR = 1e5  # times the typical value, which counts as 1 at least: numbers of 16 bits are never absurd
_ENOUGH = 1024  # pixels with data, from which the typical value is known: more than a corner of fill values has
_MEASURED = 1e18  # no quantity is measured in larger numbers, but fill values are 1e20, 1e30, 9.97e36 or 3.4e38
_COUNTED = 1000  # absurd pixels that are remembered


@dataclass
class AbsurdPixels:
    """The absurd pixels that were found while a scene was read."""

    values: dict[tuple[int, int], float] = field(default_factory=dict)  # by row and column: the value farthest away

    def add(self, values: Values, beyond: Mask, first_row: int, first_col: int) -> None:
        """Remember the pixels ``beyond`` the limit of a window that begins at a row and column."""
        for row, col in np.argwhere(beyond)[: _COUNTED - len(self.values)].tolist():
            spectrum = values[row, col]
            self.values[first_row + row, first_col + col] = float(spectrum[np.abs(spectrum).argmax()])

    def in_words(self) -> str:
        """How many, where and what; empty if none was found."""
        if not self.values:
            return ""
        (row, col), value = min(self.values.items())
        count = len(self.values)
        many = f"{count:,}{' or more' if count >= _COUNTED else ''} pixel{'' if count == 1 else 's'}"
        first = "it is" if count == 1 else "the first is"
        return (
            f" ({many} beyond {FACTOR:,.0f} times the typical value of the scene; {first} row {row}, column {col}, "
            f"which holds {value:g})"
        )


def largest_plausible(samples: Iterable[tuple[Values, Mask]]) -> float:
    """Limit of the magnitude of a scene's values, from windows of it: values (h, w, bands) and validity (h, w).

    The typical value is the median over pixels of the largest magnitude in any band. Pixels that are zero in all bands
    are left out, because they are often background, and so are fill values, which may cover most of a scene. Windows
    are taken until there are enough pixels.
    """
    found = np.empty(0, dtype=np.float32)
    for values, valid in samples:
        magnitudes = np.abs(values[valid]).max(axis=1) if valid.any() else found[:0]
        found = np.concatenate([found, magnitudes[(magnitudes > 0) & (magnitudes < _MEASURED)]])
        if found.size >= _ENOUGH:
            break
    return FACTOR * max(1.0, float(np.median(found))) if found.size else np.inf


def find_absurd(values: Values, valid: Mask, limit: float) -> Mask | None:
    """Valid pixels (h, w) with a value beyond the limit; None if there is none."""
    # Nearly every window needs no more than this; NaN of an invalid pixel leads to the look at each pixel.
    if values.size == 0 or (values.max() <= limit and values.min() >= -limit):
        return None
    beyond = np.zeros_like(valid)
    for row, of_row in enumerate(values):  # row by row: a copy of the window could be large
        beyond[row] = (np.abs(of_row) > limit).any(axis=1)
    beyond &= valid
    return beyond if beyond.any() else None
