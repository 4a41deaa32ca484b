"""The spectral wand: the region that grows from a pixel while spectra stay within an angle of the pixel's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from hypercaps.workbench.pixel_reader import SIDE, PixelReader
from hypercaps.workbench.refusals import RefusedError
from hypercaps.workbench.spans import Spans, spans_of

_WIDEST = 0.5  # radians, for a tolerance of 1
_TILES = 16  # that a region may reach into: 1,024 x 1,024 pixels

Bools = npt.NDArray[np.bool_]


def grow(reader: PixelReader, row: int, col: int, tolerance: float) -> Spans:
    """Spans of the region: connected by sides, spectral angle at most ``tolerance`` (0 to 1) times half a radian."""
    spectrum, is_valid = reader.pixel(row, col)
    if not is_valid:
        raise RefusedError("this pixel has no data: the wand needs one that has", 409)
    scene = reader.scene
    least = np.cos(_WIDEST * tolerance)
    length = float(np.linalg.norm(spectrum))
    unit = spectrum / np.float32(length if length > 0 else 1.0)
    alike: dict[tuple[int, int], Bools] = {}
    first = (row // SIDE, col // SIDE)
    waiting, box = [first], (first[0], first[0], first[1], first[1])
    while waiting and len(alike) < _TILES:
        key = waiting.pop(0)
        alike[key] = _alike(reader, key, unit, least)
        tiles = list(alike)
        box = (min(y for y, _ in tiles), max(y for y, _ in tiles), min(x for _, x in tiles), max(x for _, x in tiles))
        region, r0, c0 = _region(alike, box, row, col, (scene.rows, scene.cols))
        waiting = [key for key in _reached(region, r0, c0, (scene.rows, scene.cols)) if key not in alike]
    rows, cols = np.nonzero(region)
    return spans_of((rows + r0).astype(np.int64) * scene.cols + cols + c0, scene.cols)


def _alike(reader: PixelReader, key: tuple[int, int], unit: npt.NDArray[np.float32], least: float) -> Bools:
    pixels = reader.tile(*key)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        cosine = (pixels.values @ unit) / np.linalg.norm(pixels.values, axis=2)
    return np.asarray(pixels.valid & (cosine >= least - 1e-6))


def _region(
    alike: dict[tuple[int, int], Bools], box: tuple[int, int, int, int], row: int, col: int, shape: tuple[int, int]
) -> tuple[Bools, int, int]:
    """The part of the tiles read so far that is connected with the pixel, and where it begins."""
    y0, y1, x0, x1 = box
    r0, c0 = y0 * SIDE, x0 * SIDE
    mask = np.zeros((min((y1 + 1) * SIDE, shape[0]) - r0, min((x1 + 1) * SIDE, shape[1]) - c0), dtype=bool)
    for (y, x), part in alike.items():
        mask[y * SIDE - r0 : y * SIDE - r0 + part.shape[0], x * SIDE - c0 : x * SIDE - c0 + part.shape[1]] = part
    mask[row - r0, col - c0] = True
    numbers, _ = ndimage.label(mask)
    return np.asarray(numbers == numbers[row - r0, col - c0]), r0, c0


def _reached(region: Bools, r0: int, c0: int, shape: tuple[int, int]) -> list[tuple[int, int]]:
    """Tiles beside pixels of the region."""
    rows, cols = np.nonzero(region)
    reached: set[tuple[int, int]] = set()
    for down, across in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        r, c = rows + r0 + down, cols + c0 + across
        inside = (r >= 0) & (r < shape[0]) & (c >= 0) & (c < shape[1])
        places = np.stack([r[inside] // SIDE, c[inside] // SIDE], axis=1)
        reached |= {(y, x) for y, x in np.unique(places, axis=0).tolist()}
    return sorted(reached)
