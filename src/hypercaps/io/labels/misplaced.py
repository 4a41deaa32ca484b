"""What may be wrong with features that lie elsewhere than the scene, for the end of an error message."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import shapely
from rasterio.crs import CRS

from hypercaps.data.grid import MapGrid
from hypercaps.io.labels.layer import Box, Geometries
from hypercaps.io.labels.rasterize import bounding_box

Floats = npt.NDArray[np.float64]


def likely_mistake(geometries: Geometries, crs: str | None, grid: MapGrid) -> str:
    """'; exchange x and y ...', or that they look like pixels; empty if neither would place them in the scene.

    crs : of the features; None: that of the grid
    """
    xy = finite_coordinates(geometries)
    system = crs or grid.crs
    if xy.size == 0 or system is None or grid.transform is None:
        return ""
    box = bounding_box(grid, system)
    if box is not None and _are_in(xy[:, ::-1], box):
        order = "longitude comes before latitude" if CRS.from_user_input(system).is_geographic else "x is the easting"
        return f"; exchange x and y, which would place them in it: {order}"
    rows, cols = grid.shape
    if _are_in(np.abs(xy), (0, 0, cols, rows)):
        return (
            "; coordinates that are columns and rows of pixels are read for scenes without a coordinate system only: "
            "write such points to a CSV file with the columns row, column and class, or place them on the map in a GIS"
        )
    return ""


def finite_coordinates(geometries: Geometries) -> Floats:
    """(N, 2) of all features, without those that are no numbers."""
    xy: Floats = shapely.get_coordinates(geometries)
    return xy[np.isfinite(xy).all(axis=1)]


def _are_in(xy: Floats, box: Box) -> bool:
    """Whether most coordinates (N, 2) lie in a box."""
    west, south, east, north = box
    x, y = xy.T
    return bool(np.mean((x >= west) & (x <= east) & (y >= south) & (y <= north)) > 0.5)
