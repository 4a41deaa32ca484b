"""A class map as an xarray DataArray, described by the CF conventions and as rioxarray describes a raster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.grid import Affine
from hypercaps.data.labels import Legend
from hypercaps.errors import MissingLibraryError
from hypercaps.io.readers.georeference import crs_of_text

if TYPE_CHECKING:
    import xarray

_GRID_MAPPING = "spatial_ref"  # rioxarray's name


def class_map_array(
    classes: npt.NDArray[np.int16],
    confidence: npt.NDArray[np.float32],
    legend: Legend,
    georeference: tuple[str | None, Affine | None],
) -> xarray.DataArray:
    """See :meth:`ClassMap.to_xarray`."""
    try:
        import xarray
    except ImportError as error:
        raise MissingLibraryError(
            f"to_xarray needs xarray, which can't be imported here ({error}): install it (pip install xarray)"
        ) from error
    crs, transform = georeference
    coords: dict[str, Any] = {"confidence": (("y", "x"), confidence, {"long_name": "confidence of the class"})}
    coords |= _centres(classes.shape, crs, transform)
    if crs is not None or transform is not None:
        coords[_GRID_MAPPING] = ((), 0, _grid_attributes(crs, transform))
    data = xarray.DataArray(classes, dims=("y", "x"), coords=coords, name="classes", attrs=_class_attributes(legend))
    for variable in (data.variable, data.coords["confidence"].variable):
        if _GRID_MAPPING in coords:
            variable.encoding["grid_mapping"] = _GRID_MAPPING
    return data


def _class_attributes(legend: Legend) -> dict[str, Any]:
    return {
        "long_name": "class",
        "flag_values": legend.labels,
        "flag_meanings": " ".join("_".join(entry.name.split()) for entry in legend),
        "flag_colors": " ".join("#{:02x}{:02x}{:02x}".format(*entry.color) for entry in legend),
        "class_names": [entry.name for entry in legend],
    }


def _centres(shape: tuple[int, ...], crs: str | None, transform: Affine | None) -> dict[str, Any]:
    """Coordinates of the centres of pixels; none for a rotated grid, whose GeoTransform says it all."""
    if transform is None or transform[1] or transform[3]:
        return {}
    a, _, c, _, e, f = transform
    x, y = c + a * (np.arange(shape[1]) + 0.5), f + e * (np.arange(shape[0]) + 0.5)
    names = ("longitude", "latitude") if _is_geographic(crs) else ("projection_x_coordinate", "projection_y_coordinate")
    units = {"longitude": "degrees_east", "latitude": "degrees_north"}
    return {
        dim: (dim, centres, {"standard_name": name, "axis": dim.upper(), "units": units.get(name, "m")})
        for dim, centres, name in (("x", x, names[0]), ("y", y, names[1]))
    }


def _is_geographic(crs: str | None) -> bool:
    from rasterio.crs import CRS

    wkt = None if crs is None else crs_of_text(crs)
    return wkt is not None and bool(CRS.from_wkt(wkt).is_geographic)


def _grid_attributes(crs: str | None, transform: Affine | None) -> dict[str, str]:
    wkt = None if crs is None else crs_of_text(crs)
    attributes = {} if wkt is None else {"crs_wkt": wkt, "spatial_ref": wkt}
    if transform is not None:
        a, b, c, d, e, f = transform
        attributes["GeoTransform"] = " ".join(repr(float(number)) for number in (c, a, b, f, d, e))
    return attributes
