"""Pixels of a window of a scene, and readers of them."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from hypercaps.data.window import VALUES_AT_ONCE, Window, boxes_around, parts_in_blocks


class Pixels(NamedTuple):
    """The pixels of a window of a scene."""

    values: npt.NDArray[np.float32]  # (h, w, bands), physical units; undefined where not valid
    valid: npt.NDArray[np.bool_]  # (h, w)

    def checksum(self) -> int:
        """CRC-32 of the sums over rows and over columns, and of the validity; near the speed of memory."""
        rows, cols, bands = self.values.shape
        across, down = np.zeros(rows, dtype="<u4"), np.zeros(cols * bands, dtype="<u4")
        for row, (line, valid) in enumerate(zip(self.values, self.valid, strict=True)):
            defined = line if valid.all() else np.where(valid[:, None], line, 0)
            words = np.ascontiguousarray(defined, dtype="<f4").view("<u4").ravel()
            across[row] = words.sum(dtype=np.uint32)
            down += words
        parts = (across, down, np.packbits(self.valid))
        return zlib.crc32(b"".join(part.tobytes() for part in parts))


PixelReader = Callable[[slice, slice], Pixels]
Bands = npt.NDArray[np.intp]  # positions of bands, from 0


@runtime_checkable
class SelectsBands(Protocol):
    """A reader that can also read some bands without reading all."""

    def select(self, chosen: Bands) -> PixelReader: ...


def select_bands(reader: PixelReader, bands: Bands) -> PixelReader:
    """A reader of some of the bands of ``reader``, with the same validity."""

    def read(rows: slice, cols: slice) -> Pixels:
        values, valid = reader(rows, cols)
        return Pixels(np.take(values, bands, axis=2), valid)

    return read


@dataclass(frozen=True)
class ArrayReader:
    """A reader of anything that slices like a (rows, columns, bands) array; of all bands, or of ``bands``."""

    array: Any
    nodata: float | None = None
    bands: Bands | None = None

    def __call__(self, rows: slice, cols: slice) -> Pixels:
        window = self.array[rows, cols]  # (h, w, bands)
        if self.bands is not None:
            window = window[:, :, self.bands]
        raw = np.asarray(window)
        with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf: invalid below
            values = np.ascontiguousarray(raw, dtype=np.float32)
        if raw.dtype.kind == "f":
            valid = np.asarray(np.isfinite(values).all(axis=2))
        else:  # integers are always finite
            valid = np.ones(values.shape[:2], dtype=bool)
        # Not imported, or another thread is just importing it: nobody has made a masked array.
        masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
        if masked is not None and isinstance(window, masked):
            valid &= ~np.ma.getmaskarray(window).any(axis=2)
        if self.nodata is not None:  # compared with the stored values, before any conversion
            valid &= ~(raw == self.nodata).any(axis=2)
        return Pixels(values, valid)

    def select(self, chosen: Bands) -> PixelReader:
        return replace(self, bands=chosen if self.bands is None else self.bands[chosen])


def read_by_block(reader: PixelReader, windows: Sequence[Window], block: tuple[int, int], bands: int) -> list[Pixels]:
    """Several small windows of a scene stored in blocks; each block is decoded once for all of them."""
    found = [Pixels(np.empty((*at.shape, bands), dtype=np.float32), np.empty(at.shape, dtype=bool)) for at in windows]
    for parts in parts_in_blocks(windows, block).values():
        for box, some in boxes_around(parts, VALUES_AT_ONCE * 2 // bands):
            values, valid = reader(box.rows, box.cols)
            for number, part in some:
                there, here = part.inside(box), part.inside(windows[number])
                found[number].values[here] = values[there]
                found[number].valid[here] = valid[there]
    return found
