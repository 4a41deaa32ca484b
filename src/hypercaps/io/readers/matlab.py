"""MATLAB files: up to v7 through scipy, v7.3 (HDF5) through h5py."""

from __future__ import annotations

import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import scipy.io

from hypercaps.errors import SceneError
from hypercaps.io.arrays import StoredArray
from hypercaps.io.readers.hdf5_chunks import check_written
from hypercaps.io.readers.variables import check_claims


def matlab_arrays(path: Path) -> list[StoredArray]:
    """The numeric arrays of a .mat file up to v7."""
    _check_types(path)

    def load(key: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = scipy.io.loadmat(path, variable_names=[key])[key]
        return array

    numeric = {"double", "single", "logical"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    return [
        StoredArray(key, tuple(shape), lambda key=key: load(key))  # type: ignore[misc]
        for key, shape, kind in scipy.io.whosmat(path)
        if kind in numeric
    ]


# Data types of a v5 file that hold numbers; matrices; compressed matrices.
_NUMBERS, _MATRIX, _COMPRESSED = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 12, 13)), 14, 15


def _check_types(path: Path) -> None:
    """Refuse a v5 file with a data type that does not exist: scipy ends the whole program on one."""
    with path.open("rb") as file:
        head = file.read(128)
        if 0 in head[:4]:  # v4 has no types of this kind
            return
        order = "<" if head[126:] == b"IM" else ">"
        while len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}2I", tag)
            after = file.tell() + size
            start = file.read(min(size, 4096))  # flags, dimensions and name are far shorter
            if kind == _COMPRESSED:
                start = zlib.decompressobj().decompress(start, 4096)[8:]
            # Cells, structures and objects are laid out otherwise, and are not read.
            matrix = kind in (_MATRIX, _COMPRESSED) and start
            numeric = matrix and 6 <= struct.unpack_from(f"{order}I", start, 8)[0] & 0xFF <= 15
            place = 0
            for _ in range(3 if numeric else 0):  # flags, dimensions, name; up to 4 bytes are kept within the tag
                word, length = struct.unpack_from(f"{order}2I", start, place)
                place += 8 if word >> 16 else 8 + length + -length % 8
            if numeric and struct.unpack_from(f"{order}I", start, place)[0] & 0xFFFF not in _NUMBERS:
                raise ValueError("unknown data type")
            file.seek(after)


class _Turned:
    """A dataset that MATLAB wrote column by column, read with its axes in MATLAB's order."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.dataset = dataset
        self.shape = tuple(reversed(dataset.shape))
        self.dtype = dataset.dtype
        self.ndim = len(self.shape)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        key = key if isinstance(key, tuple) else (key,)
        full = key + (slice(None),) * (self.ndim - len(key))
        return np.asarray(self.dataset[full[::-1]]).transpose()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)


def hdf5_arrays(path: Path) -> list[StoredArray]:
    """The numeric arrays at the top of a v7.3 .mat file, read by window from the open file.

    Links and storage that lead outside the file are refused: they could read any file of the machine.
    """
    file = h5py.File(path, "r")
    found = []
    for key in file:
        # A soft link may lead to an external one: only what is stored right here is taken.
        if not isinstance(file.get(key, getlink=True), h5py.HardLink):
            raise SceneError(f"{path} refers elsewhere by its entry {key!r}: only what is inside it is read")
        item = file[key]
        if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "iufb":
            continue
        if item.external or item.is_virtual:
            raise SceneError(f"{path} keeps {key!r} in another file: only what is inside it is read")
        # MATLAB marks what it writes; arrays that others put there are in the usual order.
        stored = _Turned(item) if "MATLAB_class" in item.attrs else item
        found.append(StoredArray(key, stored.shape, partial(_checked, path, item, stored)))
    return found


def _checked(path: Path, dataset: h5py.Dataset, stored: Any) -> Any:
    """``stored``, if the file holds what it claims to."""
    size = path.stat().st_size
    check_claims(path, dataset.name, dataset.shape, dataset.chunks, dataset.dtype.itemsize, size)
    check_written(path, dataset, {})
    return stored
