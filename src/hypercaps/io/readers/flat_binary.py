"""Windows of a file of raw numbers, read run by run into one array.

The file is not memory-mapped: touched pages, and those that the kernel reads around them, count as memory of the
process, which is many times the window where rows are wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError
from hypercaps.io.raster import Bands, RawWindow

Places = npt.NDArray[np.intp]

_GAP = 1 << 16  # bytes: reading a gap up to this length is faster than skipping it
_CHUNK = 1 << 20  # bytes read at once where they include gaps


def window_taker(
    path: Path, dtype: np.dtype[Any], offset: int, shape: tuple[int, int, int], layout: tuple[int, int, int]
) -> Callable[[slice, slice, Bands], RawWindow]:
    """A function that reads windows of a raster of ``shape`` (rows, columns, bands).

    layout : the axes of the file as positions in ``shape``, slowest first

    The file is opened again for every window, so that any thread and any process can read.
    """
    numbers = _Numbers(path, dtype, offset, (shape[layout[0]], shape[layout[1]], shape[layout[2]]))
    back = tuple(layout.index(axis) for axis in range(3))  # from the file's order to (rows, columns, bands)

    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        positions = (np.arange(rows.start, rows.stop), np.arange(cols.start, cols.stop), np.asarray(bands))
        stored = numbers.read(*(positions[axis] for axis in layout))
        return RawWindow(stored.transpose(back), None)

    return take


class _Numbers(NamedTuple):
    """A file of planes of lines of numbers."""

    path: Path
    dtype: np.dtype[Any]
    offset: int
    sizes: tuple[int, int, int]  # planes, lines in a plane, numbers in a line

    def read(self, planes: Places, lines: Places, places: Places) -> npt.NDArray[Any]:
        """The numbers at (planes, lines, places in a line), in native byte order."""
        item, in_plane = self.dtype.itemsize, self.sizes[1]
        start, stop = int(places.min()), int(places.max()) + 1  # of each line
        pick = None if (np.diff(places) == 1).all() else places - start
        line, run = self.sizes[2] * item, (stop - start) * item  # bytes from line to line, and bytes read of each
        whole = pick is None and run == line
        raw = np.empty(planes.size * lines.size * places.size * item, dtype=np.uint8)
        out = raw.view(self.dtype).reshape(planes.size, lines.size, places.size)
        bytes_out, plane_out = raw.data, lines.size * places.size * item
        pieces = list(_pieces(lines, line, run, whole_lines=whole))
        scratch = np.empty(0 if whole else max(piece.span - 1 for piece in pieces) * line + run, dtype=np.uint8)
        with FileIO(self.path) as file:
            if whole and len(pieces) == 1 and lines.size == in_plane:
                cuts = (np.flatnonzero(np.diff(planes) != 1) + 1).tolist()  # consecutive whole planes are one run
                for first, last in pairwise([0, *cuts, planes.size]):
                    target = bytes_out[first * plane_out : last * plane_out]
                    self._fill(file, target, self.offset + int(planes[first]) * in_plane * line)
                return _native(out)
            for at, plane in enumerate(planes.tolist()):
                begin = self.offset + plane * in_plane * line + start * item
                for piece in pieces:
                    if whole or (piece.span == 1 and pick is None):
                        a = at * plane_out + int(piece.places[0]) * run
                        self._fill(file, bytes_out[a : a + piece.span * run], begin + piece.first * line)
                        continue
                    self._fill(file, scratch.data[: (piece.span - 1) * line + run], begin + piece.first * line)
                    read = np.ndarray((piece.span, stop - start), self.dtype, scratch.data, strides=(line, item))
                    kept = read[piece.lines]  # (requested lines of this piece, places)
                    out[at, piece.places] = kept if pick is None else np.take(kept, pick, axis=1)
        return _native(out)

    def _fill(self, file: FileIO, target: memoryview, position: int) -> None:
        file.seek(position)
        while target:
            if not (got := file.readinto(target)):
                raise SceneError(f"{self.path} was truncated after it was opened: get the whole file again")
            target = target[got:]


class _Piece(NamedTuple):
    """Neighbouring lines of a plane that are read at once."""

    first: int  # line in the plane
    span: int  # lines from the first to the last, with the gaps between them
    lines: Places | slice  # the requested ones of these
    places: Places  # their positions in the output


def _pieces(lines: Places, line: int, run: int, *, whole_lines: bool) -> Iterator[_Piece]:
    """Divide ``lines`` into pieces: small gaps are read too, and pieces with gaps are kept small.

    Whole lines are read directly into the output: a piece is as long as lines are consecutive in file and output.
    """
    order = np.argsort(lines, kind="stable")
    ordered = lines[order]
    steps = np.diff(ordered)
    if whole_lines:
        apart = (steps != 1) | (np.diff(order) != 1)
    else:
        apart = (steps * line - run > _GAP) | (np.diff(ordered * line // _CHUNK) != 0)
    for begin, end in pairwise([0, *(np.flatnonzero(apart) + 1).tolist(), lines.size]):
        first, span = int(ordered[begin]), int(ordered[end - 1] - ordered[begin]) + 1
        yield _Piece(first, span, slice(None) if span == end - begin else ordered[begin:end] - first, order[begin:end])


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.isnative:
        return array
    return array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
