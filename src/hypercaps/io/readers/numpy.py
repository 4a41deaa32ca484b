"""numpy files: .npy is read by window from disk, an array of .npz as a whole. Pickled arrays are refused."""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import LoadedOnce, StoredArray
from hypercaps.io.limits import check_claim

# How long the length of a header is, and what reads it, by version; 3.0 has field names only.
_HEADERS = {(1, 0): (2, npy.read_array_header_1_0), (2, 0): (4, npy.read_array_header_2_0)}
_LONGEST_HEADER = 1 << 16  # bytes


def numpy_arrays(path: Path) -> list[StoredArray]:
    with path.open("rb") as file:
        is_archive = file.read(2) == b"PK"
    if is_archive:
        return [StoredArray(one.key, one.shape, one.load) for one in _members(path)]
    array = _OnDisk(path)
    _warn_of_rest(path.name, path.stat().st_size - array.end)
    return [StoredArray("", array.shape, lambda: array)]


def _warn_of_rest(name: str, rest: int) -> None:
    if rest > 0:  # inserted bytes, as a transfer in text mode adds them, shift all that follows
        warn_data(f"{name} has {rest:,} bytes more than its header describes: it may be damaged")


class _OnDisk:
    """A .npy file, mapped again for every slice: pages touched by a map that stays open would stay in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            _header(file)  # numpy would read one of any length
        mapped: np.memmap[Any, Any] = np.load(self.path, mmap_mode="r", allow_pickle=False)  # checks the header
        self.shape, self.dtype, self.ndim = mapped.shape, mapped.dtype, mapped.ndim
        self.order: Literal["C", "F"] = "C" if mapped.flags.c_contiguous else "F"
        self.start = mapped.offset  # of the numbers, in bytes
        self.end = mapped.offset + mapped.nbytes  # of the described part of the file

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        mapped = np.memmap(self.path, self.dtype, "r", self.start, self.shape, self.order)
        return np.array(mapped[key])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[...], dtype=dtype)


@dataclass(frozen=True)
class _Member:
    """An array of an archive, of which only the header was read."""

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: int  # bytes, compressed

    def load(self) -> LoadedOnce:
        claimed = math.prod(self.shape) * self.dtype.itemsize
        check_claim(self.path, f"array {self.key!r}", claimed, self.stored)
        return LoadedOnce(self.shape, self.dtype, partial(_read_member, self.path, f"{self.key}.npy"))


def _members(path: Path) -> list[_Member]:
    members = []
    with zipfile.ZipFile(path) as archive:
        if not any(name.endswith(".npy") for name in archive.namelist()):
            raise SceneError(
                f"{path} is a zip archive without arrays (.npy), shapefile or KML in it: unpack it and name what it "
                "holds"
            )
        for entry in map(archive.getinfo, dict.fromkeys(archive.namelist())):  # of two with one name the last counts
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise SceneError(f"{path} is compressed in a way that numpy does not use: save it with numpy again")
            if not entry.filename.endswith(".npy"):
                raise ValueError(f"{entry.filename} is no array")
            with archive.open(entry) as file:
                shape, dtype = _header(file)
                rest = entry.file_size - file.tell() - math.prod(shape) * dtype.itemsize
            if rest < 0:
                raise EOFError(f"{entry.filename} is shorter than its header says")
            _warn_of_rest(f"{entry.filename} in {path.name}", rest)
            members.append(_Member(path, entry.filename.removesuffix(".npy"), shape, dtype, entry.compress_size))
    return members


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    width, parse = _HEADERS[npy.read_magic(file)]
    length = file.read(width)
    if (size := int.from_bytes(length, "little")) > _LONGEST_HEADER:  # in an archive it may be stored in a few bytes
        raise ValueError(f"a header of {size} bytes")
    shape, _, dtype = parse(io.BytesIO(length + file.read(size)))
    if dtype.hasobject:
        raise ValueError("pickled objects are not loaded")
    return shape, dtype


def _read_member(path: Path, name: str) -> npt.NDArray[Any]:
    with zipfile.ZipFile(path) as archive, archive.open(name) as file:
        array: npt.NDArray[Any] = npy.read_array(file, allow_pickle=False)
        return array
