"""Where a variable of a NetCDF or Zarr file lies: its coordinate system and its grid, by the CF conventions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import rasterio
from rasterio.crs import CRS
from rasterio.errors import CRSError

from hypercaps.data.scene import Affine
from hypercaps.errors import warn_data
from hypercaps.io.readers.variables import Variable, find

_CROOKED = 0.05  # of a pixel: how far a coordinate may lie from its place on an even grid; float32 is no better
_DEGREES = ("degrees_north", "degrees_east", "degree_north", "degree_east", "degrees", "degree")
# Coordinates that only count the pixels, from 0 or from 1.
_COUNTS = ((1.0, 0.0, -0.5, 0.0, 1.0, -0.5), (1.0, 0.0, 0.5, 0.0, 1.0, 0.5))
_LATITUDES, _LONGITUDES = ("lat", "latitude"), ("lon", "long", "longitude")


def georeference(
    variable: Variable, variables: Mapping[str, Variable], row: int, col: int
) -> tuple[str | None, Affine | None]:
    """Coordinate system (WKT) and affine of a variable; the user is told of coordinates that fit no even grid."""
    mapping = _grid_mapping(variable, variables)
    crs = None if mapping is None else _named_crs(mapping)
    y, x = (_coordinate(variable, variables, axis) for axis in (row, col))
    if y is None or x is None:
        return crs, None if mapping is None else _listed_affine(mapping)
    transform = _affine(y, x)
    if transform is None and mapping is not None:
        transform = _listed_affine(mapping)
    if transform is None and min(y.shape[0], x.shape[0]) > 1:
        warn_data(
            f"{variable.path.name}: the coordinates of {variable.key!r} are not evenly spaced; it lies nowhere then"
        )
        return None, None
    if crs is None and mapping is None and _is_geographic(y, x):
        crs = CRS.from_epsg(4326).to_wkt()
    if crs is None and transform in _COUNTS:
        return None, None
    return crs, transform


def crs_of_text(text: str) -> str | None:
    """WKT of a coordinate system given as WKT or as EPSG:N; files and addresses, which GDAL would take too, are not."""
    text = text.strip()
    try:
        with rasterio.Env():  # without it GDAL prints its complaints
            if text.upper().startswith("EPSG:"):
                return str(CRS.from_epsg(int(text[5:])).to_wkt())
            if "[" not in text:
                return None
            crs = CRS.from_wkt(text)
            return str(crs.to_wkt()) if crs else None
    except (CRSError, ValueError, OverflowError):
        return None


def _coordinate(variable: Variable, variables: Mapping[str, Variable], axis: int) -> Variable | None:
    """The coordinate of one axis: a list of the same name as its dimension."""
    name = variable.dims[axis]
    found = find(variables, variable.group, name) if name else None
    return found if found is not None and found.shape == (variable.shape[axis],) and found.is_numeric else None


def _grid_mapping(variable: Variable, variables: Mapping[str, Variable]) -> Variable | None:
    """The variable that describes the coordinate system."""
    named = variable.text("grid_mapping").split(":")[0].strip()
    for name in (named, "spatial_ref", "crs"):
        if name and (found := find(variables, variable.group, name)) is not None:
            return found
    return None


def _named_crs(mapping: Variable) -> str | None:
    for name in ("crs_wkt", "spatial_ref", "epsg_code"):
        text = mapping.text(name)
        if not text and mapping.numbers(name).size == 1:
            text = str(int(mapping.numbers(name)[0]))
        if text and (crs := crs_of_text(f"EPSG:{text}" if text.isdigit() else text)) is not None:
            return crs
    if mapping.text("grid_mapping_name") == "latitude_longitude":
        return str(CRS.from_epsg(4326).to_wkt())
    warn_data(f"{mapping.path.name}: {mapping.key!r} names no coordinate system by WKT or EPSG number, so none is used")
    return None


def _affine(y: Variable, x: Variable) -> Affine | None:
    down, across = _steps(y), _steps(x)
    if down is None or across is None:
        return None
    (top, dy), (left, dx) = down, across  # of the first pixel's centre
    return dx, 0.0, left - dx / 2, 0.0, dy, top - dy / 2


def _steps(coordinate: Variable) -> tuple[float, float] | None:
    """The first value and the step of an evenly spaced coordinate, in units of the coordinate system."""
    if coordinate.shape[0] < 2:
        return None
    values = coordinate.unpacked()
    if coordinate.text("units").lower() in ("km", "kilometers", "kilometres"):
        values *= 1e3
    count = values.size
    first, step = float(values[0]), float((values[-1] - values[0]) / (count - 1))
    if not np.isfinite(values).all() or step == 0:
        return None
    if np.abs(values - (first + step * np.arange(count))).max() > _CROOKED * abs(step):
        return None
    return first, step


def _listed_affine(mapping: Variable) -> Affine | None:
    """The six numbers that GDAL writes beside a coordinate system, in its order."""
    try:
        x0, dx, rx, y0, ry, dy = (float(word) for word in mapping.text("GeoTransform").split())
    except ValueError:
        return None
    if not np.isfinite((x0, dx, rx, y0, ry, dy)).all() or dx * dy == rx * ry:
        return None
    return dx, rx, x0, ry, dy, y0


def _is_geographic(y: Variable, x: Variable) -> bool:
    def degrees(coordinate: Variable, names: tuple[str, ...]) -> bool:
        if coordinate.text("units").lower() in _DEGREES:
            return True
        return coordinate.name.lower() in names and not coordinate.text("units")

    return degrees(y, _LATITUDES) and degrees(x, _LONGITUDES)
