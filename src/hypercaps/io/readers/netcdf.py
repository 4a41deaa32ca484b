"""NetCDF: version 4 is HDF5, the classic one is read as scipy reads its header, and its numbers are mapped anew."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from hypercaps.errors import SceneError
from hypercaps.io.arrays import StoredArray
from hypercaps.io.readers.cf import cube_arrays
from hypercaps.io.readers.variables import Part, Variable

CLASSIC_MARKS = (b"CDF\x01", b"CDF\x02", b"CDF\x05")


def classic_arrays(path: Path) -> list[StoredArray]:
    """The cubes and maps of a classic NetCDF file."""
    with path.open("rb") as file:
        if file.read(4) == CLASSIC_MARKS[2]:
            raise SceneError(f"{path} is NetCDF of the 64-bit data kind (CDF-5), which is not read: make it NetCDF-4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of views of the map that outlive it: they do not
        with scipy.io.netcdf_file(path, "r", mmap=True, maskandscale=False) as file:
            return cube_arrays({key: _variable(path, key, item) for key, item in file.variables.items()})


def _variable(path: Path, key: str, item: Any) -> Variable:
    data = item.data
    whole = data
    while isinstance(whole.base, np.ndarray):
        whole = whole.base  # the bytes of the file
    offset = data.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    dtype = data.dtype.newbyteorder("=") if data.dtype.kind in "iuf" else data.dtype
    take = _taker(path, data.shape, data.dtype, offset, data.strides)
    dims = tuple(str(dim) for dim in item.dimensions)
    attrs = {name: _attribute(value) for name, value in item._attributes.items()}
    return Variable(path, key, dims, tuple(map(int, data.shape)), dtype, attrs, take)


def _attribute(value: Any) -> Any:
    return value.decode("utf-8", "replace").rstrip("\0") if isinstance(value, bytes) else np.asarray(value)


def _taker(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int, strides: tuple[int, ...]
) -> Callable[[tuple[slice, ...]], Part]:
    def take(window: tuple[slice, ...]) -> Part:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            array: Any = np.ndarray(shape, dtype, buffer=mapped, offset=offset, strides=strides)
            part = array[window].astype(dtype.newbyteorder("="))  # a copy: the map is closed behind it
            del array
        return Part(part, None)

    return take
