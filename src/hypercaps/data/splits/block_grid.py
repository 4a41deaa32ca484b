"""The labelled pixels of a scene by square block, and which neighbouring blocks their patches reach."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.splits.split import Indices

Bools = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.uint8]
# The eight neighbours of a block, as steps of rows and columns; bit i of a `Bits` value stands for the i-th.
NEIGHBOURS = tuple((dr, dc) for dr in (-1, 0, 1) for dc in (-1, 0, 1) if dr or dc)


class LabelledBlocks(NamedTuple):
    """The labelled pixels by block."""

    pixels: Indices  # (N,) flat
    block_of: Indices  # (N,)
    class_of: Indices  # (N,) positions in the legend
    reached: Bits  # (N,) the neighbouring blocks that have a labelled pixel in this pixel's patch
    grid: tuple[int, int]  # rows and columns of blocks
    counts: Indices  # (blocks, classes): labelled pixels
    # Pixels of the same block, class and reached blocks are treated alike, so they are counted as one kind.
    kinds: Indices  # (kinds, 3): block, class, reached
    kind_counts: Indices  # (kinds,)

    @classmethod
    def of(cls, labels: Labels, block: int, half: int) -> LabelledBlocks:
        """Cut labels into blocks of ``block`` x ``block`` pixels, for patches that reach ``half`` pixels."""
        rows, cols = labels.shape
        pixels = np.flatnonzero(labels.array)
        r, c = np.divmod(pixels, cols)
        # The last block of a row or column has half a side to one and a half: never less than a patch reaches, so
        # that a patch reaches the direct neighbours at most.
        n_rows, n_cols = (max(1, (size + block // 2) // block) for size in (rows, cols))
        row_of, col_of = (np.minimum(np.arange(n) // block, m - 1) for n, m in ((rows, n_rows), (cols, n_cols)))
        reached = _reached(labels.array, row_of, col_of, half).ravel()[pixels]
        block_of = row_of[r] * n_cols + col_of[c]
        class_of = np.searchsorted(labels.legend.labels, labels.array.ravel()[pixels])
        classes = len(labels.legend)
        counts = np.bincount(block_of * classes + class_of, minlength=n_rows * n_cols * classes)
        codes, kind_counts = np.unique((block_of * classes + class_of) * 256 + reached, return_counts=True)
        kinds = np.stack([codes // 256 // classes, codes // 256 % classes, codes % 256], axis=1)
        counts = counts.reshape(n_rows * n_cols, classes)
        return cls(pixels, block_of, class_of, reached, (n_rows, n_cols), counts, kinds, kind_counts)


def _reached(array: npt.NDArray[np.int16], row_of: Indices, col_of: Indices, half: int) -> Bits:
    """(rows, columns) the neighbouring blocks that have a labelled pixel in each pixel's patch."""
    reached = np.zeros(array.shape, dtype=np.uint8)
    row_spans, col_spans = _patch_spans(row_of, half), _patch_spans(col_of, half)
    for row in range(int(row_of[-1]) + 1):  # one row of blocks at a time: the sums below are larger than the labels
        first, stop = np.searchsorted(row_of, [row, row + 1])
        top, bottom = max(first - half, 0), min(stop + half, len(row_of))
        column_sums = _running_sums(array[top:bottom] > 0, axis=0)
        bit = 0
        for dr, (low, high) in zip((-1, 0, 1), row_spans, strict=True):
            labelled = column_sums[high[first:stop] - top] > column_sums[low[first:stop] - top]
            row_sums = _running_sums(labelled, axis=1)
            for dc, (left, right) in zip((-1, 0, 1), col_spans, strict=True):
                if dr or dc:
                    reached[first:stop] |= (row_sums[:, right] > row_sums[:, left]).astype(np.uint8) << bit
                    bit += 1
    return reached


def _patch_spans(block_of: Indices, half: int) -> list[tuple[Indices, Indices]]:
    """Begin and end of each row's (or column's) patch within the previous block, its own and the next one."""
    at = np.arange(len(block_of))
    first, stop = np.searchsorted(block_of, block_of), np.searchsorted(block_of, block_of, side="right")
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(at))
    return [
        (np.minimum(low, first), first),
        (np.maximum(low, first), np.minimum(high, stop)),
        (stop, np.maximum(high, stop)),
    ]


def _running_sums(values: Bools, axis: int) -> npt.NDArray[np.int32]:
    """Running sums that begin with 0: the number of true values between two positions is a difference of two."""
    zeros = np.zeros_like(values.take([0], axis=axis), dtype=np.int32)
    return np.concatenate([zeros, values.cumsum(axis=axis, dtype=np.int32)], axis=axis)
