"""Read the scene for the page: tiles of 256 x 256 pixels, kept as long as they may be needed again."""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Pixels, Scene
from hypercaps.data.window import Window
from hypercaps.workbench.spans import Flat

SIDE = 256
_CACHE_BYTES = 160_000_000


class PixelReader:
    """Tiles of all bands, the last ones read kept in memory; usable from several threads."""

    def __init__(self, scene: Scene, cache: int = _CACHE_BYTES) -> None:
        self.scene = scene
        self._cache, self._most, self._held = OrderedDict[tuple[int, int], Pixels](), cache, 0
        self._validity: dict[tuple[int, int], npt.NDArray[np.uint8]] = {}  # as bits
        self._lock = threading.Lock()
        self._reading: dict[tuple[int, int], threading.Lock] = {}

    def tile(self, y: int, x: int) -> Pixels:
        """The pixels of tile ``y`` from above and ``x`` from the left; smaller at the border."""
        key = (y, x)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:  # others wait for the first one instead of reading the same tile
            with self._lock:
                if key in self._cache:
                    return self._cache[key]
            at = self.window(y, x)
            pixels = self.scene.read(at.rows, at.cols)
            with self._lock:
                self._keep(key, pixels)
                self._reading.pop(key, None)
        return pixels

    def _keep(self, key: tuple[int, int], pixels: Pixels) -> None:
        self._validity[key] = np.packbits(pixels.valid)
        self._cache[key] = pixels
        self._held += pixels.values.nbytes
        while self._held > self._most and len(self._cache) > 1:
            self._held -= self._cache.popitem(last=False)[1].values.nbytes

    def window(self, y: int, x: int) -> Window:
        rows, cols = self.scene.rows, self.scene.cols
        return Window(y * SIDE, min((y + 1) * SIDE, rows), x * SIDE, min((x + 1) * SIDE, cols))

    def pixel(self, row: int, col: int) -> tuple[npt.NDArray[np.float32], bool]:
        """The spectrum (bands,) of a pixel, and whether it is valid."""
        key = (row // SIDE, col // SIDE)
        with self._lock:
            pixels = self._cache.get(key)
        if pixels is None and self.scene.block is None:  # cheap to read alone
            one = self.scene.read(slice(row, row + 1), slice(col, col + 1))
            return one.values[0, 0], bool(one.valid[0, 0])
        pixels = self.tile(*key)
        return pixels.values[row % SIDE, col % SIDE], bool(pixels.valid[row % SIDE, col % SIDE])

    def spectra(self, pixels: Flat) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Spectra (N, bands) and validity (N,) of pixels, flat indices."""
        rows, cols = np.divmod(pixels, self.scene.cols)
        values = np.full((pixels.size, self.scene.bands), np.nan, dtype=np.float32)
        valid = np.zeros(pixels.size, dtype=bool)
        for y, x in np.unique(np.stack([rows // SIDE, cols // SIDE], axis=1), axis=0).tolist():
            inside = np.flatnonzero((rows // SIDE == y) & (cols // SIDE == x))
            tile = self.tile(y, x)
            at = rows[inside] - y * SIDE, cols[inside] - x * SIDE
            values[inside], valid[inside] = tile.values[at], tile.valid[at]
        return values, valid

    def are_valid(self, pixels: Flat) -> npt.NDArray[np.bool_]:
        """(N,) which pixels have data."""
        rows, cols = np.divmod(pixels, self.scene.cols)
        valid = np.zeros(pixels.size, dtype=bool)
        for y, x in np.unique(np.stack([rows // SIDE, cols // SIDE], axis=1), axis=0).tolist():
            inside = np.flatnonzero((rows // SIDE == y) & (cols // SIDE == x))
            at = rows[inside] - y * SIDE, cols[inside] - x * SIDE
            valid[inside] = self._valid(y, x)[at]
        return valid

    def _valid(self, y: int, x: int) -> npt.NDArray[np.bool_]:
        """(h, w) which pixels of a tile have data."""
        bits, at = self._validity.get((y, x)), self.window(y, x)
        if bits is None:
            return self.tile(y, x).valid
        shape = at.r1 - at.r0, at.c1 - at.c0
        return np.unpackbits(bits, count=shape[0] * shape[1]).reshape(shape).astype(bool)
