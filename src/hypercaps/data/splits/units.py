"""Labelled pixels grouped into spatial units: polygons, tiles, connected areas or blocks that are held out together.

Pixels of one field or one polygon resemble each other. A score is that of new ground only if such pixels train or test
together, so the units are what the labels themselves consist of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.splits.polygons import connected_areas
from hypercaps.data.splits.split import Indices, Split
from hypercaps.data.window import Window
from hypercaps.errors import SplitError

_POINTS = 0.3  # share of labelled pixels with a labelled neighbour, below which labels are points
_IN_TILES = 0.5  # share of classes that must be in two or more tiles, for tiles to be units
_MIXED = 0.1  # share of side-neighbours of different classes, above which connected areas are no units
_FEWEST_BLOCKS = 10  # below which blocks are halved
_SMALLEST_BLOCK = 4  # pixels
_SPECK = 3  # pixels, up to which an area inside or beside a larger one is no unit of its own


@dataclass(frozen=True, eq=False)
class Units:
    """The labelled pixels, grouped into the spatial units that are held out together."""

    kind: str  # "points", "polygons", "tiles", "areas" (connected areas of one class, cut) or "blocks"
    pixels: Indices  # (N,) flat indices of the labelled pixels, ascending
    unit: Indices  # (N,) number of each pixel's unit, from 0, in order of first pixel
    class_of: Indices  # (N,) positions in the legend
    block: int | None  # side in pixels to which areas or blocks were cut
    # (N,) number of the connected area that each pixel lies in, where units are parts of areas or of several ones
    area: Indices | None = None

    @property
    def count(self) -> int:
        return int(self.unit.max()) + 1

    def pixel_counts(self) -> Indices:
        """(units, classes) labelled pixels."""
        classes = int(self.class_of.max()) + 1
        counts = np.bincount(self.unit * classes + self.class_of, minlength=self.count * classes)
        return counts.reshape(self.count, classes)

    def per_class(self) -> Indices:
        """(classes,) number of units that contain each class."""
        per_class: Indices = (self.pixel_counts() > 0).sum(axis=0)
        return per_class

    def independent(self, which: Indices, classes: Indices, count: int) -> Indices:
        """(count,) number of independent units with pixels of each class, of the pixels in places ``which`` (M,), by
        the class index of each (M,).

        Pieces of one area resemble each other: a class has no more independent units than areas.
        """
        groups = [self.unit] if self.area is None else [self.unit, self.area]
        fewest: Indices = np.min([units_per_class(classes, group[which], count) for group in groups], axis=0)
        return fewest


def label_units(labels: Labels, *, block: int = 16, tiles: Sequence[Window] = ()) -> Units:
    """Group the labelled pixels into spatial units.

    Units are the polygons that the labels were drawn as, else the tiles of a mosaic, if labels are not single points
    and most classes are in several tiles. Of other rasters, they are the connected areas of one class with the specks
    of other classes in them, cut to ``block`` x ``block`` pixels; if the classes are mixed too finely for that, squares
    of the grid.

    Parameters
    ----------
    labels : with ``groups``, if they come from a vector file
    block : longest side of an area or block in pixels
    tiles : the files of a mosaic, on the grid of the labels
    """
    if block < 1:
        raise SplitError(f"areas can't be cut into blocks of {block} pixels: a side of 1 or more is expected")
    flat = labels.array.ravel()
    pixels = np.flatnonzero(flat)
    class_of = np.searchsorted(labels.legend.labels, flat[pixels])
    if labels.groups is not None:
        return _units("polygons", pixels, labels.groups.ravel()[pixels], class_of)
    in_tiles = len(tiles) > 1 and not _are_points(labels.array)
    tile_of = _tile_of(labels.shape, tiles).ravel()[pixels] if in_tiles else np.empty(0, dtype=np.int32)
    if in_tiles and _share_in_several(tile_of, class_of) >= _IN_TILES:
        return _units("tiles", pixels, tile_of, class_of)
    if _mixed_share(labels.array) > _MIXED:
        return block_units(labels, block)
    area = _areas(labels.array, pixels)
    number, side = _cut_areas(area, labels.array, pixels, block)
    units = _units("areas", pixels, number, class_of, None if side >= max(labels.shape) else side)
    return replace(units, area=area)


def block_units(labels: Labels, block: int) -> Units:
    """Units that are squares of the scene's grid with all labels in them, of whatever class."""
    flat = labels.array.ravel()
    pixels = np.flatnonzero(flat)
    block_of, side = _blocks(pixels, labels.shape, block)
    units = _units("blocks", pixels, block_of, np.searchsorted(labels.legend.labels, flat[pixels]), side)
    return replace(units, area=_areas(labels.array, pixels))


def _areas(array: npt.NDArray[np.int16], pixels: Indices) -> Indices:
    """(N,) the connected area that each pixel lies in, with the specks of other classes in it."""
    number: Indices = np.unique(_absorb_specks(connected_areas(array)).ravel()[pixels], return_inverse=True)[1]
    return number


def _units(
    kind: str, pixels: Indices, number: npt.NDArray[np.signedinteger], class_of: Indices, block: int | None = None
) -> Units:
    """Units of pixels with equal ``number`` (N,), numbered in order of their first pixels."""
    _, first, unit = np.unique(number, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    if kind in ("polygons", "areas") and first.size == pixels.size:
        kind = "points"
    return Units(kind, pixels, rank[unit], class_of.astype(np.int64), block)


def _tile_of(shape: tuple[int, int], tiles: Sequence[Window]) -> npt.NDArray[np.int32]:
    """(rows, columns) number of the first tile that contains each pixel, -1 outside of all."""
    tile_of = np.full(shape, -1, dtype=np.int32)
    for number in reversed(range(len(tiles))):
        tile_of[tiles[number].rows, tiles[number].cols] = number
    return tile_of


def _are_points(array: npt.NDArray[np.int16]) -> bool:
    """Whether most labelled pixels stand alone: points, drawn one by one."""
    labelled = array > 0
    has_neighbour = np.zeros_like(labelled)
    for one, other in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        both = labelled[one] & labelled[other]
        has_neighbour[one] |= both
        has_neighbour[other] |= both
    return int(has_neighbour.sum()) < _POINTS * int(labelled.sum())


def _share_in_several(tile_of: npt.NDArray[np.int32], class_of: Indices) -> float:
    """Share of classes with labels in two or more tiles."""
    pairs = np.unique(np.stack([class_of, tile_of], axis=1), axis=0)
    tiles = np.bincount(pairs[:, 0])
    return float((tiles > 1).sum() / (tiles > 0).sum())


def _mixed_share(array: npt.NDArray[np.int16]) -> float:
    """Share of pairs of labelled pixels that share a side and differ in class."""
    pairs = different = 0
    for one, other in ((array[1:], array[:-1]), (array[:, 1:], array[:, :-1])):
        both = (one > 0) & (other > 0)
        pairs += int(both.sum())
        different += int((both & (one != other)).sum())
    return different / max(pairs, 1)


def _blocks(pixels: Indices, shape: tuple[int, int], side: int) -> tuple[Indices, int]:
    """(N,) the block of each pixel, and the side of the blocks, halved until there are enough of them."""
    while True:
        # The last block of a row or column has half a side to one and a half: no thin remainders.
        n_rows, n_cols = (max(1, (size + side // 2) // side) for size in shape)
        row, col = np.divmod(pixels, shape[1])
        block_of = np.minimum(row // side, n_rows - 1) * n_cols + np.minimum(col // side, n_cols - 1)
        if side <= _SMALLEST_BLOCK or np.unique(block_of).size >= _FEWEST_BLOCKS:
            return block_of, side
        side = max(side // 2, _SMALLEST_BLOCK)


def _cut_areas(area: Indices, array: npt.NDArray[np.int16], pixels: Indices, side: int) -> tuple[Indices, int]:
    """(N,) the piece of its area that each pixel lies in, and the longest side of pieces, halved until there are enough
    of them."""
    while True:
        piece = _pieces(area, array, pixels, side)
        if side <= _SMALLEST_BLOCK or side >= max(array.shape) or np.unique(piece).size >= _FEWEST_BLOCKS:
            return piece, side
        side = max(side // 2, _SMALLEST_BLOCK)


def _absorb_specks(area: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The areas (rows, columns), 0 = unlabelled, with specks as part of the larger area that they touch most.

    A few pixels of another class in a field are mostly wrong labels. As units of their own they would be the only ones
    of a class that train while its one field is held out.
    """
    speck = np.bincount(area.ravel()) <= _SPECK
    touching = []  # pairs of speck and larger area, one for each common side
    for one, other in ((area[1:], area[:-1]), (area[:, 1:], area[:, :-1])):
        for small, large in ((one, other), (other, one)):
            is_touching = (small > 0) & (large > 0) & speck[small] & ~speck[large]
            touching.append(np.stack([small[is_touching], large[is_touching]], axis=1))
    pairs, sides = np.unique(np.concatenate(touching), axis=0, return_counts=True)
    belongs_to = np.arange(speck.size, dtype=area.dtype)
    most_last = np.argsort(sides, kind="stable")
    belongs_to[pairs[most_last, 0]] = pairs[most_last, 1]
    absorbed: npt.NDArray[np.int32] = belongs_to[area]
    return absorbed


def _pieces(area: Indices, array: npt.NDArray[np.int16], pixels: Indices, block: int) -> Indices:
    """(N,) number of each pixel's piece: the bounding box of its area (N,), cut into equal parts of at most
    ``block`` x ``block`` pixels."""
    count = int(area.max()) + 1
    number = area
    for at in np.divmod(pixels, array.shape[1]):  # rows, then columns
        low, high = np.full(count, array.size), np.zeros(count, dtype=np.int64)
        np.minimum.at(low, area, at)
        np.maximum.at(high, area, at)
        extent = high - low + 1  # (areas,)
        parts = -(-extent // block)
        part = (at - low[area]) * parts[area] // extent[area]
        number = number * int(parts.max()) + part
    return number


def units_per_class(classes: Indices, unit: Indices, count: int) -> Indices:
    """(count,) number of units with pixels of each class, from the class index and the unit of each pixel (N,)."""
    pairs = np.unique(np.stack([classes, unit], axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=count)


def count_test_units(tested: Labels, classes: npt.NDArray[np.int16], split: Split | None) -> Indices:
    """(n,) number of independent units with test pixels of each of these classes; in a random split, of pixels."""
    if split is not None and split.kind == "random":
        counts = tested.counts()
        return np.array([counts.get(int(label), 0) for label in classes])
    units = label_units(tested)
    class_of = np.searchsorted(classes, tested.legend.labels)[units.class_of]
    return units.independent(np.arange(class_of.size), class_of, classes.size)
