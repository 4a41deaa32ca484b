"""A variable of a file that holds several: NetCDF, HDF5 and Zarr all have names, dimensions and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError

# A file packs no more than this: deflate reaches 1032, and whoever says more has written a few bytes and a claim.
_MOST_PACKED = 10_000
_LARGEST_CHUNK = 1 << 27  # bytes, unpacked: a chunk is unpacked as a whole, whatever small window is asked for
_LONGEST_LIST = 1 << 24  # numbers of a coordinate


class Part(NamedTuple):
    """A window of a variable as the file has it."""

    stored: npt.NDArray[Any]
    written: npt.NDArray[np.bool_] | None  # of the same shape: where anything was ever written; None: everywhere


@dataclass(frozen=True, eq=False)
class Variable:
    """One variable, not read yet; ``take`` opens the file anew, so that any thread and any process may call it."""

    path: Path
    key: str  # with its groups: location/glt_x
    dims: tuple[str, ...]  # a name for each axis, "" where there is none
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: Mapping[str, Any]  # text, or arrays of numbers
    take: Callable[[tuple[slice, ...]], Part]
    chunks: tuple[int, ...] | None = None  # along each axis; None: in one piece
    check: Callable[[], None] = field(default=lambda: None)  # refuses what can't be read safely

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def group(self) -> str:
        return self.key.rpartition("/")[0]

    @property
    def is_numeric(self) -> bool:
        return self.dtype.kind in "iufb" and self.dtype.itemsize <= 8

    def all(self) -> npt.NDArray[Any]:
        """The whole of a short variable, such as a coordinate."""
        if (count := math.prod(self.shape)) > _LONGEST_LIST:
            raise SceneError(f"{self.path} has {count:,} numbers in {self.key!r}: far fewer are expected")
        self.check()
        return self.take(tuple(slice(0, length) for length in self.shape)).stored

    def unpacked(self) -> npt.NDArray[np.float64]:
        """The whole of a short variable, with its scale and offset applied."""
        values = self.all().astype(np.float64)
        scale, offset = self.numbers("scale_factor"), self.numbers("add_offset")
        values = values * float(scale[0]) if scale.size == 1 else values
        return values + float(offset[0]) if offset.size == 1 else values

    def text(self, name: str) -> str:
        """An attribute that is text; empty where it is missing or something else."""
        value = self.attrs.get(name)
        return value if isinstance(value, str) else ""

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """The numbers of an attribute (n,); none where it is missing or text."""
        value = self.attrs.get(name)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iufb":
            return value.ravel()
        return np.zeros(0)


def find(variables: Mapping[str, Variable], group: str, name: str) -> Variable | None:
    """A variable by name, in the group or in one of those around it."""
    while True:
        key = f"{group}/{name}" if group else name
        if key in variables or not group:
            return variables.get(key)
        group = group.rpartition("/")[0]


def span(bands: npt.NDArray[np.intp]) -> slice:
    """From the first to the last of some bands: read in one piece, from which :func:`picked` takes them."""
    return slice(int(bands.min()), int(bands.max()) + 1)


def picked(array: npt.NDArray[Any], bands: npt.NDArray[np.intp], axis: int) -> npt.NDArray[Any]:
    """Those ``bands`` of an array that holds their :func:`span` along ``axis``; no copy if they are all of it."""
    if bands.size == array.shape[axis] and (np.diff(bands) == 1).all():
        return array
    some: npt.NDArray[Any] = np.take(array, bands - bands.min(), axis=axis)
    return some


def check_claims(path: Path, key: str, shape: Sequence[int], chunk: Sequence[int] | None, item: int, size: int) -> None:
    """Refuse sizes that a file of ``size`` bytes can't have, before any memory is asked for."""
    claimed = math.prod(shape) * item
    if claimed > _MOST_PACKED * size:
        raise SceneError(
            f"{path} claims {claimed:,} bytes for {key!r} but has {size:,}: it is truncated or damaged; get it again"
        )
    if chunk is not None and math.prod(chunk) * item > _LARGEST_CHUNK:
        raise SceneError(
            f"{path} keeps {key!r} in chunks of {math.prod(chunk) * item >> 20:,} MB, which can't be read by window: "
            f"write it again with chunks of at most {_LARGEST_CHUNK >> 20} MB"
        )
