"""The windows of a map. They are cut at the border of the view, which is thus complete before its surroundings."""

from __future__ import annotations

from itertools import pairwise

from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window


def windows_around(area: Window, view: Window | None, side: int) -> list[Window]:
    """Windows of whole tiles, at most ``side`` pixels (a multiple of the tiles') high and wide."""
    visible = area if view is None else view
    rows, cols = _cuts(area.r1, visible.r0, visible.r1, side), _cuts(area.c1, visible.c0, visible.c1, side)
    return [Window(r0, r1, c0, c1) for r0, r1 in pairwise(rows) for c0, c1 in pairwise(cols)]


def _cuts(length: int, first: int, last: int, side: int) -> list[int]:
    """Where windows begin and end: before, within and after the visible part."""
    start = min(max(0, first), length) // TILE * TILE
    end = min(max(start, -(-last // TILE) * TILE), length)
    return [*_divided(0, start, side), *_divided(start, end, side), *_divided(end, length, side), length]


def _divided(start: int, end: int, side: int) -> list[int]:
    """Where the parts of a range begin, of nearly equal size and whole tiles."""
    tiles = -(-(end - start) // TILE)
    parts = -(-tiles * TILE // side)
    return [start + part * tiles // parts * TILE for part in range(parts)]
