"""Classic NetCDF, through scipy. NetCDF-4 is HDF5 and is read by hdf5.py."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.marks import CLASSIC_MARKS
from hypercaps.io.readers.cf import cube_arrays
from hypercaps.io.readers.variables import Part, Slices, Variable, attribute

_PADDING = 3  # bytes: numbers of a variable are filled up to a multiple of four bytes


class _ClassicVariable(Variable):
    def take(self, window: Slices) -> Part:
        with _opened(self.path) as variables:
            return Part(variables[self.key].data[window].astype(self.dtype), None)  # a copy of the memory map


def classic_arrays(path: Path) -> list[StoredArray]:
    return cube_arrays(classic_variables(path))


def classic_variables(path: Path) -> dict[str, Variable]:
    """All variables of a file, by name."""
    with path.open("rb") as file:
        if file.read(4) == CLASSIC_MARKS[2]:
            raise SceneError(f"{path} is NetCDF in the unsupported 64-bit data format (CDF-5): convert it to NetCDF-4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a damaged file whose memory map is still referred to
        with _opened(path) as variables:
            _warn_of_rest(path, [item.data for item in variables.values() if item.data.size])
            return {key: _variable(path, key, item) for key, item in variables.items()}


def _warn_of_rest(path: Path, arrays: list[npt.NDArray[Any]]) -> None:
    """Warn of bytes after the last number: inserted ones shift all that follows unnoticed."""
    if not arrays:
        return
    whole = arrays[0]
    while isinstance(whole.base, np.ndarray):
        whole = whole.base  # up to the memory map of the file
    rest = byte_bounds(whole)[1] - max(byte_bounds(array)[1] for array in arrays)
    if rest > _PADDING:
        warn_data(f"{path.name} has {rest:,} bytes more than it describes: it may be damaged")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import scipy.io

    with scipy.io.netcdf_file(path, "r", mmap=True, maskandscale=False) as file:
        yield file.variables
        file.variables.clear()  # they refer to the memory map, which can then be closed


def _variable(path: Path, key: str, item: Any) -> Variable:
    dims, shape = tuple(map(str, item.dimensions)), tuple(map(int, item.data.shape))
    attrs = {name: attribute(value) for name, value in item._attributes.items()}
    return _ClassicVariable(path, key, dims, shape, item.data.dtype.newbyteorder("="), attrs, None)
