"""Read the scene for the page: tiles of 256 x 256 pixels, kept as long as they may be needed again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.workbench.shared_cache import SharedCache
from hypercaps.workbench.spans import Flat

SIDE = 256
_CACHE_BYTES = 160_000_000
_SMALL = SIDE * SIDE // 8  # pixels: a window that is read alone rather than with its tile


class PixelReader:
    """Tiles of all bands, the last ones read kept in memory; usable from several threads."""

    def __init__(self, scene: Scene, cache: int = _CACHE_BYTES) -> None:
        self.scene = scene
        self._tiles = SharedCache[tuple[int, int], Pixels](cache, lambda pixels: pixels.values.nbytes)
        self._validity: dict[tuple[int, int], npt.NDArray[np.uint8]] = {}  # of whole tiles, as bits

    def tile(self, y: int, x: int) -> Pixels:
        """The pixels of tile ``y`` from above and ``x`` from the left; smaller at the border."""
        return self._tiles.get((y, x), lambda: self._read(y, x))

    def _read(self, y: int, x: int) -> Pixels:
        at = self.window(y, x)
        pixels = self.scene.read(at.rows, at.cols)
        self._validity[y, x] = np.packbits(pixels.valid)
        return pixels

    def window(self, y: int, x: int) -> Window:
        rows, cols = self.scene.rows, self.scene.cols
        return Window(y * SIDE, min((y + 1) * SIDE, rows), x * SIDE, min((x + 1) * SIDE, cols))

    def pixel(self, row: int, col: int) -> tuple[npt.NDArray[np.float32], bool]:
        """The spectrum (bands,) of a pixel, and whether it is valid."""
        values, valid = self.spectra(np.array([row * self.scene.cols + col], dtype=np.int64))
        return values[0], bool(valid[0])

    def spectra(self, pixels: Flat) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Spectra (N, bands) and validity (N,) of pixels, flat indices."""
        values = np.full((pixels.size, self.scene.bands), np.nan, dtype=np.float32)
        valid = np.zeros(pixels.size, dtype=bool)
        for part in self._parts(pixels):
            read = self._pixels_around(part)
            values[part.places], valid[part.places] = read.values[part.inside], read.valid[part.inside]
        return values, valid

    def are_valid(self, pixels: Flat) -> npt.NDArray[np.bool_]:
        """(N,) which pixels have data."""
        valid = np.zeros(pixels.size, dtype=bool)
        for part in self._parts(pixels):
            known, at = self._validity.get(part.tile), self.window(*part.tile)
            if known is None:
                valid[part.places] = self._pixels_around(part).valid[part.inside]
                continue
            shape = at.r1 - at.r0, at.c1 - at.c0
            bits = np.unpackbits(known, count=shape[0] * shape[1]).reshape(shape).astype(bool)
            valid[part.places] = bits[part.rows - at.r0, part.cols - at.c0]
        return valid

    def _parts(self, pixels: Flat) -> Iterator[_Part]:
        """Pixels by the tile that they lie in."""
        rows, cols = np.divmod(pixels, self.scene.cols)
        numbers = rows // SIDE * (1 << 32) + cols // SIDE
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            yield self._part(divmod(number, 1 << 32), places, rows[places], cols[places])

    def _part(self, tile: tuple[int, int], places: Flat, rows: Flat, cols: Flat) -> _Part:
        """With the window to read: the whole tile where it costs no more than a part of it."""
        box = Window(int(rows.min()), int(rows.max()) + 1, int(cols.min()), int(cols.max()) + 1)
        is_small = (box.r1 - box.r0) * (box.c1 - box.c0) <= _SMALL
        reads_alone = is_small and self.scene.block is None and self._tiles.peek(tile) is None
        return _Part(tile, places, rows, cols, box if reads_alone else self.window(*tile), not reads_alone)

    def _pixels_around(self, part: _Part) -> Pixels:
        return self.tile(*part.tile) if part.is_whole else self.scene.read(part.window.rows, part.window.cols)


class _Part(NamedTuple):
    """Pixels of one tile, and the window to read for them."""

    tile: tuple[int, int]
    places: Flat  # in the array of all pixels
    rows: Flat
    cols: Flat
    window: Window
    is_whole: bool  # the window is the tile

    @property
    def inside(self) -> tuple[Flat, Flat]:
        """Rows and columns in the window."""
        return self.rows - self.window.r0, self.cols - self.window.c0
