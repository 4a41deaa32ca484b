"""Read the windows of a scene in order, each pixel once, and the next window while the last one is processed.

Windows overlap by their halos, and a file's blocks do not end where windows do. So the scene is read in cells: each is
read whole when the first window needs it, and what later windows need of it is kept for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window
from hypercaps.training.patches import mirrored

Indices = npt.NDArray[np.intp]


def read_ahead(scene: Scene, windows: Sequence[Window], halo: int) -> Iterator[tuple[Pixels, int]]:
    """Each window with ``halo`` pixels around it, as ``read_with_halo`` gives it, and its checksum.

    While the caller works on one window, a thread reads the next.
    """
    cells = _Cells(scene, windows, halo)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="hypercaps-read") as reader:
        following = reader.submit(cells.window, 0) if windows else None
        for number in range(1, len(windows) + 1):
            assert following is not None
            read = following.result()
            following = reader.submit(cells.window, number) if number < len(windows) else None
            yield read
            del read  # large: the caller's alone


class _Cells:
    """The parts of a scene that are read at once, and what is kept of them for windows to come."""

    def __init__(self, scene: Scene, windows: Sequence[Window], halo: int) -> None:
        self.scene = scene
        self.places = [_Places.of(scene, at, halo) for at in windows]
        block = _block_within(scene, self.places)
        self.row_lines = _lines([places.needed.r1 for places in self.places], block[0], scene.rows)
        self.col_lines = _lines([places.needed.c1 for places in self.places], block[1], scene.cols)
        self.users: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # windows that need a cell
        for number, places in enumerate(self.places):
            for cell in self._cells_of(places.needed):
                self.users[cell].append(number)
        self.kept: defaultdict[int, list[tuple[Window, Pixels]]] = defaultdict(list)  # by window

    def window(self, number: int) -> tuple[Pixels, int]:
        places = self.places[number]
        for cell in self._cells_of(places.needed):
            if cell in self.users:  # not yet read
                self._read(cell, number)
        pixels = places.assembled(self.kept.pop(number), self.scene.bands)
        return pixels, pixels.checksum()

    def _cells_of(self, needed: Window) -> list[tuple[int, int]]:
        rows = range(bisect_right(self.row_lines, needed.r0) - 1, bisect_right(self.row_lines, needed.r1 - 1))
        cols = range(bisect_right(self.col_lines, needed.c0) - 1, bisect_right(self.col_lines, needed.c1 - 1))
        return [(row, col) for row in rows for col in cols]

    def _read(self, cell: tuple[int, int], now: int) -> None:
        """Read what windows need of a cell, and divide it between them."""
        (row, col), users = cell, self.users.pop(cell)
        extent = Window(*self.row_lines[row : row + 2], *self.col_lines[col : col + 2])
        parts = [_common(extent, self.places[user].needed) for user in users]
        box = Window(
            min(part.r0 for part in parts),
            max(part.r1 for part in parts),
            min(part.c0 for part in parts),
            max(part.c1 for part in parts),
        )
        read = self.scene.read(box.rows, box.cols)
        for user, part in zip(users, parts, strict=True):
            rows, cols = slice(part.r0 - box.r0, part.r1 - box.r0), slice(part.c0 - box.c0, part.c1 - box.c0)
            values, valid = read.values[rows, cols], read.valid[rows, cols]
            if user != now:  # a copy, so that the rest is not kept with it
                values, valid = values.copy(), valid.copy()
            self.kept[user].append((part, Pixels(values, valid)))


@dataclass(frozen=True)
class _Places:
    """The pixels of a window with its halo: those of the scene, and where they are mirrored beyond its border."""

    rows: Indices  # of the scene, mirrored
    cols: Indices
    top: int  # rows beyond the scene's border, before its own
    left: int

    @classmethod
    def of(cls, scene: Scene, at: Window, halo: int) -> _Places:
        return cls(
            mirrored(np.arange(at.r0 - halo, at.r1 + halo), scene.rows),
            mirrored(np.arange(at.c0 - halo, at.c1 + halo), scene.cols),
            max(0, halo - at.r0),
            max(0, halo - at.c0),
        )

    @property
    def needed(self) -> Window:
        """The part of the scene that has all of them."""
        return Window(int(self.rows.min()), int(self.rows.max()) + 1, int(self.cols.min()), int(self.cols.max()) + 1)

    def assembled(self, parts: list[tuple[Window, Pixels]], bands: int) -> Pixels:
        needed, shape, top, left = self.needed, (self.rows.size, self.cols.size), self.top, self.left
        if len(parts) == 1 and parts[0][1].valid.shape == shape and parts[0][1].values.flags.c_contiguous:
            return parts[0][1]
        values, valid = np.empty((*shape, bands), dtype=np.float32), np.empty(shape, dtype=bool)
        for part, pixels in parts:
            rows = slice(top + part.r0 - needed.r0, top + part.r1 - needed.r0)
            cols = slice(left + part.c0 - needed.c0, left + part.c1 - needed.c0)
            values[rows, cols], valid[rows, cols] = pixels
        inside = slice(top, top + needed.r1 - needed.r0)
        for col in _around(left, needed.c1 - needed.c0, shape[1]):
            source = left + int(self.cols[col]) - needed.c0
            values[inside, col], valid[inside, col] = values[inside, source], valid[inside, source]
        for row in _around(top, needed.r1 - needed.r0, shape[0]):
            source = top + int(self.rows[row]) - needed.r0
            values[row], valid[row] = values[source], valid[source]
        return Pixels(values, valid)


def _around(first: int, count: int, length: int) -> list[int]:
    """Positions before and after ``count`` ones from ``first``."""
    return [*range(first), *range(first + count, length)]


def _lines(ends: list[int], block: int, length: int) -> list[int]:
    """Where cells begin and end: at the ends of what windows need, rounded up to whole blocks."""
    return sorted({0, length, *(min(-(-end // block) * block, length) for end in ends)})


def _block_within(scene: Scene, all_places: list[_Places]) -> tuple[int, int]:
    """Rows and columns of the file's blocks; 1 if windows are smaller, for lack of memory: so are cells then."""
    if scene.block is None or not all_places:
        return 1, 1
    rows, cols = (min(side, length) for side, length in zip(scene.block, scene.shape, strict=False))
    fits = (
        max(places.rows.size for places in all_places) >= rows - TILE,
        max(p.cols.size for p in all_places) >= cols - TILE,
    )
    return scene.block if all(fits) else (1, 1)


def _common(one: Window, other: Window) -> Window:
    return Window(max(one.r0, other.r0), min(one.r1, other.r1), max(one.c0, other.c0), min(one.c1, other.c1))
