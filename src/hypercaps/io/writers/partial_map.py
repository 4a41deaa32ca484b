"""A map that is being made: one file, to which finished windows are added, and from which the work can go on.

A header that says what is mapped, one byte for each tile of the scene that is finished, and plain numbers. A window is
marked as finished after its numbers are safely on the disk, so the file may be cut off at any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window
from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import explained

try:
    import fcntl
except ImportError:  # not on Windows: two programs that write one map are not told of each other there
    fcntl = None  # type: ignore[assignment]

_MARK = b"hypercaps partial map 1\n"
_HEADER = 4096  # bytes kept for the mark and what stands for the description
_SPACE = 3  # times the size of a partial map: itself, one raster plain and all of them compressed
_TYPES: dict[str, np.dtype[Any]] = {
    "classes": np.dtype("<i2"),
    "confidence": np.dtype("<f4"),
    "probabilities": np.dtype("<f4"),
    "sets": np.dtype("u1"),
}


def partial_path(path: Path) -> Path:
    """The file beside ``path`` that holds what is finished of it."""
    return path.with_name(path.name + ".partial")


def check_partial(path: Path, *, resume: bool) -> None:
    """Refuse to begin anew over work that can be gone on with."""
    if path.exists() and not resume:
        raise OutputError(
            f"{path} holds a map that was begun and not finished: go on with it with --resume, or delete it"
        )


class PartialMap:
    """``with PartialMap(path, about, shape) as partial:`` the file stays until :meth:`remove` is called.

    ``about`` is all that the map depends on, as JSON takes it: work that was begun for something else is not taken up.
    """

    def __init__(
        self,
        path: Path,
        about: dict[str, Any],
        shape: tuple[int, int],
        *,
        classes: int = 0,  # whose probabilities are kept
        sets: bool = False,
        resume: bool = False,
    ) -> None:
        self.path, self.shape, self.resume = path, shape, resume
        rows, cols = shape
        self._about = json.dumps(about | {"shape": shape, "classes": classes, "sets": sets}, sort_keys=True).encode()
        layers = {"classes": 1, "confidence": 1, "probabilities": classes, "sets": int(sets)}
        layers = {name: count for name, count in layers.items() if count}
        self._done = np.zeros((-(-rows // TILE), -(-cols // TILE)), dtype=np.uint8)
        at = _HEADER + self._done.size
        self._starts: dict[str, int] = {}
        for name, count in layers.items():
            self._starts[name] = at
            at += count * rows * cols * _TYPES[name].itemsize
        self.layers, self.size = layers, at
        self._file = -1

    def __enter__(self) -> PartialMap:
        check_partial(self.path, resume=self.resume)
        with explained(self.path):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._lock()
            if os.fstat(self._file).st_size == 0:
                self._begin()
            else:
                self._go_on()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        self._close()
        self.path.unlink(missing_ok=True)

    def _lock(self) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OutputError(f"{self.path} is being written by another hypercaps: wait for it") from None

    def _begin(self) -> None:
        try:
            with explained(self.path):
                self._check_space()
                if hasattr(os, "posix_fallocate"):  # a disk that is too small is noticed now
                    os.posix_fallocate(self._file, 0, self.size)
                else:
                    os.ftruncate(self._file, self.size)
                os.pwrite(self._file, self._header(), 0)
        except BaseException:
            self.remove()
            raise

    def _check_space(self) -> None:
        """For the partial map and for the rasters that are made of it, before hours of work and not after."""
        needed, free = _SPACE * self.size, shutil.disk_usage(self.path.absolute().parent).free
        if free < needed:
            raise OutputError(
                f"{self.path} can't be written: about {needed / 1e6:.1f} MB are needed and {free / 1e6:.1f} MB are "
                "free, the disk is full; free some space or choose another place"
            )

    def _header(self) -> bytes:
        return (_MARK + hashlib.sha256(self._about).hexdigest().encode()).ljust(_HEADER, b"\0")

    def _go_on(self) -> None:
        head = os.pread(self._file, _HEADER, 0)
        if not any(head):  # killed before the first byte
            self._begin()
            return
        if head != self._header() or os.fstat(self._file).st_size != self.size:
            raise OutputError(
                f"{self.path} was begun with another model, scene or option: give the same ones as then, or delete it"
            )
        self._done[:] = np.frombuffer(os.pread(self._file, self._done.size, _HEADER), np.uint8).reshape(
            self._done.shape
        )

    def _tiles(self, at: Window) -> tuple[slice, slice]:
        return slice(at.r0 // TILE, -(-at.r1 // TILE)), slice(at.c0 // TILE, -(-at.c1 // TILE))

    def unfinished(self, windows: Iterable[Window]) -> list[Window]:
        return [at for at in windows if not self._done[self._tiles(at)].all()]

    def write(self, at: Window, layers: dict[str, npt.NDArray[Any]]) -> None:
        """The numbers of a window, each layer (h, w) or (h, w, n); it is then finished."""
        with explained(self.path):
            for name, values in layers.items():
                stored = np.ascontiguousarray(np.moveaxis(np.atleast_3d(values), 2, 0), dtype=_TYPES[name])
                for layer, plane in enumerate(stored):  # (h, w)
                    self._write_plane(name, layer, at, plane)
            os.fsync(self._file)
            rows, cols = self._tiles(at)
            self._done[rows, cols] = 1
            across = self._done.shape[1]
            first, last = rows.start * across, rows.stop * across
            os.pwrite(self._file, self._done.ravel()[first:last].tobytes(), _HEADER + first)

    def _write_plane(self, name: str, layer: int, at: Window, plane: npt.NDArray[Any]) -> None:
        cols, item = self.shape[1], plane.itemsize
        start = self._starts[name] + layer * self.shape[0] * cols * item
        if plane.shape[1] == cols:  # whole rows follow each other
            os.pwrite(self._file, plane.tobytes(), start + at.r0 * cols * item)
            return
        for row, line in enumerate(plane, at.r0):
            os.pwrite(self._file, line.tobytes(), start + (row * cols + at.c0) * item)

    def read(self, name: str, r0: int, r1: int, layer: int = 0) -> npt.NDArray[Any]:
        """Rows r0 to r1 of a layer: (r1 - r0, columns)"""
        rows, cols = self.shape
        dtype = _TYPES[name]
        start = self._starts[name] + (layer * rows + r0) * cols * dtype.itemsize
        content = os.pread(self._file, (r1 - r0) * cols * dtype.itemsize, start)
        return np.frombuffer(content, dtype).reshape(r1 - r0, cols)
