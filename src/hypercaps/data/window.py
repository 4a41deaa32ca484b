"""Windows: rectangles of a scene's pixel grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

VALUES_AT_ONCE = 1 << 23  # values of a scene that are read at a time: 32 MB of float32
_SAMPLES = 16  # sample windows (and one more) of a scene, and their side in pixels
_SAMPLE_SIDE = 8


class Window(NamedTuple):
    """A rectangle of a scene: rows r0 to r1 and columns c0 to c1, ends excluded."""

    r0: int
    r1: int
    c0: int
    c1: int

    @property
    def rows(self) -> slice:
        return slice(self.r0, self.r1)

    @property
    def cols(self) -> slice:
        return slice(self.c0, self.c1)

    @property
    def shape(self) -> tuple[int, int]:
        return self.r1 - self.r0, self.c1 - self.c0

    def inside(self, box: Window) -> tuple[slice, slice]:
        """Rows and columns of this window in an array of the pixels of ``box``, which contains it."""
        return slice(self.r0 - box.r0, self.r1 - box.r0), slice(self.c0 - box.c0, self.c1 - box.c0)


def tile_windows(within: Window, rows: int, cols: int | None = None) -> Iterator[Window]:
    """Cover ``within`` by windows of ``rows`` x ``cols`` pixels (default: squares), clipped, in row-major order."""
    cols = cols or rows
    for r in range(within.r0, within.r1, rows):
        for c in range(within.c0, within.c1, cols):
            yield Window(r, min(r + rows, within.r1), c, min(c + cols, within.c1))


def strips(rows: int, cols: int, bands: int) -> Iterator[Window]:
    """A whole scene in strips of rows."""
    return tile_windows(Window(0, rows, 0, cols), max(1, VALUES_AT_ONCE // (cols * bands)), cols)


def sample_windows(rows: int, cols: int) -> list[Window]:
    """Small windows spread over a scene: evenly spaced rows, columns in steps of 7 parts."""
    height, width = min(_SAMPLE_SIDE, rows), min(_SAMPLE_SIDE, cols)
    windows = []
    for part in range(_SAMPLES + 1):
        r = (rows - height) * part // _SAMPLES
        c = (cols - width) * (part * 7 % (_SAMPLES + 1)) // _SAMPLES
        windows.append(Window(r, r + height, c, c + width))
    return windows


WindowPart = tuple[int, Window]  # the number of a window, and a part of it


def parts_in_blocks(windows: Sequence[Window], block: tuple[int, int]) -> dict[tuple[int, int], list[WindowPart]]:
    """The parts of windows that lie in each block, by the block's row and column."""
    height, width = block
    parts: dict[tuple[int, int], list[WindowPart]] = {}
    for number, at in enumerate(windows):
        for r in range(at.r0 // height, -(-at.r1 // height)):
            for c in range(at.c0 // width, -(-at.c1 // width)):
                rows = max(at.r0, r * height), min(at.r1, (r + 1) * height)
                cols = max(at.c0, c * width), min(at.c1, (c + 1) * width)
                parts.setdefault((r, c), []).append((number, Window(*rows, *cols)))
    return parts


def boxes_around(parts: list[WindowPart], most: int) -> list[tuple[Window, list[WindowPart]]]:
    """The box around all parts or, if it has more than ``most`` pixels, each part by itself."""
    each = [part for _, part in parts]
    rows = min(part.r0 for part in each), max(part.r1 for part in each)
    cols = min(part.c0 for part in each), max(part.c1 for part in each)
    box = Window(*rows, *cols)
    return [(box, parts)] if math.prod(box.shape) <= most else [(part, [(number, part)]) for number, part in parts]


def covered_pixels(windows: Sequence[Window]) -> int:
    """Number of pixels that lie in any of the windows, which may overlap."""
    rows = np.unique([edge for window in windows for edge in (window.r0, window.r1)])
    cols = np.unique([edge for window in windows for edge in (window.c0, window.c1)])
    cells = np.zeros((rows.size - 1, cols.size - 1), dtype=bool)  # between neighbouring edges
    for window in windows:
        r0, r1 = np.searchsorted(rows, (window.r0, window.r1))
        c0, c1 = np.searchsorted(cols, (window.c0, window.c1))
        cells[r0:r1, c0:c1] = True
    areas = np.diff(rows)[:, None].astype(np.float64) * np.diff(cols)
    return int(areas[cells].sum())
