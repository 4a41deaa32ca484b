"""Does a TIFF hold what it describes? Its directory against its size, before GDAL is asked to believe either.

GDAL reads a block that was never written as zeros, takes a width that was changed by a flipped bit at its word, and
passes over the checksum of some deflated blocks. The first directory of a file lists where each block lies: that is
enough to tell.
"""

from __future__ import annotations

import re
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.xml import parse_xml

Numbers = npt.NDArray[np.uint64]

_TYPES = {1: "u1", 3: "u2", 4: "u4", 16: "u8"}  # of fields that hold whole numbers; the last is BigTIFF's
_BYTES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}  # of all
_MOST_FIELDS = 4096
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, _STRIP_ROWS, _PLANAR = 256, 257, 258, 259, 277, 278, 284
_TILE_WIDTH, _TILE_HEIGHT, _MORE = 322, 323, 330
_OPTIMIZED = b"GDAL_STRUCTURAL_METADATA"  # where a Cloud Optimized GeoTIFF has it
_DEFLATED = (8, 32946)  # ways to write the same compression
_METADATA, _NODATA = 42112, 42113  # GDAL's own fields, of text
_NUMBER = re.compile(rb"\s*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|nan|inf|1\.#\w+)\s*", re.IGNORECASE)
_STRIPS, _TILES = (273, 279), (324, 325)  # where they lie, and how long they are


class Blocks:
    """The tiles or strips of a file, as its first directory lists them."""

    def __init__(self, path: Path, grid: _Grid, compression: int, offsets: Numbers, counts: Numbers) -> None:
        self.path, self.grid, self.offsets, self.counts = path, grid, offsets, counts
        self.written = (offsets > 0) & (counts > 0)
        # Only deflated blocks have a checksum. Each is looked at once.
        self.unchecked = self.written.copy() if compression in _DEFLATED and grid.bits else np.zeros(0, dtype=bool)

    @property
    def missing(self) -> int:
        """How many were never written."""
        return self.grid.blocks - int(np.count_nonzero(self.written))

    def check(self, rows: slice, cols: slice, bands: list[int]) -> None:
        """Compare the checksums of the blocks that a window of these bands (from 1) is read from."""
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
                if not self._is_whole(file.read(int(self.counts[block]))):
                    raise SceneError(f"{self.path} is damaged: block {block:,} is not what was written; get it again")
                self.unchecked[block] = False

    def _is_whole(self, deflated: bytes) -> bool:
        inflating = zlib.decompressobj()
        full, last = self.grid.block_bytes
        try:
            length = len(inflating.decompress(deflated, full + 1))  # no more, whatever it would become
        except zlib.error:
            return False
        return inflating.eof and last <= length <= full


def check_tiff(path: Path) -> Blocks:
    """The blocks of a TIFF; one whose directory describes more than the file holds is refused."""
    with path.open("rb") as file:
        directory = _Directory(file, path)
        grid = _Grid.of(directory)
        offsets, counts = (directory.numbers(tag) for tag in (_TILES if grid.tiled else _STRIPS))
        _check_texts(directory)
    held = min(offsets.size, counts.size)
    if held < grid.blocks:
        raise SceneError(
            f"{path} describes {grid.height} rows x {grid.width} columns x {grid.samples} bands in {grid.blocks:,} "
            f"blocks but lists {held:,}: get the whole file again"
        )
    compression = directory.one(_COMPRESSION, 1)
    blocks = Blocks(path, grid, compression, offsets[: grid.blocks], counts[: grid.blocks])
    room = np.uint64(directory.size)
    offsets, counts, written = blocks.offsets, blocks.counts, blocks.written
    if (offsets > room)[written].any() or (counts > room - np.minimum(offsets, room))[written].any():
        raise SceneError(
            f"{path} is truncated or damaged: it has {directory.size:,} bytes and describes blocks beyond them; get "
            "the whole file again"
        )
    if compression == 1 and grid.bits:
        _check_lengths(path, grid, counts, written)
    ends = (offsets + counts)[written]
    if (
        directory.last
        and (beyond := directory.size - max(directory.end, int(ends.max(initial=0)) + directory.trailer)) > 0
    ):
        # Bytes that came in between, as a transfer as text adds them, push the last ones out at the end.
        warn_data(f"{path.name} has {beyond:,} bytes more than its directory describes: it may be damaged")
    return blocks


def _check_lengths(path: Path, grid: _Grid, counts: Numbers, written: npt.NDArray[np.bool_]) -> None:
    """Without compression a block's length follows from its sides: one of another length was described wrongly."""
    full, last = (min(length, 1 << 63) for length in grid.block_bytes)
    of_rows = np.full((grid.planes, grid.down, grid.across), full, dtype=np.uint64)
    of_rows[:, -1] = last
    needed = of_rows.ravel()
    if (counts < needed)[written].any():
        raise SceneError(
            f"{path} is damaged: it has blocks too short for the rows and columns it describes; get it again"
        )
    if ((counts > needed) & (counts != full))[written].any():  # a last strip may be filled up
        warn_data(f"{path.name} has blocks longer than the rows and columns it describes need: it may be damaged")


def _check_texts(directory: _Directory) -> None:
    """GDAL passes over metadata that it can't parse, scale and wavelengths with it, and takes any word as nodata 0."""
    metadata, nodata = directory.text(_METADATA), directory.text(_NODATA)
    if metadata:
        parse_xml(metadata, f"the metadata in {directory.path}")
    if nodata is not None and not _NUMBER.fullmatch(nodata):
        raise directory.damaged(f"its nodata is {nodata[:40].decode('latin-1')!r}, which is no number")


class _Grid(NamedTuple):
    """The blocks that a directory describes."""

    width: int
    height: int
    samples: int
    planes: int  # 1: the bands of a pixel lie together
    tiled: bool
    across: int
    down: int
    columns: int  # of a block
    rows: int
    bits: int  # of a number; 0: not the same for all bands

    @classmethod
    def of(cls, directory: _Directory) -> _Grid:
        width, height, samples = directory.one(_WIDTH, 0), directory.one(_HEIGHT, 0), directory.one(_SAMPLES, 1)
        tiled = directory.has(_TILE_WIDTH)
        columns = directory.one(_TILE_WIDTH, 0) if tiled else width
        rows = directory.one(_TILE_HEIGHT, 0) if tiled else min(directory.one(_STRIP_ROWS, height), height)
        if min(width, height, samples, columns, rows) < 1:
            raise directory.damaged("it does not say how large it is")
        bits = directory.numbers(_BITS, 1)
        return cls(
            width,
            height,
            samples,
            samples if directory.one(_PLANAR, 1) == 2 else 1,
            tiled,
            -(-width // columns),
            -(-height // rows),
            columns,
            rows,
            int(bits[0]) if (bits == bits[0]).all() else 0,
        )

    @property
    def blocks(self) -> int:
        return self.across * self.down * self.planes

    @property
    def block_bytes(self) -> tuple[int, int]:
        """Of a block without compression, and of one in the last row of blocks."""
        line = -(-self.columns * (self.samples // self.planes) * self.bits // 8)
        last = self.rows if self.tiled else self.height - (self.down - 1) * self.rows
        return self.rows * line, last * line


class _Directory:
    """The first directory of a TIFF: its fields of whole numbers."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self.file, self.path, self.size = file, path, path.stat().st_size
        self.little = file.read(2) == b"II"
        big = self._number(file.read(2)) == 43
        start_size, count_size, entry, self.inline = (8, 8, 20, 8) if big else (4, 2, 12, 4)
        file.seek(8 if big else 4)
        start = self._number(file.read(start_size))
        optimized = file.read(len(_OPTIMIZED)) == _OPTIMIZED
        file.seek(min(start, self.size))
        count = self._number(file.read(count_size))
        listed = file.read(min(count, _MOST_FIELDS) * entry)
        if not 0 < count <= _MOST_FIELDS or len(listed) < count * entry:
            raise self.damaged("its directory is not in it")
        following = self._number(file.read(start_size))
        self.fields: dict[int, tuple[np.dtype[Any], int, bytes]] = {}
        self.texts: dict[int, tuple[int, bytes]] = {}
        self.end = file.tell()  # of all that it describes, blocks apart
        self.trailer = 4 if optimized else 0  # bytes that follow a block
        for at in range(0, len(listed), entry):
            tag, kind = self._number(listed[at : at + 2]), self._number(listed[at + 2 : at + 4])
            held = self._number(listed[at + 4 : at + entry - self.inline])
            value = listed[at + entry - self.inline : at + entry]
            if held * _BYTES.get(kind, 0) > self.inline:
                self.end = max(self.end, self._number(value) + held * _BYTES[kind])
            if kind == 2:
                self.texts[tag] = (held, value)
            if kind in _TYPES:
                self.fields[tag] = (np.dtype(_TYPES[kind]).newbyteorder("<" if self.little else ">"), held, value)
        self.last = following == 0 and _MORE not in self.fields
        if max(self.end, following) > self.size:  # GDAL would leave it out, whatever it is
            raise self.damaged("something that its directory describes is not in it")

    def text(self, tag: int) -> bytes | None:
        """A field of text, without what ends it."""
        if tag not in self.texts:
            return None
        held, value = self.texts[tag]
        return (value[:held] if held <= self.inline else self._at(self._number(value), held)).partition(b"\0")[0]

    def _at(self, place: int, length: int) -> bytes:
        self.file.seek(place)
        return self.file.read(length)

    def has(self, tag: int) -> bool:
        return tag in self.fields

    def one(self, tag: int, default: int) -> int:
        return int(self.numbers(tag, default)[0])

    def numbers(self, tag: int, default: int | None = None) -> Numbers:
        """All numbers of a field; they lie in the file if they don't fit into the directory."""
        if tag not in self.fields and default is not None:
            return np.array([default], dtype=np.uint64)
        dtype, count, value = self.fields.get(tag, (np.dtype("u1"), 0, b""))
        length = count * dtype.itemsize
        if length > self.inline:
            value = self._at(self._number(value), length)
        numbers: npt.NDArray[Any] = np.frombuffer(value[:length], dtype)
        if not numbers.size:
            raise self.damaged("its directory lacks what every TIFF has")
        return numbers.astype(np.uint64)

    def damaged(self, how: str) -> SceneError:
        return SceneError(f"{self.path} ({self.size:,} bytes) is truncated or damaged: {how}; get the whole file again")

    def _number(self, raw: bytes) -> int:
        return int.from_bytes(raw, "little" if self.little else "big")
