"""Cut a scene into windows that fit into memory and follow the blocks of its file."""

from __future__ import annotations

import math

from hypercaps.data.scene import Scene
from hypercaps.data.window import Window, tile_windows

TILE = 16  # pixels: windows are aligned to this grid, on which some networks compute
_MOST_PIXELS = 1 << 16  # per window: a few seconds of work, for frequent progress and little loss when killed
_LEAST_ROWS = 32  # of a strip over the full width: with fewer, the halo is whitened too often


def plan_windows(scene: Scene, *, patch: int, pixels: int) -> list[Window]:
    """Windows that cover the scene in row-major order, each with at most ``pixels`` pixels including its halo.

    Strips over the full width suit files that are stored row by row, whole blocks those that are stored in blocks:
    windows of whole blocks end before the blocks do, so that their halo lies in the same blocks. A window has at least
    ``TILE`` x ``TILE`` pixels.
    """
    halo = patch - 1
    # The file's blocks, or TILE where they are not multiples of it.
    block_rows, block_cols = (TILE if side % TILE else side for side in scene.block or (TILE, TILE))
    pixels = min(pixels, max(_MOST_PIXELS, (block_rows + halo) * (block_cols + halo)))
    rows = _round_down(pixels // (scene.cols + halo) - halo, block_rows)
    if rows >= min(max(_LEAST_ROWS, block_rows), scene.rows):
        return _windows(scene, (rows, scene.cols), (block_rows, scene.cols), halo)
    side = math.isqrt(pixels) - halo
    rows = max(TILE, _round_down(side, block_rows))
    cols = max(TILE, _round_down(pixels // (rows + halo) - halo, block_cols))
    return _windows(scene, (rows, cols), (block_rows, block_cols), halo)


def _windows(scene: Scene, sides: tuple[int, int], block: tuple[int, int], halo: int) -> list[Window]:
    """Windows of ``sides``; where these are whole blocks of the file, shifted by the tiles that half a patch needs."""
    shifted = -(-(halo // 2) // TILE) * TILE
    starts = [
        -shifted if scene.block is not None and side % unit == 0 and unit > TILE and side < length else 0
        for side, unit, length in zip(sides, block, scene.shape, strict=False)
    ]
    area = Window(starts[0], scene.rows, starts[1], scene.cols)
    return [Window(max(0, at.r0), at.r1, max(0, at.c0), at.c1) for at in tile_windows(area, *sides)]


def thinning(shape: tuple[int, int], longest: int) -> int:
    """Step of rows and columns at which a raster fits into a picture of ``longest`` x ``longest`` pixels."""
    return max(1, -(-max(shape) // longest))


def _round_down(length: int, block: int) -> int:
    """``length`` rounded down to whole blocks, or to whole tiles if it is shorter than a block."""
    unit = block if length >= block else TILE
    return max(0, length // unit * unit)
