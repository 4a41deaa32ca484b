"""Partial maps: one file that finished windows are written to, and from which a stopped map is resumed.

The file has a header that identifies the map, one byte per tile of the scene that says whether it is finished, and the
raw values of the layers. A window is marked as finished after its values are on disk, so the program may be killed at
any moment.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window
from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import check_space, translate_write_errors

try:
    import fcntl
except ImportError:  # Windows: two programs that write the same map are not detected
    fcntl = None  # type: ignore[assignment]

_MARK = b"hypercaps partial map 1\n"
_HEADER = 4096  # bytes reserved for the mark and the digest of what is mapped
_SPACE = 3  # disk space needed, in sizes of the partial map: itself, one raster uncompressed, all of them compressed


class PartialLayer(NamedTuple):
    """One layer of a partial map."""

    name: str
    dtype: np.dtype[Any]
    bands: int
    blank: float  # value of pixels without a class

    def blank_array(self, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        return np.full(shape, self.blank, dtype=self.dtype)


def partial_path(path: Path) -> Path:
    """The partial map that belongs to the output ``path``."""
    return path.with_name(path.name + ".partial")


def check_partial(path: Path, *, resume: bool) -> None:
    """Refuse to overwrite a resumable map."""
    if path.exists() and not resume:
        raise OutputError(f"{path} holds an unfinished map: continue it with --resume, or delete it")


class PartialMap:
    """``with PartialMap(path, about, shape, layers) as partial:`` the file stays until :meth:`remove` is called.

    ``about`` is everything that the values depend on, as JSON takes it: a file begun for anything else is refused.
    """

    def __init__(
        self,
        path: Path,
        about: Mapping[str, object],
        shape: tuple[int, int],
        layers: Sequence[PartialLayer],
        *,
        resume: bool = False,
    ) -> None:
        self.path, self.shape, self.resume = path, shape, resume
        rows, cols = shape
        stored = [[layer.name, layer.dtype.str, layer.bands] for layer in layers]
        identity = json.dumps({**about, "shape": shape, "layers": stored}, sort_keys=True)
        self._header = (_MARK + hashlib.sha256(identity.encode()).hexdigest().encode()).ljust(_HEADER, b"\0")
        self._done = np.zeros((-(-rows // TILE), -(-cols // TILE)), dtype=np.uint8)
        self.layers = {layer.name: layer for layer in layers}
        self._starts: dict[str, int] = {}  # byte at which each layer begins
        self.size = _HEADER + self._done.size
        for layer in layers:
            self._starts[layer.name] = self.size
            self.size += layer.bands * rows * cols * layer.dtype.itemsize
        self._file = -1

    def __enter__(self) -> PartialMap:
        check_partial(self.path, resume=self.resume)
        with translate_write_errors(self.path):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._lock()
            if os.fstat(self._file).st_size == 0:
                self._begin()
            else:
                self._resume()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
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
            with translate_write_errors(self.path):
                # Also for the rasters made from it: checked before hours of work, not after.
                check_space(self.path, _SPACE * self.size)
                if hasattr(os, "posix_fallocate"):  # fails at once if the disk is too small
                    os.posix_fallocate(self._file, 0, self.size)
                else:
                    os.ftruncate(self._file, self.size)
                os.pwrite(self._file, self._header, 0)
        except BaseException:
            self.remove()
            raise

    def _resume(self) -> None:
        head = os.pread(self._file, _HEADER, 0)
        if not any(head):  # killed before the header was written
            self._begin()
            return
        if head != self._header or os.fstat(self._file).st_size != self.size:
            raise OutputError(
                f"{self.path} was begun with another model, scene or option: give the same ones as then, or delete it"
            )
        self._done.ravel()[:] = np.frombuffer(os.pread(self._file, self._done.size, _HEADER), np.uint8)

    def _tiles(self, at: Window) -> tuple[slice, slice]:
        return slice(at.r0 // TILE, -(-at.r1 // TILE)), slice(at.c0 // TILE, -(-at.c1 // TILE))

    def unfinished(self, windows: Iterable[Window]) -> list[Window]:
        return [at for at in windows if not self._done[self._tiles(at)].all()]

    def write_blank(self, at: Window) -> None:
        """Finish a window in which nothing is mapped."""
        shape = at.r1 - at.r0, at.c1 - at.c0
        self.write(at, {name: layer.blank_array((*shape, layer.bands)) for name, layer in self.layers.items()})

    def write(self, at: Window, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write the values of a window by layer, (h, w) or (h, w, bands), and mark the window as finished."""
        with translate_write_errors(self.path):
            for name, array in values.items():
                dtype = self.layers[name].dtype
                stored = np.ascontiguousarray(np.moveaxis(np.atleast_3d(array), 2, 0), dtype=dtype)  # (bands, h, w)
                for band, plane in enumerate(stored):
                    self._write_plane(name, band, at, plane)
            os.fsync(self._file)
            rows, cols = self._tiles(at)
            self._done[rows, cols] = 1
            across = self._done.shape[1]
            first, last = rows.start * across, rows.stop * across
            os.pwrite(self._file, self._done.ravel()[first:last].tobytes(), _HEADER + first)

    def _write_plane(self, name: str, band: int, at: Window, plane: npt.NDArray[Any]) -> None:
        cols, item = self.shape[1], plane.itemsize
        start = self._starts[name] + band * self.shape[0] * cols * item
        if plane.shape[1] == cols:  # whole rows are contiguous in the file
            os.pwrite(self._file, plane.tobytes(), start + at.r0 * cols * item)
            return
        for row, line in enumerate(plane, at.r0):
            os.pwrite(self._file, line.tobytes(), start + (row * cols + at.c0) * item)

    def read(self, name: str, r0: int, r1: int, band: int = 0) -> npt.NDArray[Any]:
        """Rows r0 to r1 of one band of a layer, (r1 - r0, columns)."""
        rows, cols = self.shape
        dtype = self.layers[name].dtype
        start = self._starts[name] + (band * rows + r0) * cols * dtype.itemsize
        content = os.pread(self._file, (r1 - r0) * cols * dtype.itemsize, start)
        return np.frombuffer(content, dtype).reshape(r1 - r0, cols)
