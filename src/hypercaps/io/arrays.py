"""The arrays in a file of any format, chosen by ``PATH:KEY``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
    is_beside: bool = False  # only describes another array, as the confidence of a class map does

    def __str__(self) -> str:
        size = " x ".join(str(n) for n in self.shape)
        return f"{self.key} ({size})" if self.key else size


_LISTED = 50  # arrays that a message names


def choose(arrays: list[StoredArray], key: str | None, ndim: int, path: Path, what: str) -> StoredArray:
    """The array called ``key``, or the only one with ``ndim`` dimensions; ``what`` it is for, in messages."""
    listing = ", ".join(str(array) for array in arrays[:_LISTED]) or "nothing"
    if len(arrays) > _LISTED:
        listing += f" and {len(arrays) - _LISTED:,} more"
    if key is not None:
        for array in arrays:
            if array.key == key:
                return array
        raise SceneError(f"{path} has no array {key!r}: it holds {listing}; name one of them as {path}:KEY")
    fitting = [array for array in arrays if len(array.shape) == ndim]
    if len(fitting) > 1:  # MATLAB stores scalars and vectors as 1 x N matrices
        fitting = [array for array in fitting if min(array.shape) > 1] or fitting
    if len(fitting) > 1:
        fitting = [array for array in fitting if not array.is_beside] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if len(fitting) > 1:
        raise SceneError(
            f"{path} holds several arrays that could be the {what}: {listing}; name one as {path}:{fitting[0].key}"
        )
    shape = "3-D array (rows, columns, bands)" if ndim == 3 else "2-D array (rows, columns)"
    hint = ""
    if what == "labels" and any(len(array.shape) == 3 for array in arrays):
        hint = ", as a scene does; if it is one of several tiles, put their pattern in quotes, such as 'tiles/*.tif'"
    if what == "scene" and any(len(array.shape) == 2 for array in arrays):
        hint = ", as labels do: the scene comes before its labels, and is a cube"
    raise SceneError(f"{path} holds no {shape} to be the {what}: it holds {listing}{hint}")


class LoadedOnce:
    """An array that can only be read as a whole: that happens when it is first sliced."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], load: Callable[[], npt.NDArray[Any]]) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
        self._load = load

    @cached_property
    def _values(self) -> npt.NDArray[Any]:
        return self._load()

    def __getitem__(self, key: Any) -> Any:
        return self._values[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self._values, dtype=dtype)
