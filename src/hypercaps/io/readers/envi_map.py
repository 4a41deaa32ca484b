"""Georeference of an ENVI raster: ``map info`` and ``coordinate system string`` of its header."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hypercaps.data.grid import Affine
from hypercaps.errors import SceneError, warn_data

if TYPE_CHECKING:  # imported for files that have a georeference
    from rasterio.crs import CRS

# EPSG codes of UTM zone 0 on a datum, north and south; those of latitude and longitude.
_UTM = {"WGS-84": (32600, 32700), "NORTH AMERICA 1983": (26900, None), "ETRS89": (25800, None)}
_LATLON = {"WGS-84": 4326, "NORTH AMERICA 1983": 4269, "ETRS89": 4258}


def georeference(header: Mapping[str, str], path: Path) -> tuple[str | None, Affine | None]:
    """CRS as WKT and the affine from pixels to it, each None where the header does not give it."""
    info = header.get("map info", "").strip().removeprefix("{").partition("}")[0]
    parts = [part.strip() for part in info.split(",")] if info.strip() else []
    from_wkt = _wkt_crs(header.get("coordinate system string", ""), path)
    if not parts:
        return None, None  # a CRS alone does not place the raster
    named = _named_crs([part for part in parts if "=" not in part])
    if named is not None and from_wkt is not None and named != from_wkt:
        # A WKT string edited by hand often still parses; zone and datum are less error-prone.
        warn_data(f"{path.name}: its coordinate system string and its map info disagree; map info ({named}) is used")
    crs = named or from_wkt
    return None if crs is None else crs.to_wkt(), _affine(parts, path)


def _wkt_crs(value: str, path: Path) -> CRS | None:
    text = value.strip().removeprefix("{").removesuffix("}").strip()
    if not text:
        return None
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    try:
        return CRS.from_wkt(text, morph_from_esri_dialect='DATUM["D_' in text)
    except CRSError:
        warn_data(f"{path.name}: its coordinate system string can't be parsed and is not used")
        return None


def _named_crs(parts: list[str]) -> CRS | None:
    """The CRS that map info names: UTM, or latitude and longitude, on a supported datum."""
    from rasterio.crs import CRS

    kind, datum = parts[0].lower(), parts[-1].upper()
    if kind == "utm" and len(parts) >= 10 and parts[7].isdigit() and 1 <= int(parts[7]) <= 60 and datum in _UTM:
        base = _UTM[datum][parts[8].lower() == "south"]
        return None if base is None else CRS.from_epsg(base + int(parts[7]))
    if kind == "geographic lat/lon" and datum in _LATLON:
        return CRS.from_epsg(_LATLON[datum])
    return None


def _affine(parts: list[str], path: Path) -> Affine:
    """From (column, row) to (x, y); rotation is in degrees, counter-clockwise."""
    try:
        column, row, x, y, width, height = (float(part) for part in parts[1:7])
        turn = math.radians(next((float(p.partition("=")[2]) for p in parts if p.lower().startswith("rotation")), 0.0))
        if not all(map(math.isfinite, (column, row, x, y, width, height, turn))) or width == 0 or height == 0:
            raise ValueError
    except ValueError:
        raise SceneError(
            f"{path} has a map info that can't be parsed: a projection, reference pixel (2 numbers), its coordinates "
            "(2) and pixel size (2) are expected"
        ) from None
    a, d = math.cos(turn) * width, math.sin(turn) * width  # per column
    b, e = math.sin(turn) * height, -math.cos(turn) * height  # per row
    # ENVI counts pixels from 1, and (1, 1) is the outer corner of the first.
    return a, b, x - a * (column - 1) - b * (row - 1), d, e, y - d * (column - 1) - e * (row - 1)
