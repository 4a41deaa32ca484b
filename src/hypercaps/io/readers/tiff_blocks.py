"""The blocks of a TIFF: deflated ones are decoded here, each once, and verified by their checksums.

GDAL would inflate a block a second time, after its checksum was verified, in several times the time that ISA-L takes.
Blocks with other codes are left to GDAL.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError
from hypercaps.io.readers.inflate import inflated
from hypercaps.io.readers.open_files import opened

Numbers = npt.NDArray[np.uint64]
Block = npt.NDArray[Any]  # (rows, columns, bands) of a block

_DEFLATE = (8, 32946)  # two codes for the same compression
_NO_PREDICTOR, _HORIZONTAL = 1, 2  # the latter: differences from the pixel to the left
_CACHE = 64 << 20  # bytes of decoded blocks that are kept while a file stays open, as in GDAL's cache


class Grid(NamedTuple):
    """How a directory divides the raster into blocks."""

    width: int
    height: int
    samples: int
    planes: int  # 1: the bands of a pixel are stored together
    tiled: bool
    across: int  # blocks in a row of blocks
    down: int  # rows of blocks
    columns: int  # of a block
    rows: int  # of a block
    bits: int  # of a number; 0: differs between bands

    @property
    def blocks(self) -> int:
        return self.across * self.down * self.planes

    @property
    def block_bytes(self) -> tuple[int, int]:
        """Uncompressed length of a block, and of one in the last row of blocks."""
        line = -(-self.columns * (self.samples // self.planes) * self.bits // 8)
        last = self.rows if self.tiled else self.height - (self.down - 1) * self.rows
        return self.rows * line, last * line


class Coding(NamedTuple):
    """How the numbers of a block are stored."""

    compression: int
    predictor: int
    number: np.dtype[Any] | None  # with its byte order; None: no plain numbers, such as 12 bits or reversed bits


class Blocks:
    """The tiles or strips of a file, as its first directory lists them."""

    def __init__(self, path: Path, grid: Grid, coding: Coding, offsets: Numbers, counts: Numbers) -> None:
        self.path, self.grid, self.coding, self.offsets, self.counts = path, grid, coding, offsets, counts
        self.written = (offsets > 0) & (counts > 0)
        self.missing = grid.blocks - int(np.count_nonzero(self.written))
        # Only deflated blocks have a checksum. Each is verified once, where GDAL decodes it.
        has_checksums = coding.compression in _DEFLATE and grid.bits
        self.unchecked = self.written.copy() if has_checksums else np.zeros(0, dtype=bool)

    def can_decode(self, number: np.dtype[Any]) -> bool:
        """Whether :meth:`read` gives what GDAL gives, which calls the numbers ``number``."""
        coding = self.coding
        return (
            coding.compression in _DEFLATE
            and coding.predictor in (_NO_PREDICTOR, _HORIZONTAL)
            and coding.number is not None
            and coding.number.newbyteorder("=") == number
            and not self.missing
        )

    def read(self, rows: slice, cols: slice, bands: list[int]) -> Block:
        """The numbers (h, w, bands) of a window; bands are counted from 1."""
        assert self.coding.number is not None
        shape = rows.stop - rows.start, cols.stop - cols.start, len(bands)
        window: Block = np.empty(shape, dtype=self.coding.number.newbyteorder("="))
        together = self.grid.planes == 1
        planes = {0: slice(None)} if together else {plane: _places(bands, plane) for plane in _planes(bands)}
        which = _as_slice([band - 1 for band in bands]) if together else [0]
        with self.path.open("rb") as file, self._decoded() as decoded:
            for number, plane, r0, c0 in self._touched(rows, cols, sorted(planes)):
                block = decoded.get(number)
                if block is None:
                    block = decoded[number] = self._decode(file, number, r0)
                    _forget_oldest(decoded)
                top, left = max(rows.start, r0), max(cols.start, c0)
                bottom, right = min(rows.stop, r0 + len(block)), min(cols.stop, c0 + self.grid.columns)
                target = window[top - rows.start : bottom - rows.start, left - cols.start : right - cols.start]
                target[:, :, planes[plane]] = block[top - r0 : bottom - r0, left - c0 : right - c0][:, :, which]
        return window

    def check(self, rows: slice, cols: slice, bands: list[int]) -> None:
        """Verify the checksums of the blocks that hold a window of these bands (counted from 1)."""
        if not self.unchecked.any():
            return
        full, last = self.grid.block_bytes
        with self.path.open("rb") as file:
            planes = _planes(bands) if self.grid.planes > 1 else [0]
            for number, _, _, _ in self._touched(rows, cols, planes):
                if self.unchecked[number]:
                    self._inflate(file, number, last, full)
                    self.unchecked[number] = False

    def _touched(self, rows: slice, cols: slice, planes: list[int]) -> Iterator[tuple[int, int, int, int]]:
        """Number, plane, first row and first column of each block that holds a part of a window."""
        grid = self.grid
        for plane in planes:
            for down in range(rows.start // grid.rows, -(-rows.stop // grid.rows)):
                for across in range(cols.start // grid.columns, -(-cols.stop // grid.columns)):
                    number = (plane * grid.down + down) * grid.across + across
                    yield number, plane, down * grid.rows, across * grid.columns

    def _decode(self, file: Any, number: int, first_row: int) -> Block:
        """The numbers of a block; the last strip may be shorter than the others."""
        grid, coding = self.grid, self.coding
        rows = grid.rows if grid.tiled else min(grid.rows, grid.height - first_row)
        shape = rows, grid.columns, grid.samples // grid.planes
        full = grid.block_bytes[0]
        raw = self._inflate(file, number, full // grid.rows * rows, full)
        stored: Block = np.frombuffer(raw, dtype=coding.number, count=rows * shape[1] * shape[2]).reshape(shape)
        if coding.predictor == _HORIZONTAL:
            return _sums(stored)
        return stored.astype(stored.dtype.newbyteorder("="), copy=False)

    def _inflate(self, file: Any, number: int, least: int, most: int) -> bytes:
        """The bytes of a block, with the right checksum (GDAL does not verify all)."""
        file.seek(int(self.offsets[number]))
        raw = inflated(file.read(int(self.counts[number])), most)
        if raw is None or len(raw) < least:
            raise SceneError(f"{self.path} is damaged: block {number:,} fails its checksum; get the file again")
        return raw

    @contextmanager
    def _decoded(self) -> Iterator[OrderedDict[int, Block]]:
        """Blocks that were decoded before, while the thread keeps the file open."""
        with opened(self, _no_blocks) as decoded:
            yield decoded


@contextmanager
def _no_blocks() -> Iterator[OrderedDict[int, Block]]:
    yield OrderedDict()


def _forget_oldest(decoded: OrderedDict[int, Block]) -> None:
    while len(decoded) > 1 and sum(block.nbytes for block in decoded.values()) > _CACHE:
        decoded.popitem(last=False)


def _sums(differences: Block) -> Block:
    """Undo the horizontal predictor: numbers are stored as differences from the pixel to the left, modulo 2^bits."""
    integer = np.dtype(f"u{differences.dtype.itemsize}")
    stored = differences.view(integer.newbyteorder(differences.dtype.byteorder))
    sums = np.empty(stored.shape, dtype=integer)
    sums[:, 0] = stored[:, 0]
    for col in range(1, stored.shape[1]):  # several times as fast as numpy's cumsum along this axis
        np.add(sums[:, col - 1], stored[:, col], out=sums[:, col])
    return sums.view(differences.dtype.newbyteorder("="))


def _planes(bands: list[int]) -> list[int]:
    return sorted({band - 1 for band in bands})


def _places(bands: list[int], plane: int) -> list[int]:
    """Where a window has the band of a plane."""
    return [place for place, band in enumerate(bands) if band - 1 == plane]


def _as_slice(numbers: list[int]) -> slice | list[int]:
    """A slice for numbers in a row, which is copied faster than a list."""
    if numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return slice(numbers[0], numbers[0] + len(numbers))
    return numbers
