"""Where the features of a layer lie in a scene: their coordinate system, and the grid to rasterize them onto."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import shapely
from rasterio.crs import CRS
from rasterio.errors import CRSError

from hypercaps.data.grid import Lookup, MapGrid
from hypercaps.data.scene import Scene
from hypercaps.errors import LabelsError, warn_data
from hypercaps.io.labels.layer import Features, Geometries, VectorLayer
from hypercaps.io.labels.misplaced import finite_coordinates, likely_mistake
from hypercaps.io.labels.rasterize import bounding_box
from hypercaps.io.labels.regrid import crs_name
from hypercaps.io.labels.vector_file import read_features

_DOWN, _UP = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), (1.0, 0.0, 0.0, 0.0, -1.0, 0.0)  # from pixels to pixel coordinates


@dataclass(frozen=True)
class Placement:
    """How the coordinates of features become pixels of a scene."""

    grid: MapGrid  # to rasterize onto
    crs: str | None  # of the features; None: that of the grid
    lookup: Lookup | None = None  # from the grid to the pixels of a swath scene
    in_pixels: bool = False  # the coordinates are columns and rows


def placed_features(layer: VectorLayer, fields: list[str], scene: Scene) -> tuple[Features, Placement]:
    """All features of a layer, or of a large file those around the scene, and where they lie in the scene."""
    placement = _place(layer, scene)
    if layer.features == 0:
        raise LabelsError(
            f"layer {layer.name!r} of {layer.path} holds no feature: polygons, lines or points are expected"
        )
    near = layer.is_large and not placement.in_pixels
    within = bounding_box(placement.grid, placement.crs or "") if near else None
    features = read_features(layer, fields, within=within)
    if placement.in_pixels and layer.reference != "pixels":
        placement = _with_rows_downwards(placement, features.geometries)
    elif placement.crs is not None:
        _check_degrees(layer, placement.crs, features.geometries, scene)
    return features, placement


def extents_text(features: Features, placement: Placement) -> str:
    """Where features and scene lie, for a message about features that are elsewhere; empty if none has a geometry."""
    xy = finite_coordinates(features.geometries)
    grid = placement.grid
    if xy.size == 0 or grid.transform is None:
        return ""
    rows, cols = grid.shape
    a, b, c, d, e, f = grid.transform
    corners = np.array([(a * x + b * y + c, d * x + e * y + f) for x in (0, cols) for y in (0, rows)])
    own = _extent(xy, placement.crs or grid.crs)
    return f" (the features lie at {own}, the scene at {_extent(corners, grid.crs)})"


def _extent(xy: npt.NDArray[np.float64], crs: str | None) -> str:
    """Of coordinates (N, 2)."""
    (west, south), (east, north) = xy.min(axis=0), xy.max(axis=0)
    system = "" if crs is None else f" in {crs_name(crs)[:60]}"
    return f"x {west:.9g} to {east:.9g}, y {south:.9g} to {north:.9g}{system}"


def _place(layer: VectorLayer, scene: Scene) -> Placement:
    """Refused if only one of layer and scene has a coordinate system; without one, pixel coordinates are meant."""
    grid = scene.map_grid
    pixels = Placement(MapGrid((scene.rows, scene.cols), None, _DOWN), None, in_pixels=True)
    if layer.reference == "pixels":
        return pixels
    crs = layer.crs if layer.reference == "own" or (layer.reference == "default" and grid.crs is not None) else None
    try:
        CRS.from_user_input(crs or "EPSG:4326")
    except CRSError:
        raise LabelsError(
            f"{layer.path} has a coordinate system that can't be read: assign it again in a GIS"
        ) from None
    if crs is not None and (grid.crs is None or grid.transform is None):
        raise LabelsError(
            f"{layer.path} lies in {crs_name(crs)[:60]} but scene {scene.name!r} has no coordinate system: give the "
            "scene one, or give labels in its rows and columns (a raster of its size, or features without a "
            "coordinate system)"
        )
    if grid.transform is None or (grid.crs is None and grid.transform in (_DOWN, _UP)):  # map info of ENVI: Arbitrary
        warn_data(
            f"neither {layer.path.name} nor scene {scene.name!r} has a coordinate system: its coordinates are taken as "
            "columns (x) and rows (y) of pixels, counted from the upper left corner"
        )
        return pixels
    if crs is None and grid.crs is not None and layer.reference != "scene":
        raise LabelsError(
            f"{layer.path} has no coordinate system but scene {scene.name!r} lies in {crs_name(grid.crs)[:60]}: give "
            "the layer its own (in QGIS: Assign Projection; a shapefile needs its .prj)"
        )
    if crs is None and layer.reference != "scene":
        warn_data(
            f"neither {layer.path.name} nor scene {scene.name!r} has a coordinate system: it is assumed to be the same"
        )
    return Placement(grid, crs, scene.lookup)


def _with_rows_downwards(placement: Placement, geometries: Geometries) -> Placement:
    """QGIS shows an image without georeference below the x axis: there, y is minus the row."""
    y = shapely.get_coordinates(geometries)[:, 1]
    if y.size == 0 or not np.median(y) < 0:
        return placement
    return replace(placement, grid=placement.grid._replace(transform=_UP))


def _check_degrees(layer: VectorLayer, crs: str, geometries: Geometries, scene: Scene) -> None:
    """Refuse coordinates in metres that are declared as longitude and latitude, or are so by default."""
    xy = finite_coordinates(geometries)
    if xy.size == 0 or not CRS.from_user_input(crs).is_geographic:
        return
    (west, south), (east, north) = xy.min(axis=0), xy.max(axis=0)
    if west <= 360 and east >= -360 and south <= 90 and north >= -90:
        return
    why = "names no coordinate system, which in GeoJSON means" if layer.reference == "default" else "says it lies in"
    says = f"{layer.path} {why} longitude and latitude, but has coordinates such as {xy[0, 0]:.10g}, {xy[0, 1]:.10g}"
    mistake = likely_mistake(geometries, crs, scene.map_grid)
    if mistake:
        raise LabelsError(says + mistake)
    system = crs_name(scene.map_grid.crs)[:60]
    raise LabelsError(
        f"{says}: assign the system that they are in (in QGIS: Assign Projection), perhaps {system} as the scene, and "
        "save it as a GeoPackage"
    )
