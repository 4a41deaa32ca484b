"""Coordinate system and affine transform of a variable, by the CF conventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.crs import CRS
from rasterio.errors import CRSError

from hypercaps.data.grid import Affine
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.readers.variables import Variable, find

_TOLERANCE = 0.05  # of a pixel: distance of a coordinate from its place on an even grid; float32 is no better
_DEGREES = ("degrees_north", "degrees_east", "degree_north", "degree_east", "degrees", "degree")
# Coordinates that only number the pixels, from 0 or from 1.
_PIXEL_NUMBERS = ((1.0, 0.0, -0.5, 0.0, 1.0, -0.5), (1.0, 0.0, 0.5, 0.0, 1.0, 0.5))
_LATITUDES, _LONGITUDES = ("lat", "latitude"), ("lon", "long", "longitude")


def georeference(
    variable: Variable, variables: Mapping[str, Variable], row: int, col: int
) -> tuple[str | None, Affine | None]:
    """Coordinate system (WKT) and affine of a variable whose axes ``row`` and ``col`` are known.

    Warns about coordinates that are not evenly spaced.
    """
    mapping = _grid_mapping(variable, variables)
    crs = None if mapping is None else _mapping_crs(mapping)
    listed = None if mapping is None else affine_of_gdal(mapping.text("GeoTransform").split())
    y, x = (_coordinate(variable, variables, axis) for axis in (row, col))
    if y is None or x is None:
        return crs, listed
    transform, down, across = listed, _even_steps(y), _even_steps(x)
    if down is not None and across is not None:
        (top, dy), (left, dx) = down, across  # of the first pixel's centre
        transform = dx, 0.0, left - dx / 2, 0.0, dy, top - dy / 2
    if transform is None and min(y.shape[0], x.shape[0]) > 1:
        warn_data(f"{variable.path.name}: the coordinates of {variable.key!r} are not evenly spaced and are not used")
        return None, None
    if mapping is None and _is_degrees(y, _LATITUDES) and _is_degrees(x, _LONGITUDES):
        crs = CRS.from_epsg(4326).to_wkt()
    if crs is None and transform in _PIXEL_NUMBERS:
        return None, None
    return crs, transform


def given_georeference(crs: Any, transform: Sequence[float] | None) -> tuple[str | None, Affine | None]:
    """WKT and affine that a user gave: text or an object with ``to_wkt``, and six numbers or those of an Affine."""
    text = None
    if crs is not None:
        text = crs_of_text(crs.to_wkt() if hasattr(crs, "to_wkt") else str(crs))
        if text is None:
            raise SceneError(f"the coordinate system {str(crs)[:80]!r} can't be read: give WKT, or EPSG:N as its code")
    if transform is None:
        return text, None
    numbers = tuple(float(number) for number in transform)[:6]
    usable = len(numbers) == 6 and np.isfinite(numbers).all() and numbers[0] * numbers[4] != numbers[1] * numbers[3]
    if not usable or (numbers[1] and numbers[2] == numbers[4] == 0):  # GDAL's order: x0, dx, 0, y0, 0, dy
        raise SceneError(
            f"the transform {numbers} is no grid: six numbers (a, b, c, d, e, f) of x = a*col + b*row + c, y = d*col + "
            "e*row + f are expected, as rasterio's Affine has them (rasterio.Affine.from_gdal takes those of GDAL)"
        )
    a, b, c, d, e, f = numbers
    return text, (a, b, c, d, e, f)


def crs_of_text(text: str) -> str | None:
    """WKT of a coordinate system given as WKT or as EPSG:N; never a file or URL, which GDAL would open."""
    text = text.strip()
    try:
        with rasterio.Env():  # without it GDAL prints its error messages
            if text.upper().startswith("EPSG:"):
                return str(CRS.from_epsg(int(text[5:])).to_wkt())
            crs = CRS.from_wkt(text) if "[" in text else None
            return str(crs.to_wkt()) if crs else None
    except (CRSError, ValueError, OverflowError):
        return None


def affine_of_gdal(numbers: Sequence[str] | npt.NDArray[Any]) -> Affine | None:
    """The affine of six numbers in GDAL's order; None if they are not finite or can't be inverted."""
    try:
        x0, dx, rx, y0, ry, dy = (float(number) for number in numbers)
    except ValueError:  # no numbers, or not six
        return None
    is_usable = np.isfinite((x0, dx, rx, y0, ry, dy)).all() and dx * dy != rx * ry
    return (dx, rx, x0, ry, dy, y0) if is_usable else None


def _coordinate(variable: Variable, variables: Mapping[str, Variable], axis: int) -> Variable | None:
    """The coordinate of an axis: a list with the name of its dimension."""
    name = variable.dims[axis]
    other = find(variables, variable.group, name) if name else None
    return other if other is not None and other.shape == (variable.shape[axis],) and other.is_numeric else None


def _grid_mapping(variable: Variable, variables: Mapping[str, Variable]) -> Variable | None:
    """The variable whose attributes describe the coordinate system."""
    named = variable.text("grid_mapping").split(":")[0].strip()
    candidates = (find(variables, variable.group, name) for name in (named, "spatial_ref", "crs") if name)
    return next((mapping for mapping in candidates if mapping is not None), None)


def _mapping_crs(mapping: Variable) -> str | None:
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


def _even_steps(coordinate: Variable) -> tuple[float, float] | None:
    """First value and step of an evenly spaced coordinate, in units of the coordinate system."""
    count = coordinate.shape[0]
    if count < 2:
        return None
    values = coordinate.read_scaled()
    if coordinate.text("units").lower() in ("km", "kilometers", "kilometres"):
        values *= 1e3
    first, step = float(values[0]), float((values[-1] - values[0]) / (count - 1))
    if not np.isfinite(values).all() or step == 0:
        return None
    is_even = np.abs(values - (first + step * np.arange(count))).max() <= _TOLERANCE * abs(step)
    return (first, step) if is_even else None


def _is_degrees(coordinate: Variable, names: tuple[str, ...]) -> bool:
    units = coordinate.text("units").lower()
    return units in _DEGREES or (not units and coordinate.name.lower() in names)
