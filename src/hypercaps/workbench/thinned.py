"""Read a scene coarsely: every second, fourth, ... row and column, for pictures before there are overviews."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hypercaps.data.pixels import Pixels, SelectsBands
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.io.readers.open_files import keep_open
from hypercaps.workbench.pixel_reader import SIDE
from hypercaps.workbench.shared_cache import SharedCache

_CACHE_BYTES = 64_000_000
_GROUP = 4  # tiles beside each other that are read together: a line of a file is often decoded as a whole
_FEW = 16  # bands, up to which that takes little memory
_READ_VALUES = 1 << 22  # values that are read at once

Key = tuple[tuple[int, ...], int, int, int]  # bands, level, row and column of a tile or group


class ThinnedReader:
    """Tiles of 256 x 256 pixels, each the first pixel of a square of ``1 << level``; usable from several threads."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._kept = SharedCache[Key, Pixels](_CACHE_BYTES, lambda pixels: pixels.values.nbytes + pixels.valid.nbytes)

    def tile(self, bands: Sequence[int], level: int, x: int, y: int) -> Pixels:
        """Some bands of a tile; smaller at the border of the scene."""
        if self._scene.block is not None:
            return self._kept.get((tuple(bands), level, y, x), lambda: self._read_blocks(bands, level, x, y))
        across = _GROUP if len(bands) <= _FEW else 1
        group, place = divmod(x, across)
        at = self._window(level, group * across, y, across)
        read = self._kept.get((tuple(bands), level, y, group), lambda: self._read_rows(bands, 1 << level, at))
        cols = slice(place * SIDE, (place + 1) * SIDE)
        return Pixels(read.values[:, cols], read.valid[:, cols])

    def _window(self, level: int, x: int, y: int, across: int = 1) -> Window:
        """The part of the scene that a tile shows, or several beside each other."""
        side, rows, cols = SIDE << level, self._scene.rows, self._scene.cols
        return Window(y * side, min((y + 1) * side, rows), x * side, min((x + across) * side, cols))

    def _read_rows(self, bands: Sequence[int], step: int, at: Window) -> Pixels:
        """Read the rows that are shown; if these are all, as many as possible at once."""
        read = len(bands) if isinstance(self._scene.reader, SelectsBands) else self._scene.bands
        height = 1 if step > 1 else max(1, _READ_VALUES // ((at.c1 - at.c0) * read))
        strips = []
        with keep_open():
            for r0 in range(at.r0, at.r1, max(step, height)):
                strip = self._scene.read_bands(bands, slice(r0, min(r0 + height, at.r1)), at.cols)
                strips.append(Pixels(strip.values[:, ::step], strip.valid[:, ::step]))
        return _joined(strips, axis=0)

    def _read_blocks(self, bands: Sequence[int], level: int, x: int, y: int) -> Pixels:
        """All pixels of a tile, or a coarser one from four: each block is decoded once for all levels."""
        at = self._window(level, x, y)
        if level == 0:
            return self._scene.read_bands(bands, at.rows, at.cols)
        half = SIDE << (level - 1)
        lines = []
        for r0 in range(at.r0, at.r1, half):
            line = [self.tile(bands, level - 1, c0 // half, r0 // half) for c0 in range(at.c0, at.c1, half)]
            lines.append(_joined(line, axis=1))
        finer = _joined(lines, axis=0)
        return Pixels(finer.values[::2, ::2].copy(), finer.valid[::2, ::2].copy())


def _joined(parts: Sequence[Pixels], axis: int) -> Pixels:
    values = np.concatenate([part.values for part in parts], axis=axis)
    return Pixels(values, np.concatenate([part.valid for part in parts], axis=axis))
