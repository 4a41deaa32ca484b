"""The windows of a map. Those of the view end where it ends: nothing beside it is computed before it is there."""

from __future__ import annotations

from itertools import pairwise

from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window


def windows_around(whole: Window, view: Window | None, side: int) -> list[Window]:
    """Windows of whole tiles, at most ``side`` pixels (a multiple of the tiles') high and wide."""
    seen = whole if view is None else view
    rows, cols = _cuts(whole.r1, seen.r0, seen.r1, side), _cuts(whole.c1, seen.c0, seen.c1, side)
    return [Window(r0, r1, c0, c1) for r0, r1 in pairwise(rows) for c0, c1 in pairwise(cols)]


def _cuts(length: int, first: int, last: int, side: int) -> list[int]:
    """Where windows begin and end: before, within and after the part that is seen."""
    start = min(max(0, first), length) // TILE * TILE
    end = min(max(start, -(-last // TILE) * TILE), length)
    return [*_divided(0, start, side), *_divided(start, end, side), *_divided(end, length, side), length]


def _divided(start: int, end: int, side: int) -> list[int]:
    """Where the parts of a range begin, of nearly equal size and whole tiles."""
    tiles = -(-(end - start) // TILE)
    parts = -(-tiles * TILE // side)
    return [start + part * tiles // parts * TILE for part in range(parts)]
