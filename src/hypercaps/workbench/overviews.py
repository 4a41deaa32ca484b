"""Overviews of a large scene: means of 4 x 4 pixels and more, of all bands, made once and kept in the project."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.window import VALUES_AT_ONCE, Window, tile_windows
from hypercaps.errors import HypercapsError

FIRST = 2  # level of the finest overview: each pixel is 4 x 4 scene pixels
_STRIP = 64  # rows and columns of the finest level that are made at once
_READY = "ready"

Floats = npt.NDArray[np.float32]


class Overviews:
    """The levels from ``FIRST`` to ``levels`` - 1; ``on_progress`` is called with the share that is made, 0 to 1."""

    def __init__(self, scene: Scene, folder: Path, levels: int, on_progress: Callable[[float], None]) -> None:
        self._scene, self._folder, self._on_progress = scene, folder, on_progress
        self._levels = range(FIRST, levels)
        self.done = 1.0 if not self._levels or (folder / _READY).exists() else 0.0
        self.failed: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._arrays: dict[int, Floats] = {}
        if self.done == 1.0:
            self._arrays = {level: self._open(level, "r") for level in self._levels}

    def start(self, delay: float = 0.0) -> None:
        """Make them in the background, if they are not there, after some seconds."""
        if self.done < 1.0:
            self._thread = threading.Thread(target=self._make, args=(delay,), name="overviews", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def read(self, level: int, rows: slice, cols: slice, bands: Sequence[int] | None = None) -> Pixels | None:
        """All or some bands of a window of a level, in its own rows and columns; None: not made yet."""
        if self.done < 1.0 or level not in self._arrays:
            return None
        window = self._arrays[level][rows, cols]
        values = np.array(window if bands is None else window[:, :, list(bands)])
        return Pixels(values, ~np.isnan(values[:, :, 0]))

    def shape(self, level: int) -> tuple[int, int, int]:
        side = 1 << level
        return -(-self._scene.rows // side), -(-self._scene.cols // side), self._scene.bands

    def _open(self, level: int, mode: str) -> Floats:
        path = self._folder / f"level-{level}.npy"
        if mode == "r":
            values: Floats = np.load(path, mmap_mode="r", allow_pickle=False)
            return values
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=self.shape(level))

    def _make(self, delay: float) -> None:
        if self._stop.wait(delay):
            return
        try:
            arrays = {level: self._open(level, "w+") for level in self._levels}
            if self._fill(arrays[FIRST]) and self._halve(arrays):
                for array in arrays.values():
                    array.flush()  # type: ignore[attr-defined]
                (self._folder / _READY).touch()
                self._arrays = arrays
                self._tell(1.0)
        except (OSError, HypercapsError) as error:
            self.failed = f"The overviews could not be made ({error}): the scene is shown, but slowly."
            self._tell(self.done)

    def _fill(self, target: Floats) -> bool:
        side = 1 << FIRST
        windows = list(self._windows(side))
        for number, at in enumerate(windows):
            if self._stop.is_set():
                return False
            read = self._scene.read(at.rows, at.cols)
            small = block_means(_marked(read), side)
            target[at.r0 // side : at.r0 // side + len(small), at.c0 // side : at.c0 // side + small.shape[1]] = small
            self._tell(0.99 * (number + 1) / len(windows))
        return True

    def _windows(self, side: int) -> Iterator[Window]:
        """What is read at once, in whole blocks of the file where that is possible: none is decoded twice."""
        scene, block = self._scene, self._scene.block
        if block is None:
            height = max(side, VALUES_AT_ONCE // (scene.cols * scene.bands) // side * side)
            for r0 in range(0, scene.rows, height):
                yield Window(r0, min(r0 + height, scene.rows), 0, scene.cols)
        else:
            least = _STRIP * side
            is_whole = block[0] == block[1] and block[0] % side == 0
            yield from tile_windows(scene.whole, -(-least // block[0]) * block[0] if is_whole else least)

    def _halve(self, arrays: dict[int, Floats]) -> bool:
        """Make each level from the one before, in strips of rows."""
        for level in self._levels[1:]:
            finer = arrays[level - 1]
            for r0 in range(0, finer.shape[0], 2 * _STRIP):
                if self._stop.is_set():
                    return False
                small = block_means(np.array(finer[r0 : r0 + 2 * _STRIP]), 2)
                arrays[level][r0 // 2 : r0 // 2 + len(small)] = small
        return True

    def _tell(self, done: float) -> None:
        self.done = done
        self._on_progress(done)


def _marked(pixels: Pixels) -> Floats:
    """Values with NaN where they are not valid."""
    if pixels.valid.all():
        return pixels.values
    return np.where(pixels.valid[:, :, None], pixels.values, np.float32(np.nan))


def block_means(values: Floats, side: int) -> Floats:
    """Means of the valid pixels of blocks of ``side`` x ``side``; NaN marks invalid ones, and blocks without any."""
    rows, cols, bands = values.shape
    down, across = -(-rows // side), -(-cols // side)
    if (rows, cols) == (down * side, across * side) and not np.isnan(values[:, :, 0]).any():
        rows_of_blocks = values.reshape(down, side, across * side, bands).sum(axis=1)
        return np.asarray(rows_of_blocks.reshape(down, across, side, bands).sum(axis=2) / np.float32(side * side))
    padded = np.pad(values, ((0, down * side - rows), (0, across * side - cols), (0, 0)), constant_values=np.nan)
    valid = ~np.isnan(padded[:, :, :1])
    sums = np.where(valid, padded, 0).reshape(down, side, across, side, bands).sum(axis=(1, 3))
    counts = valid.reshape(down, side, across, side, 1).sum(axis=(1, 3))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(np.float32)
