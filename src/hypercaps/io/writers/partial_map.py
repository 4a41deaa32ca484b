"""Partial maps: one file that finished windows are written to, and from which a stopped map is resumed.

The file has a header that identifies the map, a record of each finished window (``window_log``), and the raw values of
the layers. A window's record is written after its values are on disk, so the program may be killed at any moment. When
a map is resumed, the values are compared with the checksums in the records.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window
from hypercaps.errors import OutputError, warn_data
from hypercaps.io.writers.atomic import check_space, open_for_update, translate_write_errors
from hypercaps.io.writers.lock import try_lock
from hypercaps.io.writers.window_log import FinishedWindow, WindowLog

_MARK = b"hypercaps partial map 2\n"
_HEADER = 4096  # bytes reserved for the mark and the digests of what is mapped
_DIGEST = 16  # characters of a digest
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
    if path.is_file() and not resume:
        raise OutputError(f"{path} holds an unfinished map: continue it with --resume, or delete it")


class PartialMap:
    """``with PartialMap(path, about, shape, layers) as partial:`` the file stays until :meth:`remove` is called.

    ``about`` is everything that the values depend on, as JSON takes it, by the names that messages use: a file begun
    for anything else is refused.
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
        self._identity = {name: _digest(value) for name, value in {**about, "size": shape, "rasters": stored}.items()}
        self._done = np.zeros((-(-rows // TILE), -(-cols // TILE)), dtype=bool)
        self._log = WindowLog(self._done.size)
        self.layers = {layer.name: layer for layer in layers}
        self._starts: dict[str, int] = {}  # byte at which each layer begins
        self.size = _HEADER + self._log.size
        for layer in layers:
            self._starts[layer.name] = self.size
            self.size += layer.bands * rows * cols * layer.dtype.itemsize
        self._file = -1

    def __enter__(self) -> PartialMap:
        check_partial(self.path, resume=self.resume)
        self._file = open_for_update(self.path)
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
        if not try_lock(self._file):
            raise OutputError(f"{self.path} is being written by another hypercaps: wait for it")

    def _begin(self) -> None:
        try:
            with translate_write_errors(self.path):
                # Also for the rasters made from it: checked before hours of work, not after.
                check_space(self.path, _SPACE * self.size)
                if hasattr(os, "posix_fallocate"):  # fails at once if the disk is too small
                    os.posix_fallocate(self._file, 0, self.size)
                else:
                    os.ftruncate(self._file, self.size)
                header = _MARK + json.dumps(self._identity).encode()
                os.pwrite(self._file, header.ljust(_HEADER, b"\0"), 0)
        except BaseException:
            self.remove()
            raise

    def _resume(self) -> None:
        head = os.pread(self._file, _HEADER, 0)
        if not any(head):  # killed before the header was written
            self._begin()
            return
        digests = _read_header(head)
        if digests is None:
            raise OutputError(f"{self.path} is not an unfinished map of this hypercaps: move or delete it")
        if changed := [name for name, digest in self._identity.items() if digests.get(name) != digest]:
            raise OutputError(f"{self.path} was begun with another {changed[0]}: give the same as then, or delete it")
        if os.fstat(self._file).st_size != self.size:
            raise OutputError(f"{self.path} is damaged: delete it, and map from the start")
        self._load_finished()

    def _load_finished(self) -> None:
        """Read which windows are finished, and forget those that are not as they were written."""
        damaged = self._log.load(os.pread(self._file, self._log.size, _HEADER), self.shape)
        for window in self._log.finished:
            if self._checksum(window.at) == window.values:
                self._done[self._tiles(window.at)] = True
            else:
                self._log.discard(window)
                damaged += 1
        if damaged:
            again = "is" if damaged == 1 else "are"
            warn_data(f"{self.path} is damaged: {damaged} of its finished windows {again} mapped again")

    @property
    def finished(self) -> list[FinishedWindow]:
        return self._log.finished

    def _tiles(self, at: Window) -> tuple[slice, slice]:
        return slice(at.r0 // TILE, -(-at.r1 // TILE)), slice(at.c0 // TILE, -(-at.c1 // TILE))

    def unfinished(self, windows: Iterable[Window]) -> list[Window]:
        return [at for at in windows if not self._done[self._tiles(at)].all()]

    def write_blank(self, at: Window) -> None:
        """Finish a window in which nothing is mapped."""
        shape = at.r1 - at.r0, at.c1 - at.c0
        self.write(at, {name: layer.blank_array((*shape, layer.bands)) for name, layer in self.layers.items()})

    def write(self, at: Window, values: Mapping[str, npt.NDArray[Any]], source: int = 0) -> None:
        """Write the values of a window by layer, (h, w) or (h, w, bands), and mark the window as finished.

        ``source`` is the checksum of what the window was made from; 0: unknown.
        """
        checksum = 0
        with translate_write_errors(self.path):
            for name, layer in self.layers.items():
                planes = np.moveaxis(np.atleast_3d(values[name]), 2, 0)  # (bands, h, w)
                content = memoryview(np.ascontiguousarray(planes, dtype=layer.dtype).tobytes())
                checksum = zlib.crc32(content, checksum)
                for start, size in self._runs(layer, at):
                    os.pwrite(self._file, content[:size], start)
                    content = content[size:]
            os.fsync(self._file)
            self._done[self._tiles(at)] = True
            window = FinishedWindow(at, source, checksum)
            os.pwrite(self._file, window.to_bytes(), _HEADER + self._log.add(window))

    def _checksum(self, at: Window) -> int:
        """CRC-32 of the values of a window in the file."""
        checksum = 0
        for layer in self.layers.values():
            for start, size in self._runs(layer, at):
                checksum = zlib.crc32(os.pread(self._file, size, start), checksum)
        return checksum

    def _runs(self, layer: PartialLayer, at: Window) -> Iterator[tuple[int, int]]:
        """Where a layer of a window lies in the file: start and size of stretches of bytes, band by band."""
        (rows, cols), item = self.shape, layer.dtype.itemsize
        # Whole rows are contiguous in the file.
        step = at.r1 - at.r0 if at.c1 - at.c0 == cols else 1
        for band in range(layer.bands):
            for row in range(at.r0, at.r1, step):
                start = self._starts[layer.name] + ((band * rows + row) * cols + at.c0) * item
                yield start, step * (at.c1 - at.c0) * item

    def read(self, name: str, r0: int, r1: int, band: int = 0) -> npt.NDArray[Any]:
        """Rows r0 to r1 of one band of a layer, (r1 - r0, columns)."""
        rows, cols = self.shape
        dtype = self.layers[name].dtype
        start = self._starts[name] + (band * rows + r0) * cols * dtype.itemsize
        content = os.pread(self._file, (r1 - r0) * cols * dtype.itemsize, start)
        return np.frombuffer(content, dtype).reshape(r1 - r0, cols)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGEST]


def _read_header(head: bytes) -> dict[str, str] | None:
    """The digests of what a map depends on, by name; None: the file is of another kind."""
    if not head.startswith(_MARK):
        return None
    try:
        digests = json.loads(head[len(_MARK) :].rstrip(b"\0"))
    except ValueError:
        return None
    return digests if isinstance(digests, dict) else None
