"""Check that a TIFF holds what its first directory describes, before GDAL reads it.

GDAL reads a block that was never written as zeros, accepts a width changed by a flipped bit, and ignores the checksum
of some deflated blocks. The directory lists the position and length of every block, which is enough to notice.
"""

from __future__ import annotations

import re
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.limits import check_claim
from hypercaps.io.readers.tiff_blocks import Blocks, Coding, Grid, Numbers
from hypercaps.io.xml import parse_xml

_INTEGERS = {1: "u1", 3: "u2", 4: "u4", 16: "u8"}  # field types of unsigned integers; the last is BigTIFF's
_ASCII = 2
_TYPE_BYTES = {
    1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8,
}  # fmt: skip
_MAX_FIELDS = 4096
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, _STRIP_ROWS, _PLANAR = 256, 257, 258, 259, 277, 278, 284
_TILE_WIDTH, _TILE_HEIGHT, _SUB_DIRECTORIES = 322, 323, 330
_PHOTOMETRIC, _FILL_ORDER, _PREDICTOR, _FORMAT = 262, 266, 317, 339
_STRIPS, _TILES = (273, 279), (324, 325)  # tags of their offsets and of their lengths
_COG_MARK = b"GDAL_STRUCTURAL_METADATA"  # follows the header of a Cloud Optimized GeoTIFF
_KINDS = {1: "u", 2: "i", 3: "f"}  # of numbers, by their format in the file
_PLAIN_PHOTOMETRIC = (0, 1, 2, 3)  # of colours that a reader gives as they are stored
_METADATA, _NODATA = 42112, 42113  # GDAL's own text fields
_NUMBER = re.compile(rb"\s*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|nan|inf|1\.#\w+)\s*", re.IGNORECASE)


def check_tiff(path: Path) -> Blocks:
    """The blocks of a TIFF; refuses one whose directory describes more than the file holds."""
    with path.open("rb") as file:
        directory = _Directory(file, path)
        grid = _grid(directory)
        offsets, counts = (directory.numbers(tag) for tag in (_TILES if grid.tiled else _STRIPS))
        coding = _coding(directory, grid.bits)
        _check_texts(directory)
    listed = min(offsets.size, counts.size)
    if listed < grid.blocks:
        raise SceneError(
            f"{path} describes {grid.height} rows x {grid.width} columns x {grid.samples} bands in {grid.blocks:,} "
            f"blocks but lists {listed:,}: get the whole file again"
        )
    blocks = Blocks(path, grid, coding, offsets[: grid.blocks], counts[: grid.blocks])
    _check_ends(directory, blocks)
    if blocks.coding.compression == 1 and grid.bits:
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


def _grid(directory: _Directory) -> Grid:
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
    return Grid(width, height, samples, planes, tiled, across, down, columns, rows, same_bits)


def _coding(directory: _Directory, bits: int) -> Coding:
    formats = directory.numbers(_FORMAT, 1)
    kind = _KINDS.get(int(formats[0])) if (formats == formats[0]).all() else None
    plain = (
        kind is not None
        and bits in (8, 16, 32, 64)
        and (kind != "f" or bits in (32, 64))
        and directory.one(_FILL_ORDER, 1) == 1
        and directory.one(_PHOTOMETRIC, 1) in _PLAIN_PHOTOMETRIC
    )
    number = np.dtype(f"{directory.order}{kind}{bits // 8}") if plain else None
    return Coding(directory.one(_COMPRESSION, 1), directory.one(_PREDICTOR, 1), number)


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
