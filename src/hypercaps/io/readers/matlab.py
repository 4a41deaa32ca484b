"""MATLAB files: up to v7 with scipy, v7.3 with the guarded HDF5 reader."""

from __future__ import annotations

import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.io

from hypercaps.io.arrays import StoredArray
from hypercaps.io.readers.hdf5 import top_level
from hypercaps.io.readers.variables import Variable


def matlab_arrays(path: Path) -> list[StoredArray]:
    """The numeric arrays of a .mat file up to v7."""
    _check_types(path)
    numeric = {"double", "single", "logical"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    listed = [(key, shape) for key, shape, kind in scipy.io.whosmat(path) if kind in numeric]
    return [StoredArray(key, tuple(shape), partial(_load, path, key)) for key, shape in listed]


def _load(path: Path, key: str) -> Any:
    return scipy.io.loadmat(path, variable_names=[key])[key]


# Data types of a v5 file that hold numbers; matrices; compressed matrices.
_NUMBERS, _MATRIX, _COMPRESSED = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 12, 13)), 14, 15


def _check_types(path: Path) -> None:
    """Refuse a v5 file with an undefined data type, which crashes scipy and the process."""
    with path.open("rb") as file:
        head = file.read(128)
        if 0 in head[:4]:  # v4 has other types
            return
        order = "<" if head[126:] == b"IM" else ">"
        while len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}2I", tag)
            after = file.tell() + size
            start = file.read(min(size, 4096))  # flags, dimensions and name are much shorter
            if kind == _COMPRESSED:
                start = zlib.decompressobj().decompress(start, 4096)[8:]
            # Cells, structures and objects have another layout and are not read.
            matrix = kind in (_MATRIX, _COMPRESSED) and start
            numeric = matrix and 6 <= struct.unpack_from(f"{order}I", start, 8)[0] & 0xFF <= 15
            place = 0
            for _ in range(3 if numeric else 0):  # flags, dimensions, name; values of up to 4 bytes are in the tag
                word, length = struct.unpack_from(f"{order}2I", start, place)
                place += 8 if word >> 16 else 8 + length + -length % 8
            if numeric and struct.unpack_from(f"{order}I", start, place)[0] & 0xFFFF not in _NUMBERS:
                raise ValueError("unknown data type")
            file.seek(after)


class _Dataset:
    """A dataset of an HDF5 file that slices like an array; the file is open only while a slice is read."""

    def __init__(self, variable: Variable) -> None:
        # MATLAB marks its arrays, which are column-major; those of other programs are row-major.
        self.variable, self.is_reversed = variable, "MATLAB_class" in variable.attrs
        self.shape = variable.shape[::-1] if self.is_reversed else variable.shape
        self.dtype, self.ndim = variable.dtype, len(self.shape)

    def __getitem__(self, key: slice | tuple[slice, ...]) -> npt.NDArray[Any]:
        some = key if isinstance(key, tuple) else (key,)
        full = some + (slice(None),) * (self.ndim - len(some))
        bounds = [one.indices(length) for one, length in zip(full, self.shape, strict=True)]
        window = tuple(slice(start, stop) for start, stop, _ in bounds)
        return self.variable.take(window[::-1]).stored.T if self.is_reversed else self.variable.take(window).stored

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[()], dtype=dtype)

    def checked(self) -> _Dataset:
        """Itself, after a check that the file holds all of it."""
        self.variable.check()
        return self


def hdf5_arrays(path: Path) -> list[StoredArray]:
    """The numeric arrays at the top level of a v7.3 .mat file or a plain HDF5 file, read by window."""
    datasets = [_Dataset(variable) for variable in top_level(path).values()]
    return [StoredArray(dataset.variable.key, dataset.shape, dataset.checked) for dataset in datasets]
