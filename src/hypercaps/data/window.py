"""Windows: rectangles of a scene's pixel grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Window(NamedTuple):
    """A rectangle of a scene: rows r0 to r1 and columns c0 to c1, ends excluded."""

    r0: int
    r1: int
    c0: int
    c1: int

    @property
    def rows(self) -> slice:
        return slice(self.r0, self.r1)

    @property
    def cols(self) -> slice:
        return slice(self.c0, self.c1)


def tile_windows(within: Window, rows: int, cols: int | None = None) -> Iterator[Window]:
    """Cover ``within`` by windows of ``rows`` x ``cols`` pixels (default: squares), clipped, in row-major order."""
    cols = cols or rows
    for r in range(within.r0, within.r1, rows):
        for c in range(within.c0, within.c1, cols):
            yield Window(r, min(r + rows, within.r1), c, min(c + cols, within.c1))
