"""How a scene is cut into windows: as large as memory allows, and along the lines by which its file is stored."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hypercaps.data.scene import Scene
from hypercaps.data.window import Window

TILE = 16  # pixels: windows begin and end on the lines of this grid, on which some networks compute
_MOST_PIXELS = 1 << 16  # of a window: a few seconds of work, so that progress is seen and little is lost when killed
_LEAST_ROWS = 64  # of a strip over the whole width: below that, its halo is read too often


def plan_windows(scene: Scene, *, patch: int, pixels: int) -> list[Window]:
    """Windows over the whole scene, row by row, each of which, with the halo of its patches, has at most ``pixels``.

    Strips over the whole width are best where rows are stored one after the other, whole blocks where blocks are. At
    least one tile is taken at a time, however little memory there is.
    """
    halo = patch - 1
    block_rows, block_cols = _block(scene)
    pixels = min(pixels, max(_MOST_PIXELS, (block_rows + halo) * (block_cols + halo)))
    rows = _whole(pixels // (scene.cols + halo) - halo, block_rows)
    if rows >= min(_LEAST_ROWS, scene.rows):
        return list(_grid(scene, rows, scene.cols))
    side = math.isqrt(pixels) - halo
    rows = max(TILE, _whole(side, block_rows))
    cols = max(TILE, _whole(pixels // (rows + halo) - halo, block_cols))
    return list(_grid(scene, rows, cols))


def thinning(shape: tuple[int, int], longest: int) -> int:
    """Every how many rows and columns of a raster are shown, so that a picture is no longer than ``longest`` pixels."""
    return max(1, -(-max(shape) // longest))


def _block(scene: Scene) -> tuple[int, int]:
    """Rows and columns of the file's blocks, as far as windows can follow them."""
    if scene.block is None:
        return TILE, TILE
    rows, cols = (side if side % TILE == 0 else TILE for side in scene.block)
    return rows, cols


def _whole(length: int, block: int) -> int:
    """``length`` in whole blocks, or in whole tiles where not even one block fits."""
    unit = block if length >= block else TILE
    return max(0, length // unit * unit)


def _grid(scene: Scene, rows: int, cols: int) -> Iterator[Window]:
    for r in range(0, scene.rows, rows):
        for c in range(0, scene.cols, cols):
            yield Window(r, min(r + rows, scene.rows), c, min(c + cols, scene.cols))
