"""Variables of a file that holds several (NetCDF, HDF5, Zarr): names, dimensions, attributes and windows of data."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError

# Deflate reaches a ratio of 1,032: a file that claims more than this holds a few bytes and a false size.
_MAX_COMPRESSION = 10_000
_MAX_CHUNK_BYTES = 1 << 27  # decompressed: a chunk is decompressed as a whole, however small the window
_MAX_LIST = 1 << 24  # values of a coordinate

Slices = tuple[slice, ...]  # one per axis, with plain bounds
Attribute = str | npt.NDArray[Any] | None  # text, numbers, or None for anything else
Attributes = Mapping[str, Attribute]


class Part(NamedTuple):
    """A window of a variable as stored in the file."""

    stored: npt.NDArray[Any]
    written: npt.NDArray[np.bool_] | None  # same shape: False where no data was ever written; None: all was written


@dataclass(frozen=True, eq=False)
class Variable(ABC):
    """One variable, not read yet; each format has its own subclass."""

    path: Path
    key: str  # with its groups: location/glt_x
    dims: tuple[str, ...]  # name of each axis, "" if it has none
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: Attributes
    chunks: tuple[int, ...] | None  # lengths along each axis; None: contiguous

    @abstractmethod
    def take(self, window: Slices) -> Part:
        """Read a window. The file is opened again, so any thread or process may call this."""

    def check(self) -> None:  # noqa: B027 - not every format needs it
        """Refuse data that can't be read safely; call once before :meth:`take`."""

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def group(self) -> str:
        return self.key.rpartition("/")[0]

    @property
    def is_numeric(self) -> bool:
        return self.dtype.kind in "iufb" and self.dtype.itemsize <= 8

    def read_all(self) -> npt.NDArray[Any]:
        """Check and read a short variable, such as a coordinate."""
        if (count := math.prod(self.shape)) > _MAX_LIST:
            raise SceneError(f"{self.path} has {count:,} numbers in {self.key!r}: far fewer are expected")
        self.check()
        return self.take(tuple(slice(0, length) for length in self.shape)).stored

    def read_scaled(self) -> npt.NDArray[np.float64]:
        """Like :meth:`read_all`, with scale and offset applied."""
        values = self.read_all().astype(np.float64)
        scale, offset = self.numbers("scale_factor"), self.numbers("add_offset")
        values = values * float(scale[0]) if scale.size == 1 else values
        return values + float(offset[0]) if offset.size == 1 else values

    def text(self, name: str) -> str:
        """A text attribute; empty if it is missing or not text."""
        value = self.attrs.get(name)
        return value if isinstance(value, str) else ""

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """The numbers of an attribute (n,); none if it is missing or text."""
        value = self.attrs.get(name)
        return value.ravel() if isinstance(value, np.ndarray) else np.zeros(0)

    def check_size(self, file_bytes: int) -> None:
        """Refuse sizes that a file of ``file_bytes`` can't have, before any memory is allocated."""
        claimed = math.prod(self.shape) * self.dtype.itemsize
        if claimed > _MAX_COMPRESSION * file_bytes:
            raise SceneError(
                f"{self.path} claims {claimed:,} bytes for {self.key!r} but has {file_bytes:,}: it is truncated or "
                "damaged; get it again"
            )
        chunk = 0 if self.chunks is None else math.prod(self.chunks) * self.dtype.itemsize
        if chunk > _MAX_CHUNK_BYTES:
            raise SceneError(
                f"{self.path} keeps {self.key!r} in chunks of {chunk >> 20:,} MB, which can't be read by window: "
                f"write it again with chunks of at most {_MAX_CHUNK_BYTES >> 20} MB"
            )


def attribute(value: Any) -> Attribute:
    """An attribute as a library gives it: text as str, one or several numbers as an array."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").rstrip("\0")
    if isinstance(value, str):
        return value
    try:
        numbers = np.asarray(value)
    except ValueError:  # a ragged list
        return None
    return numbers if numbers.dtype.kind in "iufb" else None


def find(variables: Mapping[str, Variable], group: str, name: str) -> Variable | None:
    """The variable ``name`` of a group or of the groups that contain it."""
    while True:
        key = f"{group}/{name}" if group else name
        if key in variables or not group:
            return variables.get(key)
        group = group.rpartition("/")[0]


def chunks_in(window: Slices, chunks: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Slices]]:
    """Chunks that a window touches: position in the grid of chunks, and the part of the window that each covers."""
    axes = list(zip(window, chunks, strict=True))
    for position in itertools.product(*(range(one.start // step, -(-one.stop // step)) for one, step in axes)):
        starts = [i * step - one.start for i, (one, step) in zip(position, axes, strict=True)]
        yield position, tuple(slice(max(start, 0), start + step) for start, step in zip(starts, chunks, strict=True))


def span(bands: npt.NDArray[np.intp]) -> slice:
    """From the first to the last of some bands: read in one piece, from which :func:`picked` takes them."""
    return slice(int(bands.min()), int(bands.max()) + 1)


def picked(array: npt.NDArray[Any], bands: npt.NDArray[np.intp], axis: int) -> npt.NDArray[Any]:
    """``bands`` of an array that holds their :func:`span` along ``axis``; not copied if they are all of it."""
    if bands.size == array.shape[axis] and (np.diff(bands) == 1).all():
        return array
    some: npt.NDArray[Any] = np.take(array, bands - bands.min(), axis=axis)
    return some
