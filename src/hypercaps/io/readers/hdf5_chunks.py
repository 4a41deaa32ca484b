"""Whether all of an HDF5 dataset is there: HDF5 itself gives zeros for what is not, or the next thing in the file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError

_KEEP_SIZE = (h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32)
_MISSING = frozenset(("_FillValue", "missing_value"))


def check_written(path: Path, dataset: h5py.Dataset, attrs: Mapping[str, Any]) -> None:
    """Refuse data that are not all there: HDF5 gives zeros for them, or the next thing in the file."""
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    if dataset.chunks is None:
        where, there = dataset.id.get_offset(), dataset.id.get_storage_size()
        compact = where is None and there == claimed  # a few numbers within the dataset's own description
        whole = where is not None and there == claimed and where + there <= path.stat().st_size
        if not (whole or compact):
            raise _unwritten(path, dataset, there, claimed, "bytes")
        return
    filters = _filters(path, dataset)
    grid = [-(-length // step) for length, step in zip(dataset.shape, dataset.chunks, strict=True)]
    places: set[tuple[int, ...]] = set()
    stretches: list[tuple[int, int]] = []

    def see(chunk: Any) -> None:
        places.add(tuple(chunk.chunk_offset))
        stretches.append((int(chunk.byte_offset), int(chunk.size)))
        _check_chunk(path, dataset, filters, chunk)

    dataset.id.chunk_iter(see)
    stretches.sort()
    ends = [start + size for start, size in stretches]
    overlap = any(end > start for end, (start, _) in zip(ends, stretches[1:], strict=False))
    inside = all(
        0 <= place < length and place % step == 0
        for at in places
        for place, length, step in zip(at, dataset.shape, dataset.chunks, strict=True)
    )
    if overlap or not inside or len(places) != len(stretches) or (ends and ends[-1] > path.stat().st_size):
        raise SceneError(f"{path} has chunks of {dataset.name!r} that lie on each other or outside: get the file again")
    if len(places) < math.prod(grid) and not fill_is_nodata(dataset, attrs):
        raise _unwritten(path, dataset, len(places), math.prod(grid), "chunks")


def _unwritten(path: Path, dataset: h5py.Dataset, there: int, claimed: int, what: str) -> SceneError:
    return SceneError(
        f"{path} was never written to its end: {dataset.name!r} has {there:,} of {claimed:,} {what}; get it again"
    )


def _filters(path: Path, dataset: h5py.Dataset) -> list[int]:
    """The numbers of the filters that a chunk goes through, all of them at hand."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    for number, _, _, name in filters:
        if not h5py.h5z.filter_avail(number):
            raise SceneError(
                f"{path} packs {dataset.name!r} with filter {number} ({name.decode(errors='replace')}), which is not "
                "at hand: write it again with gzip, or install the filter for HDF5"
            )
    return [number for number, _, _, _ in filters]


def _check_chunk(path: Path, dataset: h5py.Dataset, filters: list[int], chunk: Any) -> None:
    """A chunk may say that it skipped a filter, as those do that would not get smaller; then its size is known."""
    used = [number for i, number in enumerate(filters) if not chunk.filter_mask >> i & 1]
    sums = used.count(h5py.h5z.FILTER_FLETCHER32)
    plain = math.prod(dataset.chunks) * dataset.dtype.itemsize + 4 * sums
    unchecked = sums < filters.count(h5py.h5z.FILTER_FLETCHER32)
    if chunk.size < 1 or unchecked or (all(number in _KEEP_SIZE for number in used) and chunk.size != plain):
        raise SceneError(f"{path} has a chunk of {dataset.name!r} of a size that can't be: get the file again")


def fill_is_nodata(dataset: h5py.Dataset, attrs: Mapping[str, Any]) -> bool:
    """Whether a chunk that was never written reads as what the file calls missing."""
    fill = dataset.fillvalue
    if dataset.dtype.kind == "f" and np.isnan(fill):
        return True
    declared = [attrs[name] for name in _MISSING if isinstance(attrs.get(name), np.ndarray)]
    return any(bool((values == fill).any()) for values in declared)


def check_found(dataset: h5py.Dataset, window: tuple[slice, ...], stored: npt.NDArray[Any]) -> None:
    """A damaged index may list a chunk and yet not find it: its place is then filled in, and nothing is said.

    So where a whole chunk is nothing but the fill value, HDF5 is asked for that chunk as it lies in the file.
    """
    filled = stored == dataset.fillvalue
    if not filled.any():
        return
    steps = dataset.chunks
    for place in itertools.product(
        *(range(one.start // step, -(-one.stop // step)) for one, step in zip(window, steps, strict=True))
    ):
        here = tuple(
            slice(max(i * step - one.start, 0), (i + 1) * step - one.start)
            for i, step, one in zip(place, steps, window, strict=True)
        )
        if filled[here].all():
            dataset.id.read_direct_chunk(tuple(i * step for i, step in zip(place, steps, strict=True)))
