"""MATLAB files: up to v7 through scipy, v7.3 (HDF5) through h5py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import scipy.io

from hypercaps.errors import SceneError
from hypercaps.io.arrays import StoredArray


def matlab_arrays(path: Path) -> list[StoredArray]:
    """The numeric arrays of a .mat file up to v7."""

    def load(key: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = scipy.io.loadmat(path, variable_names=[key])[key]
        return array

    numeric = {"double", "single", "logical"} | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    return [
        StoredArray(key, tuple(shape), lambda key=key: load(key))  # type: ignore[misc]
        for key, shape, kind in scipy.io.whosmat(path)
        if kind in numeric
    ]


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
        if isinstance(file.get(key, getlink=True), h5py.ExternalLink):
            raise SceneError(f"{path} refers to another file by its entry {key!r}: only what is inside it is read")
        item = file[key]
        if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "iufb":
            continue
        if item.external or item.is_virtual:
            raise SceneError(f"{path} keeps {key!r} in another file: only what is inside it is read")
        # MATLAB marks what it writes; arrays that others put there are in the usual order.
        stored = _Turned(item) if "MATLAB_class" in item.attrs else item
        found.append(StoredArray(key, stored.shape, lambda stored=stored: stored))  # type: ignore[misc]
    return found
