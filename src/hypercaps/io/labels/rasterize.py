"""Rasterize polygons, lines and points onto a pixel grid.

A pixel belongs to a polygon if its centre lies inside, and to a line or a point that touches it. Geometries are
transformed into columns and rows of the grid first, so that rotated grids need no special treatment.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import rasterio
import rasterio.features
import shapely
from rasterio._err import CPLE_BaseError
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning
from rasterio.warp import transform as transform_points

from hypercaps.data.grid import MapGrid
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import LabelsError
from hypercaps.io.labels.fates import Fate, Fates
from hypercaps.io.labels.layer import Box, Geometries
from hypercaps.io.labels.regrid import crs_name

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Labels16 = npt.NDArray[np.int16]
Groups32 = npt.NDArray[np.int32]

_TILE = 1024  # pixels: side of the tiles that are rasterized, so that memory does not grow with the scene
_MARGIN = 4  # pixels around the grid at which geometries are clipped
_EDGE = 32  # points along each side of the grid that its outline is transformed by
_LARGEST = 1e30  # coordinate, in any unit; larger ones overflow when they are multiplied
_POLYGON = 3  # type in shapely; points are 0, lines 1 and rings 2


@dataclass(frozen=True)
class FeaturesOnGrid:
    """Features of a layer as simple geometries, their pieces, in columns and rows of a grid."""

    shapes: Geometries  # (m,) points, lines and polygons
    feature: Ints  # (m,) the feature of each piece
    bounds: Floats  # (m, 4): first column and row, last column and row
    has_geometry: npt.NDArray[np.bool_]  # (features,)
    repaired: int  # number of polygons that intersected themselves


@dataclass(frozen=True)
class RasterizedFeatures:
    """Labels on a grid, and what became of each feature."""

    labels: Labels16  # (rows, columns)
    groups: Groups32  # (rows, columns) number of the feature, from 1; 0 = unlabelled
    overlaps: Mapping[tuple[int, int], int]  # pixels by the two classes that claim them
    fates: Fates  # (features,) what became of each


def bounding_box(grid: MapGrid, crs: str) -> Box | None:
    """The bounding box of a grid in another coordinate system, with a margin; None where it can't be transformed."""
    rows, cols = grid.shape
    along = np.linspace(0, 1, _EDGE)
    col = np.concatenate([along, along, 0 * along, 0 * along + 1]) * cols
    row = np.concatenate([0 * along, 0 * along + 1, along, along]) * rows
    assert grid.transform is not None
    a, b, c, d, e, f = grid.transform
    x, y = _to_crs(a * col + b * row + c, d * col + e * row + f, grid.crs, crs)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    width, height = x.max() - x.min(), y.max() - y.min()
    return x.min() - width / 8, y.min() - height / 8, x.max() + width / 8, y.max() + height / 8


def features_to_grid(geometries: Geometries, crs: str | None, grid: MapGrid, file: str) -> FeaturesOnGrid:
    """Transform features into columns and rows of a grid, without those that lie outside it."""
    try:
        with np.errstate(all="ignore"):  # numbers that overflow are refused below
            return _features_to_grid(geometries, crs, grid, file)
    except shapely.GEOSException as cause:
        reason = str(cause).partition("\n")[0]
        raise LabelsError(f"{file} holds a geometry that can't be used ({reason}): repair it in a GIS") from cause


def _features_to_grid(geometries: Geometries, crs: str | None, grid: MapGrid, file: str) -> FeaturesOnGrid:
    with_geometry = ~(shapely.is_missing(geometries) | shapely.is_empty(geometries))
    coordinates, of = shapely.get_coordinates(geometries, return_index=True)
    bad = ~(np.abs(coordinates) < _LARGEST).all(axis=1)  # NaN is not less
    if bad.any():
        raise LabelsError(
            f"feature {of[bad][0] + 1} of {file} has coordinates that are not finite numbers or too large: repair it "
            "or remove it"
        )
    shapes, feature = _simple_parts(geometries[with_geometry], np.flatnonzero(with_geometry))
    shapes, feature, repaired = _repair(shapes, feature)
    if crs is not None and grid.crs is not None and CRS.from_user_input(crs) != CRS.from_user_input(grid.crs):
        box = bounding_box(grid, crs)
        if box is not None:
            shapes, feature = _clip(shapes, feature, box)
            # A straight line is curved in another system: it is transformed in short segments.
            shapes = shapely.segmentize(shapes, max(box[2] - box[0], box[3] - box[1]) / 256)
        x, y = shapely.get_coordinates(shapes).T
        shapes = _with_coordinates(shapes, *_to_crs(x, y, crs, grid.crs))
    assert grid.transform is not None
    a, b, c, d, e, f = tuple(~rasterio.Affine(*grid.transform))[:6]
    x, y = shapely.get_coordinates(shapes).T
    shapes = _with_coordinates(shapes, a * x + b * y + c, d * x + e * y + f)
    if not np.isfinite(shapely.get_coordinates(shapes)).all():
        raise LabelsError(
            f"{file} lies where its coordinate system can't be transformed to {crs_name(grid.crs)}: give labels of the "
            "same place"
        )
    rows, cols = grid.shape
    shapes, feature = _clip(shapes, feature, (-_MARGIN, -_MARGIN, cols + _MARGIN, rows + _MARGIN))
    bounds = shapely.bounds(shapes).reshape(-1, 4)
    near = (bounds[:, 0] < cols) & (bounds[:, 1] < rows) & (bounds[:, 2] >= 0) & (bounds[:, 3] >= 0)
    return FeaturesOnGrid(shapes[near], feature[near], bounds[near], with_geometry, repaired)


def _simple_parts(geometries: Geometries, feature: Ints) -> tuple[Geometries, Ints]:
    """Split collections and multi-part geometries into points, lines and polygons."""
    while (shapely.get_type_id(geometries) > _POLYGON).any():  # collections may contain collections
        geometries, of = shapely.get_parts(geometries, return_index=True)
        feature = feature[of]
    kept = ~shapely.is_empty(geometries)
    return geometries[kept], feature[kept]


def _parts_of_type(shapes: Geometries, feature: Ints, kind: Ints) -> tuple[Geometries, Ints]:
    """Simple parts of the results of an operation on shapes of type ``kind``, without parts of lower dimension."""
    parts, of = _simple_parts(shapes, np.arange(shapes.size))
    has_dimension = shapely.get_dimensions(parts) == np.where(kind[of] == _POLYGON, 2, np.minimum(kind[of], 1))
    return parts[has_dimension], feature[of[has_dimension]]


def _repair(shapes: Geometries, feature: Ints) -> tuple[Geometries, Ints, int]:
    """Make polygons that intersect themselves valid; other shapes are unchanged."""
    invalid = (shapely.get_type_id(shapes) == _POLYGON) & ~shapely.is_valid(shapes)
    count = int(invalid.sum())
    if count == 0:
        return shapes, feature, 0
    valid, of = _parts_of_type(shapely.make_valid(shapes[invalid]), feature[invalid], np.full(count, _POLYGON))
    return np.concatenate([shapes[~invalid], valid]), np.concatenate([feature[~invalid], of]), count


def _clip(shapes: Geometries, feature: Ints, box: Box) -> tuple[Geometries, Ints]:
    """The shapes inside a box; those entirely inside it are unchanged."""
    west, south, east, north = shapely.bounds(shapes).reshape(-1, 4).T
    meets = (west <= box[2]) & (east >= box[0]) & (south <= box[3]) & (north >= box[1])
    shapes, feature = shapes[meets], feature[meets]
    out = ((west < box[0]) | (east > box[2]) | (south < box[1]) | (north > box[3]))[meets]
    if not out.any():
        return shapes, feature
    clipped = shapely.clip_by_rect(shapes[out], *box)
    clipped, of = _parts_of_type(clipped, feature[out], shapely.get_type_id(shapes[out]))
    shapes, feature = np.concatenate([shapes[~out], clipped]), np.concatenate([feature[~out], of])
    return _repair(shapes, feature)[:2]


def _with_coordinates(shapes: Geometries, x: Floats, y: Floats) -> Geometries:
    moved: Geometries = shapely.set_coordinates(shapes.copy(), np.column_stack([x, y]))
    return moved


def _to_crs(x: Floats, y: Floats, source: str | None, target: str | None) -> tuple[Floats, Floats]:
    if x.size == 0 or source is None or target is None:
        return x, y
    try:
        transformed = transform_points(CRS.from_user_input(source), CRS.from_user_input(target), x, y)
    except CPLE_BaseError:  # a point outside the domain of the other system
        return np.full_like(x, np.nan), np.full_like(y, np.nan)
    return np.asarray(transformed[0]), np.asarray(transformed[1])


def rasterize(pieces: FeaturesOnGrid, classes: npt.NDArray[np.int64], shape: tuple[int, int]) -> RasterizedFeatures:
    """Rasterize features of the given class numbers (features,), 0 = no class, onto a grid of ``shape``.

    Where features of one class overlap, the first one is used; where classes overlap, pixels stay unlabelled.
    """
    labels, groups = np.zeros(shape, dtype=np.int16), np.zeros(shape, dtype=np.int32)
    disputed = np.zeros(shape, dtype=bool)
    overlaps: Counter[tuple[int, int]] = Counter()
    class_of = classes[pieces.feature]  # (m,)
    is_used = np.zeros(classes.size + 1, dtype=bool)  # by feature, from 1
    left, top, right, bottom = pieces.bounds.T
    for tile in tile_windows(Window(0, shape[0], 0, shape[1]), _TILE):
        in_tile = (left < tile.c1) & (top < tile.r1) & (right >= tile.c0) & (bottom >= tile.r0) & (class_of > 0)
        for label in np.unique(class_of[in_tile]):
            which = np.flatnonzero(in_tile & (class_of == label))
            window = _window_of(pieces, which, tile)
            numbers = _feature_numbers(pieces, which, window)
            claimed = labels[window.rows, window.cols]  # a view, written to below
            both = (numbers > 0) & (claimed > 0)
            for other, pixels in zip(*np.unique(claimed[both], return_counts=True), strict=True):
                overlaps[int(other), int(label)] += int(pixels)
            disputed[window.rows, window.cols] |= both
            new = (numbers > 0) & ~both
            claimed[new] = label
            groups[window.rows, window.cols][new] = numbers[new]
            is_used[numbers[numbers > 0]] = True
    labels[disputed] = 0
    groups[disputed] = 0
    return RasterizedFeatures(labels, groups, overlaps, _fates(pieces, classes, groups, is_used[1:]))


def _window_of(pieces: FeaturesOnGrid, which: Ints, tile: Window) -> Window:
    """The part of a tile inside the bounds of some pieces."""
    left, top = np.floor(pieces.bounds[which, :2].min(axis=0)).astype(int).tolist()
    right, bottom = np.floor(pieces.bounds[which, 2:].max(axis=0)).astype(int).tolist()
    return Window(max(tile.r0, top), min(tile.r1, bottom + 1), max(tile.c0, left), min(tile.c1, right + 1))


def _feature_numbers(pieces: FeaturesOnGrid, which: Ints, window: Window) -> Groups32:
    """(h, w) number (from 1) of the first feature that covers each pixel; polygons before lines and points."""
    is_polygon = shapely.get_type_id(pieces.shapes[which]) == _POLYGON
    areas = _rasterize_window(pieces, which[is_polygon], window, all_touched=False)
    touched = _rasterize_window(pieces, which[~is_polygon], window, all_touched=True)
    return np.where(areas > 0, areas, touched)


def _rasterize_window(pieces: FeaturesOnGrid, which: Ints, window: Window, *, all_touched: bool) -> Groups32:
    numbers = np.zeros((window.r1 - window.r0, window.c1 - window.c0), dtype=np.int32)
    if which.size:
        which = which[np.argsort(-pieces.feature[which], kind="stable")]  # later shapes overwrite: the first is last
        shapes = _mappings(pieces.shapes[which], polygons=not all_touched)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            rasterio.features.rasterize(
                zip(shapes, (pieces.feature[which] + 1).tolist(), strict=True),
                out=numbers,
                transform=rasterio.Affine(1, 0, window.c0, 0, 1, window.r0),
                all_touched=all_touched,
            )
    return numbers


def _mappings(shapes: Geometries, *, polygons: bool) -> Iterator[dict[str, object]]:
    """GeoJSON-like shapes for rasterio, converted together: it converts shapely's geometries number by number."""
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


def _fates(
    pieces: FeaturesOnGrid, classes: npt.NDArray[np.int64], groups: Groups32, reached: npt.NDArray[np.bool_]
) -> Fates:
    """(features,) what became of each; ``reached``: it had a pixel of its class, even if another class has it too."""
    fates = np.full(classes.size, Fate.OUTSIDE, dtype=np.int8)
    fates[reached] = Fate.COVERED
    fates[np.unique(groups[groups > 0]) - 1] = Fate.USED
    shape = (groups.shape[0], groups.shape[1])
    # Outside, too small, or covered by its own class.
    for piece in np.flatnonzero(~reached[pieces.feature] & (classes[pieces.feature] > 0)):
        feature = int(pieces.feature[piece])
        fates[feature] = max(fates[feature], _fate_of_piece(pieces, int(piece), shape))
    fates[classes == 0] = Fate.NO_CLASS
    fates[~pieces.has_geometry] = Fate.NO_GEOMETRY
    return fates


def _fate_of_piece(pieces: FeaturesOnGrid, piece: int, shape: tuple[int, int]) -> Fate:
    """What became of a piece that has no pixel in the raster."""
    rows, cols = shape
    kind = shapely.get_type_id(pieces.shapes[piece])
    if kind == 0:
        return Fate.COVERED  # a point in the grid always has a pixel
    which, window = np.array([piece]), _window_of(pieces, np.array([piece]), Window(0, rows, 0, cols))
    if _rasterize_window(pieces, which, window, all_touched=kind != _POLYGON).any():
        return Fate.COVERED
    left, top, right, bottom = pieces.bounds[piece]
    is_inside = left >= 0 and top >= 0 and right <= cols and bottom <= rows
    return Fate.NO_CENTRE if is_inside else Fate.OUTSIDE
