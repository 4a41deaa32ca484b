"""MapStore: the map of a training, in a file that the worker fills and the server reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.workbench.pixel_reader import SIDE

FILE = "map.npy"
CLASS, CONFIDENCE, FAMILIARITY = range(3)  # the last axis
Bytes3 = npt.NDArray[np.uint8]  # (rows, columns, 3)


def writable_map(folder: Path, shape: tuple[int, int]) -> np.memmap[Any, np.dtype[np.uint8]]:
    """The map of a training to write to; a new one has no class anywhere."""
    if open_map(folder) is not None:
        values: np.memmap[Any, np.dtype[np.uint8]] = np.load(folder / FILE, mmap_mode="r+", allow_pickle=False)
        return values
    return np.lib.format.open_memmap(folder / FILE, mode="w+", dtype=np.uint8, shape=(*shape, 3))


def open_map(folder: Path) -> Bytes3 | None:
    """The map of a training, as far as it is made; None: it has none."""
    try:
        values: Bytes3 = np.load(folder / FILE, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return values if values.ndim == 3 and values.dtype == np.uint8 and values.shape[2] == 3 else None


def as_byte(share: npt.NDArray[np.float32] | None, shape: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Shares from 0 to 1 as 0 to 255; 255 where there is none."""
    if share is None:
        return np.full(shape, 255, dtype=np.uint8)
    return np.round(255 * np.nan_to_num(np.clip(share, 0, 1), nan=1.0)).astype(np.uint8)


def map_tile(values: Bytes3, level: int, x: int, y: int) -> bytes:
    """256 x 256 pixels of three bytes; at a coarser level, the first pixel of each block."""
    side, step = SIDE << level, 1 << level
    part = np.array(values[y * side : (y + 1) * side : step, x * side : (x + 1) * side : step])
    tile = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
    tile[: part.shape[0], : part.shape[1]] = part
    return tile.tobytes()


def compare(one: Bytes3, other: Bytes3) -> dict[str, Any]:
    """Pixels whose class differs between two maps, where both have one."""
    before, after = np.asarray(one[:, :, CLASS]), np.asarray(other[:, :, CLASS])
    both = (before > 0) & (after > 0)
    changed = both & (before != after)
    codes, counts = np.unique(before[changed].astype(np.int64) * 256 + after[changed], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    pairs = [
        {"from": int(codes[i]) // 256, "to": int(codes[i]) % 256, "pixels": int(counts[i])} for i in order.tolist()
    ]
    total = int(both.sum())
    pixels = int(changed.sum())
    return {"changed": pixels, "share": pixels / total if total else 0.0, "pairs": pairs}


def changed_pixels(one: Bytes3, other: Bytes3, before: int | None, after: int | None) -> npt.NDArray[np.int64]:
    """Flat indices of the pixels that changed, of all classes or from and to certain ones."""
    old, new = np.asarray(one[:, :, CLASS]), np.asarray(other[:, :, CLASS])
    changed = (old > 0) & (new > 0) & (old != new)
    if before is not None:
        changed &= old == before
    if after is not None:
        changed &= new == after
    return np.flatnonzero(changed)
