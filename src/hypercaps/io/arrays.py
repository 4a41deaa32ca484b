"""The arrays in a file of any format, chosen by ``PATH:KEY``; and the reader of .npy and .npz files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError


@dataclass(frozen=True)
class StoredArray:
    """One array of a file, not read yet."""

    key: str
    shape: tuple[int, ...]
    load: Callable[[], Any]  # something that slices like a numpy array of ``shape``

    def __str__(self) -> str:
        size = " x ".join(str(n) for n in self.shape)
        return f"{self.key} ({size})" if self.key else size


def choose(arrays: list[StoredArray], key: str | None, ndim: int, path: Path, what: str) -> StoredArray:
    """The array called ``key``, or the only one with ``ndim`` dimensions; ``what`` it is for, in messages."""
    listing = ", ".join(str(array) for array in arrays) or "nothing"
    if key is not None:
        for array in arrays:
            if array.key == key:
                return array
        raise SceneError(f"{path} has no array {key!r}: it holds {listing}; name one of them as {path}:KEY")
    fitting = [array for array in arrays if len(array.shape) == ndim]
    if len(fitting) > 1:  # MATLAB stores scalars and vectors as 1 x N matrices
        fitting = [array for array in fitting if min(array.shape) > 1] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if len(fitting) > 1:
        raise SceneError(
            f"{path} holds several arrays that could be the {what}: {listing}; name one as {path}:{fitting[0].key}"
        )
    shape = "3-D array (rows, columns, bands)" if ndim == 3 else "2-D array (rows, columns)"
    raise SceneError(f"{path} holds no {shape} to be the {what}: it holds {listing}")


class _OnDisk:
    """A .npy file, mapped again for every slice: pages touched by a map that stays open would stay in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        mapped = self._map()
        self.shape, self.dtype, self.ndim = mapped.shape, mapped.dtype, mapped.ndim

    def _map(self) -> npt.NDArray[Any]:
        mapped: npt.NDArray[Any] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return mapped

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        return np.array(self._map()[key])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[...], dtype=dtype)


def numpy_arrays(path: Path) -> list[StoredArray]:
    """The arrays of a .npy or .npz file; .npy stays on disk. Pickled arrays are refused."""

    def load(key: str) -> npt.NDArray[Any]:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            array: npt.NDArray[Any] = archive[key]
            return array

    with path.open("rb") as file:  # numpy does not close a damaged archive
        if file.read(2) == b"PK":
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                shapes = {key: archive[key].shape for key in archive.files}
            return [StoredArray(key, shapes[key], lambda key=key: load(key)) for key in shapes]  # type: ignore[misc]
    array = _OnDisk(path)
    return [StoredArray("", array.shape, lambda: array)]
