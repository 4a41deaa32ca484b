"""Spans: pixels as runs of columns, ``[row, first column, one past the last column]``, as the page sends them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hypercaps.workbench.refusals import RefusedError

Spans = npt.NDArray[np.int64]  # (n, 3)
Flat = npt.NDArray[np.int64]  # (N,) flat pixel indices


def checked_spans(spans: Sequence[Sequence[int]], shape: tuple[int, int]) -> Spans:
    """The spans of a request; those outside of a raster of ``shape`` are cut off."""
    checked = np.asarray(spans, dtype=np.int64)
    if checked.size == 0:
        return np.empty((0, 3), dtype=np.int64)
    if checked.ndim != 2 or checked.shape[1] != 3:
        raise RefusedError("a span is [row, first column, one past the last column]")
    rows, cols = shape
    checked = checked[(checked[:, 0] >= 0) & (checked[:, 0] < rows)]
    checked[:, 1:] = np.clip(checked[:, 1:], 0, cols)
    return checked[checked[:, 2] > checked[:, 1]]


def pixels_of(spans: Spans, cols: int) -> Flat:
    """The pixels of spans, flat indices, ascending and each once."""
    return np.unique(expanded(spans, cols))


def expanded(spans: Spans, cols: int) -> Flat:
    """The pixels of spans, flat indices, in their order: ascending and each once if the spans are."""
    if not len(spans):
        return np.empty(0, dtype=np.int64)
    lengths = spans[:, 2] - spans[:, 1]
    first = spans[:, 0] * cols + spans[:, 1]
    before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.asarray(np.repeat(first, lengths) + np.arange(lengths.sum()) - before)


def spans_of(pixels: Flat, cols: int) -> Spans:
    """The spans of pixels, flat indices, ascending and each once."""
    starts = run_starts(pixels, cols)
    if not starts.size:
        return np.empty((0, 3), dtype=np.int64)
    lengths = np.diff(np.append(starts, pixels.size))
    rows, first = np.divmod(pixels[starts], cols)
    return np.stack([rows, first, first + lengths], axis=1)


def run_starts(pixels: Flat, cols: int, *values: npt.NDArray[np.integer]) -> Flat:
    """Positions in ``pixels`` where a run begins: of neighbours in one row with equal ``values`` (N,)."""
    if not pixels.size:
        return np.empty(0, dtype=np.int64)
    begins = np.ones(pixels.size, dtype=bool)
    begins[1:] = (np.diff(pixels) != 1) | (pixels[1:] % cols == 0)
    for value in values:
        begins[1:] |= value[1:] != value[:-1]
    return np.flatnonzero(begins)
