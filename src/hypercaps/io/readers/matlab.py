"""MATLAB files: v4 with scipy, v5 to v7 with ``matlab5``, v7.3 with the guarded HDF5 reader."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.io.arrays import StoredArray
from hypercaps.io.readers.hdf5 import plain_arrays
from hypercaps.io.readers.matlab5 import list_arrays
from hypercaps.io.readers.variables import Variable


def matlab_arrays(path: Path) -> list[StoredArray]:
    """The numeric arrays of a .mat file up to v7."""
    with path.open("rb") as file:
        is_oldest = 0 in file.read(4)
    if is_oldest:
        import scipy.io

        listed = [(key, shape) for key, shape, kind in scipy.io.whosmat(path) if kind == "double"]
        return [StoredArray(key, tuple(shape), partial(_load_v4, path, key)) for key, shape in listed]
    return [StoredArray(array.name, array.shape, array.load) for array in list_arrays(path)]


def _load_v4(path: Path, key: str) -> Any:
    import scipy.io

    return scipy.io.loadmat(path, variable_names=[key])[key]  # v4 is never compressed


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
    """The numeric arrays of a v7.3 .mat file or a plain HDF5 file, read by window; those in groups if all are."""
    datasets = [_Dataset(variable) for variable in plain_arrays(path).values()]
    return [StoredArray(dataset.variable.key, dataset.shape, dataset.checked) for dataset in datasets]
