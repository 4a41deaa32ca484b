"""Check that a TIFF holds what its first directory describes, before GDAL reads it.

GDAL reads a block that was never written as zeros, accepts a width changed by a flipped bit, and ignores the checksum
of some deflated blocks. The directory lists the position and length of every block, which is enough to notice.
"""

from __future__ import annotations

import re
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.limits import check_claim
from hypercaps.io.readers.inflate import inflated_length
from hypercaps.io.xml import parse_xml

Numbers = npt.NDArray[np.uint64]

_INTEGERS = {1: "u1", 3: "u2", 4: "u4", 16: "u8"}  # field types of unsigned integers; the last is BigTIFF's
_ASCII = 2
_TYPE_BYTES = {
    1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8,
}  # fmt: skip
_MAX_FIELDS = 4096
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, _STRIP_ROWS, _PLANAR = 256, 257, 258, 259, 277, 278, 284
_TILE_WIDTH, _TILE_HEIGHT, _SUB_DIRECTORIES = 322, 323, 330
_STRIPS, _TILES = (273, 279), (324, 325)  # tags of their offsets and of their lengths
_COG_MARK = b"GDAL_STRUCTURAL_METADATA"  # follows the header of a Cloud Optimized GeoTIFF
_DEFLATE = (8, 32946)  # two codes for the same compression
_METADATA, _NODATA = 42112, 42113  # GDAL's own text fields
_NUMBER = re.compile(rb"\s*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|nan|inf|1\.#\w+)\s*", re.IGNORECASE)


class Blocks:
    """The tiles or strips of a file, as its first directory lists them."""

    def __init__(self, path: Path, grid: _Grid, compression: int, offsets: Numbers, counts: Numbers) -> None:
        self.path, self.grid, self.offsets, self.counts = path, grid, offsets, counts
        self.written = (offsets > 0) & (counts > 0)
        self.missing = grid.blocks - int(np.count_nonzero(self.written))
        # Only deflated blocks have a checksum. Each is verified once.
        self.unchecked = self.written.copy() if compression in _DEFLATE and grid.bits else np.zeros(0, dtype=bool)

    def check(self, rows: slice, cols: slice, bands: list[int]) -> None:
        """Verify the checksums of the blocks that hold a window of these bands (counted from 1)."""
        if not self.unchecked.any():
            return
        grid = self.grid
        planes = sorted({band - 1 for band in bands}) if grid.planes > 1 else [0]
        down = np.arange(rows.start // grid.rows, -(-rows.stop // grid.rows))
        across = np.arange(cols.start // grid.columns, -(-cols.stop // grid.columns))
        touched = ((np.array(planes)[:, None, None] * grid.down + down[:, None]) * grid.across + across).ravel()
        with self.path.open("rb") as file:
            for block in touched[self.unchecked[touched]].tolist():
                file.seek(int(self.offsets[block]))
                if not self._is_intact(file.read(int(self.counts[block]))):
                    raise SceneError(f"{self.path} is damaged: block {block:,} fails its checksum; get the file again")
                self.unchecked[block] = False

    def _is_intact(self, deflated: bytes) -> bool:
        """Whether a block inflates to its expected length with the right checksum (GDAL does not verify all)."""
        full, last = self.grid.block_bytes
        length = inflated_length(deflated, full)
        return length is not None and length >= last


def check_tiff(path: Path) -> Blocks:
    """The blocks of a TIFF; refuses one whose directory describes more than the file holds."""
    with path.open("rb") as file:
        directory = _Directory(file, path)
        grid = _Grid.of(directory)
        offsets, counts = (directory.numbers(tag) for tag in (_TILES if grid.tiled else _STRIPS))
        _check_texts(directory)
    listed = min(offsets.size, counts.size)
    if listed < grid.blocks:
        raise SceneError(
            f"{path} describes {grid.height} rows x {grid.width} columns x {grid.samples} bands in {grid.blocks:,} "
            f"blocks but lists {listed:,}: get the whole file again"
        )
    compression = directory.one(_COMPRESSION, 1)
    blocks = Blocks(path, grid, compression, offsets[: grid.blocks], counts[: grid.blocks])
    _check_ends(directory, blocks)
    if compression == 1 and grid.bits:
        _check_lengths(blocks)
    elif blocks.written.any():  # a block is decompressed as a whole, however small the window
        check_claim(path, "a block", grid.block_bytes[0], int(blocks.counts[blocks.written].max()))
    return blocks


def _check_ends(directory: _Directory, blocks: Blocks) -> None:
    """Refuse blocks beyond the end of the file; warn of bytes after the last block."""
    size = np.uint64(directory.size)
    offsets, counts = blocks.offsets[blocks.written], blocks.counts[blocks.written]
    if (offsets > size).any() or (counts > size - np.minimum(offsets, size)).any():
        raise SceneError(
            f"{directory.path} is truncated or damaged: it has {directory.size:,} bytes and describes blocks beyond "
            "them; get the whole file again"
        )
    end = max(directory.end, int((offsets + counts).max(initial=0)) + directory.trailer)
    if directory.is_last and directory.size > end:
        # Inserted bytes, as a transfer in text mode adds them, push the last ones past the described end.
        extra = f"{directory.path.name} has {directory.size - end:,} bytes more than its directory describes"
        warn_data(f"{extra}: it may be damaged")


def _check_lengths(blocks: Blocks) -> None:
    """Check the lengths of uncompressed blocks, which follow from their rows and columns."""
    path, grid, counts, written = blocks.path, blocks.grid, blocks.counts, blocks.written
    full, last = (min(length, 1 << 63) for length in grid.block_bytes)
    expected = np.full((grid.planes, grid.down, grid.across), full, dtype=np.uint64)
    expected[:, -1] = last
    needed = expected.ravel()
    if (counts < needed)[written].any():
        raise SceneError(f"{path} is damaged: blocks are too short for the rows and columns it describes; get it again")
    if ((counts > needed) & (counts != full))[written].any():  # a last strip may be padded
        warn_data(f"{path.name} has blocks longer than the rows and columns it describes need: it may be damaged")


def _check_texts(directory: _Directory) -> None:
    """Check GDAL's metadata and nodata: GDAL ignores XML that it can't parse, and reads any other word as nodata 0."""
    metadata, nodata = directory.text(_METADATA), directory.text(_NODATA)
    if metadata:
        parse_xml(metadata, f"the metadata in {directory.path}")
    if nodata is not None and not _NUMBER.fullmatch(nodata):
        raise directory.damaged(f"its nodata is {nodata[:40].decode('latin-1')!r}, which is not a number")


class _Grid(NamedTuple):
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

    @classmethod
    def of(cls, directory: _Directory) -> _Grid:
        width, height, samples = directory.one(_WIDTH, 0), directory.one(_HEIGHT, 0), directory.one(_SAMPLES, 1)
        tiled = directory.has_number(_TILE_WIDTH)
        columns = directory.one(_TILE_WIDTH, 0) if tiled else width
        rows = directory.one(_TILE_HEIGHT, 0) if tiled else min(directory.one(_STRIP_ROWS, height), height)
        if min(width, height, samples, columns, rows) < 1:
            raise directory.damaged("it does not give its size")
        planes = samples if directory.one(_PLANAR, 1) == 2 else 1
        bits = directory.numbers(_BITS, 1)
        same_bits = int(bits[0]) if (bits == bits[0]).all() else 0
        across, down = -(-width // columns), -(-height // rows)
        return cls(width, height, samples, planes, tiled, across, down, columns, rows, same_bits)

    @property
    def blocks(self) -> int:
        return self.across * self.down * self.planes

    @property
    def block_bytes(self) -> tuple[int, int]:
        """Uncompressed length of a block, and of one in the last row of blocks."""
        line = -(-self.columns * (self.samples // self.planes) * self.bits // 8)
        last = self.rows if self.tiled else self.height - (self.down - 1) * self.rows
        return self.rows * line, last * line


class _Directory:
    """The integer and text fields of a TIFF's first directory."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self.file, self.path, self.size = file, path, path.stat().st_size
        self.order: Literal["<", ">"] = "<" if file.read(2) == b"II" else ">"
        is_big = self._int(file.read(2)) == 43  # BigTIFF: positions and counts of 8 bytes
        self.inline, count_size = (8, 8) if is_big else (4, 2)  # longer values are stored elsewhere in the file
        entry = np.dtype([("tag", "u2"), ("type", "u2"), ("count", f"u{self.inline}"), ("value", f"V{self.inline}")])
        file.seek(8 if is_big else 4)
        start = self._int(file.read(self.inline))
        self.trailer = 4 if file.read(len(_COG_MARK)) == _COG_MARK else 0  # bytes after each block of a COG
        file.seek(min(start, self.size))
        count = self._int(file.read(count_size))
        listed = file.read(min(count, _MAX_FIELDS) * entry.itemsize)
        if not 0 < count <= _MAX_FIELDS or len(listed) < count * entry.itemsize:
            raise self.damaged("its directory is not in it")
        following = self._int(file.read(self.inline))
        self.end = file.tell()  # of everything described, blocks aside
        self.fields: dict[int, tuple[int, int, bytes]] = {}  # by tag: type, count, value or its position
        for tag, kind, held, value in np.frombuffer(listed, entry.newbyteorder(self.order)).tolist():
            length = held * _TYPE_BYTES.get(kind, 0)
            if length > self.inline:
                self.end = max(self.end, self._int(value) + length)
            self.fields[tag] = (kind, held, value)
        self.is_last = following == 0 and not self.has_number(_SUB_DIRECTORIES)
        if max(self.end, following) > self.size:  # GDAL would silently leave it out
            raise self.damaged("something that its directory describes is not in it")

    def has_number(self, tag: int) -> bool:
        return tag in self.fields and self.fields[tag][0] in _INTEGERS

    def text(self, tag: int) -> bytes | None:
        kind, held, value = self.fields.get(tag, (0, 0, b""))
        return self._value(held, value).partition(b"\0")[0] if kind == _ASCII else None

    def one(self, tag: int, default: int) -> int:
        return int(self.numbers(tag, default)[0])

    def numbers(self, tag: int, default: int | None = None) -> Numbers:
        if default is not None and not self.has_number(tag):
            return np.array([default], dtype=np.uint64)
        kind, held, value = self.fields[tag] if self.has_number(tag) else (1, 0, b"")
        dtype = np.dtype(_INTEGERS[kind]).newbyteorder(self.order)
        numbers: npt.NDArray[Any] = np.frombuffer(self._value(held * dtype.itemsize, value), dtype)
        if not numbers.size:
            raise self.damaged("its directory lacks a field that every TIFF has")
        return numbers.astype(np.uint64)

    def _value(self, length: int, value: bytes) -> bytes:
        if length <= self.inline:
            return value[:length]
        self.file.seek(self._int(value))
        return self.file.read(length)

    def damaged(self, how: str) -> SceneError:
        return SceneError(f"{self.path} ({self.size:,} bytes) is truncated or damaged: {how}; get the whole file again")

    def _int(self, raw: bytes) -> int:
        return int.from_bytes(raw, "little" if self.order == "<" else "big")
