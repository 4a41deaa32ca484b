"""Check that all of an HDF5 dataset is stored: HDF5 returns zeros, or other bytes of the file, for what is missing.

Chunks are also checked for how much they decompress to, and the file for bytes that were inserted into it.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.limits import SMALL
from hypercaps.io.readers.inflate import DEFLATE_RATIO, inflated_length
from hypercaps.io.readers.variables import Attributes, Slices, chunks_in

_OVERHEAD = 1 << 16  # bytes that compression may add to a small chunk
_DEFLATE = h5py.h5z.FILTER_DEFLATE
_KEEP_SIZE = (h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32)


def check_written(path: Path, dataset: h5py.Dataset, attrs: Attributes) -> None:
    """Refuse a dataset of which a part was never written or lies outside of the file."""
    size = path.stat().st_size
    if dataset.chunks is None:
        claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
        offset, stored = dataset.id.get_offset(), dataset.id.get_storage_size()
        # Without an offset, a few numbers are kept within the dataset's own header.
        if stored != claimed or (offset is not None and offset + stored > size):
            raise _unwritten(path, dataset, stored, claimed, "bytes")
        return
    filters = _filters(path, dataset)
    chunks: list[Any] = []
    dataset.id.chunk_iter(chunks.append)
    for chunk in chunks:
        _check_chunk(path, dataset, filters, chunk)
    positions = {tuple(chunk.chunk_offset) for chunk in chunks}
    ranges = sorted((int(chunk.byte_offset), int(chunk.byte_offset) + int(chunk.size)) for chunk in chunks)
    overlap = any(end > start for (_, end), (start, _) in itertools.pairwise(ranges))
    inside = all(
        0 <= place < length and place % step == 0
        for position in positions
        for place, length, step in zip(position, dataset.shape, dataset.chunks, strict=True)
    )
    if overlap or not inside or len(positions) != len(ranges) or (ranges and ranges[-1][1] > size):
        raise SceneError(f"{path} has chunks of {dataset.name!r} that overlap or lie outside of it: get the file again")
    expected = math.prod(-(-length // step) for length, step in zip(dataset.shape, dataset.chunks, strict=True))
    if len(positions) < expected and not fill_is_nodata(dataset, attrs):
        raise _unwritten(path, dataset, len(positions), expected, "chunks")


def _unwritten(path: Path, dataset: h5py.Dataset, stored: int, claimed: int, unit: str) -> SceneError:
    return SceneError(
        f"{path} was never written to its end: {dataset.name!r} has {stored:,} of {claimed:,} {unit}; get it again"
    )


def _filters(path: Path, dataset: h5py.Dataset) -> list[int]:
    """The numbers of the filters of each chunk, all of them available."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    for number, _, _, name in filters:
        if not h5py.h5z.filter_avail(number):
            raise SceneError(
                f"{path} compresses {dataset.name!r} with filter {number} ({name.decode(errors='replace')}), which is "
                "not installed: write it again with gzip, or install the filter for HDF5"
            )
    numbers = [number for number, _, _, _ in filters]
    if _DEFLATE in numbers and set(numbers[numbers.index(_DEFLATE) + 1 :]) - {h5py.h5z.FILTER_FLETCHER32}:
        raise SceneError(f"{path} compresses {dataset.name!r} several times: write it again with gzip")
    return numbers


def _check_chunk(path: Path, dataset: h5py.Dataset, filters: list[int], chunk: Any) -> None:
    """A chunk may skip filters, for example if compression makes it no smaller; then its size must match."""
    used = [number for i, number in enumerate(filters) if not chunk.filter_mask >> i & 1]
    sums = used.count(h5py.h5z.FILTER_FLETCHER32)
    plain = math.prod(dataset.chunks) * dataset.dtype.itemsize + 4 * sums
    unchecked = sums < filters.count(h5py.h5z.FILTER_FLETCHER32)
    if (
        not 1 <= chunk.size <= 2 * plain + _OVERHEAD
        or unchecked
        or (all(number in _KEEP_SIZE for number in used) and chunk.size != plain)
    ):
        raise SceneError(f"{path} has a chunk of {dataset.name!r} of an impossible size: get the file again")


def check_inflated(path: Path, dataset: h5py.Dataset, window: Slices, checked: set[tuple[int, ...]]) -> None:
    """Refuse deflated chunks of a window that inflate to more than a chunk: HDF5 allocates all of it.

    checked : positions of chunks that need no check any more
    """
    filters = _filters(path, dataset)
    plain = math.prod(dataset.chunks) * dataset.dtype.itemsize
    if _DEFLATE not in filters or (2 * plain + _OVERHEAD) * DEFLATE_RATIO <= SMALL:
        return
    for position, _ in chunks_in(window, dataset.chunks):
        if position not in checked:
            start = tuple(i * step for i, step in zip(position, dataset.chunks, strict=True))
            chunk = dataset.id.get_chunk_info_by_coord(start)
            if chunk.byte_offset is not None and chunk.size * DEFLATE_RATIO > SMALL:
                mask, raw = dataset.id.read_direct_chunk(start)
                if not mask >> filters.index(_DEFLATE) & 1 and inflated_length(raw, plain) is None:
                    raise SceneError(f"{path} has a damaged chunk of {dataset.name!r}: get the file again")
            checked.add(position)


def fill_is_nodata(dataset: h5py.Dataset, attrs: Attributes) -> bool:
    """Whether a chunk that was never written reads as missing data."""
    fill = dataset.fillvalue
    if dataset.dtype.kind == "f" and np.isnan(fill):
        return True
    declared = (attrs.get(name) for name in ("_FillValue", "missing_value"))
    return any(bool((values == fill).any()) for values in declared if isinstance(values, np.ndarray))


def check_found(dataset: h5py.Dataset, window: Slices, stored: npt.NDArray[Any]) -> None:
    """Raise if the index lists a chunk that HDF5 does not find: it silently returns the fill value instead.

    So each chunk that holds nothing but the fill value is read once more as raw bytes.
    """
    filled = stored == dataset.fillvalue
    if not filled.any():
        return
    for position, covered in chunks_in(window, dataset.chunks):
        if filled[covered].all():
            dataset.id.read_direct_chunk(tuple(i * step for i, step in zip(position, dataset.chunks, strict=True)))


_MARK = b"\x89HDF\r\n\x1a\n"


def warn_of_rest(path: Path) -> None:
    """Warn of bytes after the end that the superblock gives: inserted ones shift all that follows unnoticed."""
    with path.open("rb") as file:
        head = file.read(1024)
    block = head[max(0, head.find(_MARK)) :]  # MATLAB puts 512 bytes in front
    version = block[8]
    width, place = (block[13], 24 + 4 * version) if version < 2 else (block[9], 12)
    end = int.from_bytes(block[place + 2 * width : place + 3 * width], "little")
    if (rest := path.stat().st_size - end) > 0:
        warn_data(f"{path.name} has {rest:,} bytes more than it describes: it may be damaged")
