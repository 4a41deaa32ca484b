"""EMIT products (NetCDF-4): a swath as the sensor flew it, its bands, and the table that puts it on the ground."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Affine, Lookup
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.raster import Bands, Floats, RawWindow, StoredRaster, nm_per_unit
from hypercaps.io.readers.georeference import crs_of_text
from hypercaps.io.readers.hdf5 import Hdf5
from hypercaps.io.readers.variables import Variable, picked, span

_FILL = -9999.0
_BANDS = "sensor_band_parameters"
_LARGEST_TABLE = 64  # times the pixels of the swath: a long narrow one across its grid needs about half of that


def is_emit(file: Hdf5) -> bool:
    """Whether a file is laid out as EMIT's products are."""
    return f"{_BANDS}/wavelengths" in file.variables and bool(_cubes(file))


def emit_arrays(file: Hdf5) -> list[StoredArray]:
    """The cubes of an EMIT product: reflectance of L2A, or whatever else has its wavelengths."""
    return [
        StoredArray(cube.key, cube.shape, lambda cube=cube: _raster(file, cube))  # type: ignore[misc]
        for cube in _cubes(file)
    ]


def _cubes(file: Hdf5) -> list[Variable]:
    """Cubes (downtrack, crosstrack, bands) at the top of the file, a band for each wavelength."""
    bands = file.variables[f"{_BANDS}/wavelengths"].shape if f"{_BANDS}/wavelengths" in file.variables else ()
    return [
        cube
        for cube in file.variables.values()
        if not cube.group and len(cube.shape) == 3 and cube.shape[2:] == bands and cube.is_numeric
    ]


def _raster(file: Hdf5, cube: Variable) -> StoredRaster:
    cube.check()
    waves = _of_bands(file, cube, "wavelengths")
    if waves is None or not (waves > 0).all():
        raise SceneError(f"{file.path} gives wavelengths that are not above 0: get the product again")
    unit = nm_per_unit(file.variables[f"{_BANDS}/wavelengths"].text("units"), waves, file.path) or 1.0
    fwhm, good = _of_bands(file, cube, "fwhm"), _of_bands(file, cube, "good_wavelengths")
    fill = cube.numbers("_FillValue")
    nodata = float(fill[0]) if fill.size == 1 else _FILL
    return StoredRaster(
        file.path,
        (cube.shape[0], cube.shape[1], cube.shape[2]),
        cube.dtype,
        _taker(cube, nodata),
        wavelengths=waves * unit,
        fwhm=None if fwhm is None else fwhm * unit,
        good=None if good is None else good != 0,
        nodata=(nodata,) * cube.shape[2],
        lookup=_lookup(file, cube),
        block=None if cube.chunks is None else (cube.chunks[0], cube.chunks[1]),
    )


def _of_bands(file: Hdf5, cube: Variable, name: str) -> Floats | None:
    """One number a band (bands,) from the group of band parameters; None where it is missing."""
    listed = file.variables.get(f"{_BANDS}/{name}")
    if listed is None:
        return None
    values: npt.NDArray[Any] = listed.all() if listed.is_numeric else np.zeros(0)
    if values.shape != cube.shape[2:] or not np.isfinite(values).all():
        raise SceneError(f"{file.path} should give a finite number for each of {cube.shape[2]} bands as {name!r}")
    return values.astype(np.float64)


def _taker(cube: Variable, nodata: float) -> Callable[[slice, slice, Bands], RawWindow]:
    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        stored = picked(cube.take((rows, cols, span(bands))).stored, bands, axis=2)
        # -9999 is what EMIT writes, whatever a file gives as its fill value.
        return RawWindow(stored, None if nodata == _FILL else stored != _FILL)

    return take


# The ground


def _lookup(file: Hdf5, cube: Variable) -> Lookup | None:
    """The table from the ground to the swath; None, and the user is told, where the product lacks a part of it."""
    x, y = (file.variables.get(f"location/glt_{axis}") for axis in "xy")
    crs = crs_of_text(str(file.attrs.get("spatial_ref", "")))
    transform = _affine(file.attrs.get("geotransform"))
    missing = {"location/glt_x": x, "location/glt_y": y, "spatial_ref": crs, "geotransform": transform}
    if x is None or y is None or crs is None or transform is None:
        names = ", ".join(name for name, value in missing.items() if value is None)
        warn_data(f"{file.path.name}: no usable {names}, so maps of it can't be put on the ground")
        return None
    rows, cols = cube.shape[:2]
    if x.shape != y.shape or len(x.shape) != 2 or math.prod(x.shape) > _LARGEST_TABLE * max(rows * cols, 1 << 16):
        raise SceneError(
            f"{file.path} has ground tables of {x.shape} and {y.shape} for a swath of {rows} x {cols}: two of one size "
            "are expected, get the product again"
        )
    col, row = _places(x), _places(y)
    seen = (col >= 0) & (row >= 0)
    if (col[seen] >= cols).any() or (row[seen] >= rows).any():
        raise SceneError(
            f"{file.path} has a ground table that points outside of its swath of {rows} x {cols}: get the product again"
        )
    col[~seen] = row[~seen] = -1
    return Lookup(row, col, crs, transform)


def _places(table: Variable) -> npt.NDArray[np.int32]:
    """Places in the swath from 0, -1 for none. The table counts from 1, and is negative where a gap was filled in."""
    if table.dtype.kind not in "iu":
        raise SceneError(f"{table.path} holds {table.dtype} values in {table.key!r}: whole numbers are expected")
    table.check()
    stored = table.take((slice(0, table.shape[0]), slice(0, table.shape[1]))).stored
    none = (stored == 0) | (stored == int(_FILL))
    for fill in table.numbers("_FillValue"):
        none |= stored == fill
    places = np.abs(stored.astype(np.int64)) - 1
    places[none] = -1
    narrow: npt.NDArray[np.int32] = np.clip(places, -1, np.iinfo(np.int32).max).astype(np.int32)
    return narrow


def _affine(numbers: Any) -> Affine | None:
    """From GDAL's order."""
    if not isinstance(numbers, np.ndarray) or numbers.size != 6 or not np.isfinite(numbers).all():
        return None
    x0, dx, rx, y0, ry, dy = (float(number) for number in numbers.ravel())
    return None if dx * dy == rx * ry else (dx, rx, x0, ry, dy, y0)
