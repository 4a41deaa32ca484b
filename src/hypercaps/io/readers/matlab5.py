"""MATLAB files of versions 5 to 7: a list of elements, each an array, most of them deflated.

Only an element's header is read to list the arrays. scipy is not used: it decompresses whatever a file claims, and
crashes on undefined data types.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError
from hypercaps.io.arrays import LoadedOnce
from hypercaps.io.limits import check_claim

_FILE_HEADER = 128  # bytes
_VERSION = 0x0100
_MATRIX, _COMPRESSED = 14, 15  # types of elements
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}  # of numbers
_CLASSES = range(6, 16)  # of arrays of numbers; cells, structures, text and objects have others
_COMPLEX = 0x800
_HEADER = 4096  # bytes that contain the header of any array of numbers
_PIECE = 1 << 20  # bytes that are read or inflated at once


@dataclass(frozen=True)
class MatlabArray:
    """An array of numbers of which only the header was read."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]  # as stored: MATLAB stores whole doubles as small integers
    is_complex: bool
    position: int  # of the element in the file
    stored: int  # bytes of the element in the file
    is_compressed: bool
    start: int  # of the numbers in the element, inflated

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def load(self) -> LoadedOnce:
        if self.is_complex:
            raise SceneError(f"{self.path} holds complex numbers in {self.name!r}: real numbers are expected")
        check_claim(self.path, f"array {self.name!r}", self.nbytes, self.stored)
        return LoadedOnce(self.shape, self.dtype.newbyteorder("="), partial(_read, self))


def list_arrays(path: Path) -> list[MatlabArray]:
    """The arrays of numbers of a file, in its order."""
    size, arrays = path.stat().st_size, []
    with path.open("rb") as file:
        head = file.read(_FILE_HEADER)
        order = "<" if head[126:] == b"IM" else ">"
        if struct.unpack(f"{order}H", head[124:126]) != (_VERSION,):
            raise ValueError("unknown version")
        while tag := file.read(8):
            kind, stored = struct.unpack(f"{order}2I", tag)
            position = file.tell()
            if kind not in (_MATRIX, _COMPRESSED) or position + stored > size:
                raise ValueError("not an element, or a truncated one")
            start = file.read(min(stored, _HEADER))
            header = _header(start, order, is_compressed=kind == _COMPRESSED)
            if header is not None:
                arrays.append(MatlabArray(path, *header[:-1], position, stored, kind == _COMPRESSED, header.start))
            file.seek(position + stored)
    return arrays


class _Header(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_complex: bool
    start: int


class _Part(NamedTuple):
    """One of the parts of an array: flags, lengths, name, numbers."""

    kind: int
    begin: int
    length: int
    end: int  # with its padding


def _header(start: bytes, order: str, *, is_compressed: bool) -> _Header | None:
    """The header at the start of an element; None if it is no array of numbers, or MATLAB's own one without a name."""
    skipped = 8 if is_compressed else 0  # what is compressed has its own tag
    if is_compressed:
        start = zlib.decompressobj().decompress(start, _HEADER)
    if not start:  # an empty matrix
        return None
    flags = _part(start, order, skipped)
    word = struct.unpack_from(f"{order}I", start, flags.begin)[0]
    if word & 0xFF not in _CLASSES:
        return None
    lengths = _part(start, order, flags.end)
    shape = struct.unpack_from(f"{order}{lengths.length // 4}i", start, lengths.begin)
    name = _part(start, order, lengths.end)
    numbers = _part(start, order, name.end)
    dtype = np.dtype(_TYPES[numbers.kind]).newbyteorder("<" if order == "<" else ">")
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != numbers.length:
        raise ValueError("numbers do not fill their array")
    text = start[name.begin : name.begin + name.length].decode("latin-1").rstrip("\0")
    return _Header(text, shape, dtype, bool(word & _COMPLEX), numbers.begin) if text else None


def _part(start: bytes, order: str, at: int) -> _Part:
    """The part at a place; one of up to 4 bytes is inside its tag."""
    kind, length = struct.unpack_from(f"{order}2I", start, at)
    if kind >> 16:
        return _Part(kind & 0xFFFF, at + 4, kind >> 16, at + 8)
    return _Part(kind, at + 8, length, at + 8 + length + -length % 8)


def _read(array: MatlabArray) -> npt.NDArray[Any]:
    """The numbers of an array, in native byte order."""
    raw = np.empty(array.nbytes, dtype=np.uint8)
    with array.path.open("rb") as file:
        file.seek(array.position)
        pieces = _inflated(file, array.stored) if array.is_compressed else _pieces(file, array.stored)
        _fill(raw, pieces, array.start)
    numbers = raw.view(array.dtype).reshape(array.shape, order="F")
    return numbers.astype(array.dtype.newbyteorder("="), copy=False)


def _fill(raw: npt.NDArray[np.uint8], pieces: Iterator[bytes], start: int) -> None:
    """Fill ``raw`` with what begins at ``start``; up to 7 bytes of padding may follow."""
    place = -start
    for piece in pieces:
        skipped = max(0, -place)
        part = piece[skipped : raw.size - place]
        begin = max(0, place)
        raw[begin : begin + len(part)] = np.frombuffer(part, dtype=np.uint8)
        place += len(piece)
        if place > raw.size + 7:
            raise ValueError("an element is longer than its array")
    if place < raw.size:
        raise EOFError("an element is shorter than its array")


def _pieces(file: IO[bytes], stored: int) -> Iterator[bytes]:
    while stored > 0 and (piece := file.read(min(stored, _PIECE))):
        stored -= len(piece)
        yield piece


def _inflated(file: IO[bytes], stored: int) -> Iterator[bytes]:
    """The inflated bytes of an element in pieces, up to and with its checksum."""
    inflater = zlib.decompressobj()
    for piece in _pieces(file, stored):
        while piece and not inflater.eof:
            yield inflater.decompress(piece, _PIECE)
            piece = inflater.unconsumed_tail
    yield inflater.flush()
    if not inflater.eof:
        raise EOFError("an element ends before its checksum")
