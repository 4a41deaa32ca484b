"""Polygons, lines and points onto a grid of pixels.

A pixel belongs to a polygon if its centre lies inside, and to a line or a point if it is touched. Everything is done
in the grid's own columns and rows, so that a rotated grid is like any other.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio._err import CPLE_BaseError
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning
from rasterio.features import rasterize
from rasterio.warp import transform as transform_points

from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import LabelsError
from hypercaps.io.labels.regrid import Grid, crs_name
from hypercaps.io.labels.vector_file import Box, Geometries

Ints = npt.NDArray[np.intp]
Labels16 = npt.NDArray[np.int16]
Groups32 = npt.NDArray[np.int32]

_TILE = 1024  # pixels: what is burnt at once, so that memory does not grow with the scene
_MARGIN = 4  # pixels around the grid that geometries are cut at
_EDGE = 32  # points along each side of the grid that its outline is followed by in another coordinate system
_FARTHEST = 1e30  # in any unit; larger numbers overflow when they are multiplied
_POLYGON = 3  # shapely's type of it; points are 0, lines 1 and rings 2


class Pieces(NamedTuple):
    """Simple geometries in columns and rows of a grid, and which feature each belongs to."""

    shapes: Geometries  # (m,) points, lines and polygons
    feature: Ints  # (m,)
    bounds: npt.NDArray[np.float64]  # (m, 4): first column and row, last column and row


@dataclass(frozen=True)
class Placed:
    """The features of a layer on a grid."""

    pieces: Pieces
    without: int  # features that have no geometry
    mended: int  # polygons that crossed themselves


@dataclass(frozen=True)
class Burnt:
    """Labels on a grid, the feature (from 1) that gave each, and what could not be labelled."""

    labels: Labels16
    groups: Groups32
    overlaps: Mapping[tuple[int, int], int]  # pixels by the two classes that claim them
    empty: int  # polygons that hold no pixel's centre


def outline(grid: Grid, crs: str) -> Box | None:
    """The box that holds the grid in another coordinate system, and a little more; None where it can't be told."""
    rows, cols = grid.shape
    along = np.linspace(0, 1, _EDGE)
    col = np.concatenate([along, along, 0 * along, 0 * along + 1]) * cols
    row = np.concatenate([0 * along, 0 * along + 1, along, along]) * rows
    a, b, c, d, e, f = grid.transform
    x, y = _to_crs(a * col + b * row + c, d * col + e * row + f, grid.crs, crs)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    wide, high = x.max() - x.min(), y.max() - y.min()
    return x.min() - wide / 8, y.min() - high / 8, x.max() + wide / 8, y.max() + high / 8


def place(geometries: Geometries, crs: str | None, grid: Grid, where: str) -> Placed:
    """Bring features from their coordinate system into columns and rows of the grid; what lies apart is left out."""
    import shapely

    try:
        with np.errstate(all="ignore"):  # numbers that overflow are refused below
            return _place(geometries, crs, grid, where)
    except shapely.GEOSException as cause:
        reason = str(cause).partition("\n")[0]
        raise LabelsError(f"{where} holds a geometry that can't be used ({reason}): mend it in a GIS") from cause


def _place(geometries: Geometries, crs: str | None, grid: Grid, where: str) -> Placed:
    import shapely

    with_geometry = ~(shapely.is_missing(geometries) | shapely.is_empty(geometries))
    coordinates, of = shapely.get_coordinates(geometries, return_index=True)
    bad = ~(np.abs(coordinates) < _FARTHEST).all(axis=1)  # NaN is not less
    if bad.any():
        raise LabelsError(
            f"feature {of[bad][0] + 1} of {where} has coordinates that are no numbers of this world: mend it or take "
            "it out"
        )
    shapes, feature = _simple(geometries[with_geometry], np.flatnonzero(with_geometry))
    shapes, feature, mended = _mend(shapes, feature)
    if crs is not None and grid.crs is not None and CRS.from_user_input(crs) != CRS.from_user_input(grid.crs):
        box = outline(grid, crs)
        if box is not None:
            shapes, feature = _cut(shapes, feature, box)
            # A straight line is not straight in another system: it is followed in short pieces.
            shapes = shapely.segmentize(shapes, max(box[2] - box[0], box[3] - box[1]) / 256)
        x, y = shapely.get_coordinates(shapes).T
        shapes = _moved(shapes, *_to_crs(x, y, crs, grid.crs))
    a, b, c, d, e, f = tuple(~rasterio.Affine(*grid.transform))[:6]
    x, y = shapely.get_coordinates(shapes).T
    shapes = _moved(shapes, a * x + b * y + c, d * x + e * y + f)
    if not np.isfinite(shapely.get_coordinates(shapes)).all():
        raise LabelsError(
            f"{where} lies where its coordinate system can't be brought into {crs_name(grid.crs)}: give labels of the "
            "same place"
        )
    rows, cols = grid.shape
    shapes, feature = _cut(shapes, feature, (-_MARGIN, -_MARGIN, cols + _MARGIN, rows + _MARGIN))
    bounds = shapely.bounds(shapes).reshape(-1, 4)
    near = (bounds[:, 0] < cols) & (bounds[:, 1] < rows) & (bounds[:, 2] >= 0) & (bounds[:, 3] >= 0)
    pieces = Pieces(shapes[near], feature[near], bounds[near])
    return Placed(pieces, int((~with_geometry).sum()), mended)


def _simple(geometries: Geometries, feature: Ints) -> tuple[Geometries, Ints]:
    """Collections, multipolygons and the like taken apart into points, lines and polygons."""
    import shapely

    while (shapely.get_type_id(geometries) > _POLYGON).any():  # collections may hold collections
        geometries, of = shapely.get_parts(geometries, return_index=True)
        feature = feature[of]
    kept = ~shapely.is_empty(geometries)
    return geometries[kept], feature[kept]


def _only(shapes: Geometries, feature: Ints, kind: Ints) -> tuple[Geometries, Ints]:
    """Simple parts of what came out of an operation, without the crumbs of lower dimension."""
    import shapely

    parts, of = _simple(shapes, np.arange(shapes.size))
    same = shapely.get_dimensions(parts) == np.where(kind[of] == _POLYGON, 2, np.minimum(kind[of], 1))
    return parts[same], feature[of[same]]


def _mend(shapes: Geometries, feature: Ints) -> tuple[Geometries, Ints, int]:
    """Polygons that cross themselves, made valid; others are left as they are."""
    import shapely

    wrong = (shapely.get_type_id(shapes) == _POLYGON) & ~shapely.is_valid(shapes)
    if not wrong.any():
        return shapes, feature, 0
    mended, of = _only(shapely.make_valid(shapes[wrong]), feature[wrong], np.full(int(wrong.sum()), _POLYGON))
    return np.concatenate([shapes[~wrong], mended]), np.concatenate([feature[~wrong], of]), int(wrong.sum())


def _cut(shapes: Geometries, feature: Ints, box: Box) -> tuple[Geometries, Ints]:
    """What lies in the box, which has room around the grid; shapes that lie in it wholly are left as they are."""
    import shapely

    west, south, east, north = shapely.bounds(shapes).reshape(-1, 4).T
    meets = (west <= box[2]) & (east >= box[0]) & (south <= box[3]) & (north >= box[1])
    shapes, feature = shapes[meets], feature[meets]
    out = ((west < box[0]) | (east > box[2]) | (south < box[1]) | (north > box[3]))[meets]
    if not out.any():
        return shapes, feature
    cut, of = _only(shapely.clip_by_rect(shapes[out], *box), feature[out], shapely.get_type_id(shapes[out]))
    shapes, feature = np.concatenate([shapes[~out], cut]), np.concatenate([feature[~out], of])
    return _mend(shapes, feature)[:2]


def _moved(shapes: Geometries, x: npt.ArrayLike, y: npt.ArrayLike) -> Geometries:
    import shapely

    moved: Geometries = shapely.set_coordinates(shapes.copy(), np.column_stack([x, y]))
    return moved


def _to_crs(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], source: str | None, target: str | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    if x.size == 0 or source is None or target is None:
        return x, y
    try:
        there = transform_points(CRS.from_user_input(source), CRS.from_user_input(target), x, y)
    except CPLE_BaseError:  # a point that is on no map of the other system
        return np.full_like(x, np.nan), np.full_like(y, np.nan)
    return np.asarray(there[0]), np.asarray(there[1])


def burn(pieces: Pieces, classes: npt.NDArray[np.int64], shape: tuple[int, int]) -> Burnt:
    """Burn pieces, whose features have the given classes (features,), into a grid of ``shape``.

    Where features of one class overlap the first one counts; where classes differ nobody does.
    """
    labels, groups = np.zeros(shape, dtype=np.int16), np.zeros(shape, dtype=np.int32)
    disputed = np.zeros(shape, dtype=bool)
    overlaps: Counter[tuple[int, int]] = Counter()
    of_class = classes[pieces.feature]
    burnt = np.zeros(classes.size + 1, dtype=bool)  # by feature, from 1
    left, top, right, bottom = pieces.bounds.T
    for tile in tile_windows(Window(0, shape[0], 0, shape[1]), _TILE):
        here = (left < tile.c1) & (top < tile.r1) & (right >= tile.c0) & (bottom >= tile.r0) & (of_class > 0)
        for label in np.unique(of_class[here]):
            which = np.flatnonzero(here & (of_class == label))
            window = _around(pieces, which, tile)
            found = _burn_groups(pieces, which, window)
            claimed = labels[window.rows, window.cols]  # a view: what is written here is written there
            both = (found > 0) & (claimed > 0)
            for other, pixels in zip(*np.unique(claimed[both], return_counts=True), strict=True):
                overlaps[int(other), int(label)] += int(pixels)
            disputed[window.rows, window.cols] |= both
            fresh = (found > 0) & ~both
            claimed[fresh] = label
            groups[window.rows, window.cols][fresh] = found[fresh]
            burnt[found[found > 0]] = True
    labels[disputed] = 0
    groups[disputed] = 0
    return Burnt(labels, groups, overlaps, _count_empty(pieces, (of_class > 0) & ~burnt[pieces.feature + 1], shape))


def _around(pieces: Pieces, which: Ints, tile: Window) -> Window:
    """The part of a tile that some pieces can reach."""
    left, top = np.floor(pieces.bounds[which, :2].min(axis=0)).astype(int).tolist()
    right, bottom = np.floor(pieces.bounds[which, 2:].max(axis=0)).astype(int).tolist()
    return Window(max(tile.r0, top), min(tile.r1, bottom + 1), max(tile.c0, left), min(tile.c1, right + 1))


def _burn_groups(pieces: Pieces, which: Ints, tile: Window) -> Groups32:
    """The number (from 1) of the first of the features that claims each pixel of a tile."""
    import shapely

    is_polygon = shapely.get_type_id(pieces.shapes[which]) == _POLYGON
    areas = _rasterized(pieces, which[is_polygon], tile, touched=False)
    touched = _rasterized(pieces, which[~is_polygon], tile, touched=True)
    return np.where(areas > 0, areas, touched)


def _rasterized(pieces: Pieces, which: Ints, tile: Window, *, touched: bool) -> Groups32:
    found = np.zeros((tile.r1 - tile.r0, tile.c1 - tile.c0), dtype=np.int32)
    if which.size:
        which = which[np.argsort(-pieces.feature[which], kind="stable")]  # later ones are burnt over: the first last
        shapes = _mappings(pieces.shapes[which], polygons=not touched)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            rasterize(
                zip(shapes, (pieces.feature[which] + 1).tolist(), strict=True),
                out=found,
                transform=rasterio.Affine(1, 0, tile.c0, 0, 1, tile.r0),
                all_touched=touched,
            )
    return found


def _mappings(shapes: Geometries, *, polygons: bool) -> Iterator[dict[str, Any]]:
    """Shapes as rasterio takes them, all at once: it takes shapely's own apart one number after the other."""
    import shapely

    if polygons:
        _, xy, (rings, starts) = shapely.to_ragged_array(shapes, include_z=False)
        points = xy.tolist()
        for first, last in itertools.pairwise(starts.tolist()):
            ends = rings[first : last + 1].tolist()
            yield {"type": "Polygon", "coordinates": [points[a:b] for a, b in itertools.pairwise(ends)]}
    else:
        for shape in shapes:
            points = shapely.get_coordinates(shape).tolist()
            is_point = shapely.get_type_id(shape) == 0
            yield {"type": "Point" if is_point else "LineString", "coordinates": points[0] if is_point else points}


def _count_empty(pieces: Pieces, unseen: npt.NDArray[np.bool_], shape: tuple[int, int]) -> int:
    """Polygons among the pieces ``unseen`` that hold no centre; others lost their pixels to an earlier feature."""
    import shapely

    rows, cols = shape
    left, top, right, bottom = pieces.bounds.T
    inside = (left >= 0) & (top >= 0) & (right <= cols) & (bottom <= rows)
    is_polygon = shapely.get_type_id(pieces.shapes) == _POLYGON
    suspects = np.flatnonzero(unseen & inside & is_polygon)
    holds: dict[int, bool] = {}  # by feature
    for piece in suspects:
        c0, r0, c1, r1 = pieces.bounds[piece]
        near = Window(int(r0), min(int(r1) + 1, rows), int(c0), min(int(c1) + 1, cols))
        centre = bool(_rasterized(pieces, np.array([piece]), near, touched=False).any())
        holds[int(pieces.feature[piece])] = holds.get(int(pieces.feature[piece]), False) or centre
    return sum(not centre for centre in holds.values())
