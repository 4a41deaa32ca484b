"""EMIT products (NetCDF-4): a swath in sensor geometry, its bands, and the lookup table to a georeferenced grid."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.grid import Lookup
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.raster import Bands, Floats, RawWindow, StoredRaster, nm_per_unit
from hypercaps.io.readers.georeference import affine_of_gdal, crs_of_text
from hypercaps.io.readers.hdf5 import Hdf5
from hypercaps.io.readers.variables import Variable, picked, span

_FILL = -9999.0
_BANDS = "sensor_band_parameters"
_MAX_TABLE = 64  # times the pixels of the swath: a long narrow swath across its grid needs about half of that


def is_emit(file: Hdf5) -> bool:
    return bool(_cubes(file))


def emit_arrays(file: Hdf5) -> list[StoredArray]:
    """The cubes of an EMIT product: the reflectance of L2A, or any other with one band per wavelength."""
    return [StoredArray(cube.key, cube.shape, partial(_raster, file, cube)) for cube in _cubes(file)]


def _cubes(file: Hdf5) -> list[Variable]:
    """Cubes (downtrack, crosstrack, bands) outside any group, with one band per wavelength."""
    waves = file.variables.get(f"{_BANDS}/wavelengths")
    cubes = [cube for cube in file.variables.values() if not cube.group and len(cube.shape) == 3 and cube.is_numeric]
    return [cube for cube in cubes if waves is not None and cube.shape[2:] == waves.shape]


def _raster(file: Hdf5, cube: Variable) -> StoredRaster:
    cube.check()
    waves = _band_list(file, cube, "wavelengths")
    if waves is None or not (waves > 0).all():
        raise SceneError(f"{file.path} gives wavelengths that are not above 0: get the product again")
    unit = nm_per_unit(file.variables[f"{_BANDS}/wavelengths"].text("units"), waves, file.path) or 1.0
    fwhm, good = _band_list(file, cube, "fwhm"), _band_list(file, cube, "good_wavelengths")
    fill = cube.numbers("_FillValue")
    nodata = float(fill[0]) if fill.size == 1 else _FILL

    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        stored = picked(cube.take((rows, cols, span(bands))).stored, bands, axis=2)  # (h, w, bands)
        # EMIT writes -9999 even if a file declares another fill value.
        return RawWindow(stored, None if nodata == _FILL else stored != _FILL)

    return StoredRaster(
        file.path,
        (cube.shape[0], cube.shape[1], cube.shape[2]),
        cube.dtype,
        take,
        wavelengths=waves * unit,
        fwhm=None if fwhm is None else fwhm * unit,
        good=None if good is None else good != 0,
        nodata=(nodata,) * cube.shape[2],
        lookup=_lookup(file, cube),
        block=None if cube.chunks is None else (cube.chunks[0], cube.chunks[1]),
    )


def _band_list(file: Hdf5, cube: Variable, name: str) -> Floats | None:
    """One number per band (bands,) from the group of band parameters; None if it is missing."""
    variable = file.variables.get(f"{_BANDS}/{name}")
    if variable is None:
        return None
    values: npt.NDArray[Any] = variable.read_all() if variable.is_numeric else np.zeros(0)
    if values.shape != cube.shape[2:] or not np.isfinite(values).all():
        raise SceneError(f"{file.path} should give a finite number for each of {cube.shape[2]} bands as {name!r}")
    return values.astype(np.float64)


def _lookup(file: Hdf5, cube: Variable) -> Lookup | None:
    """The table from the georeferenced grid to the swath; None, with a warning, if the product lacks a part of it."""
    x, y = (file.variables.get(f"location/glt_{axis}") for axis in "xy")
    crs = crs_of_text(str(file.attrs.get("spatial_ref", "")))
    numbers = file.attrs.get("geotransform")
    transform = affine_of_gdal(numbers.ravel()) if isinstance(numbers, np.ndarray) else None
    if x is None or y is None or crs is None or transform is None:
        parts = {"location/glt_x": x, "location/glt_y": y, "spatial_ref": crs, "geotransform": transform}
        names = ", ".join(name for name, part in parts.items() if part is None)
        warn_data(f"{file.path.name}: no usable {names}, so maps of it can't be put on the ground")
        return None
    rows, cols = cube.shape[:2]
    if x.shape != y.shape or len(x.shape) != 2 or math.prod(x.shape) > _MAX_TABLE * max(rows * cols, 1 << 16):
        raise SceneError(
            f"{file.path} has ground tables of {x.shape} and {y.shape} for a swath of {rows} x {cols}: two of one size "
            "are expected, get the product again"
        )
    col, row = _positions(x), _positions(y)
    has_pixel = (col >= 0) & (row >= 0)
    if (col[has_pixel] >= cols).any() or (row[has_pixel] >= rows).any():
        raise SceneError(
            f"{file.path} has a ground table that points outside of its swath of {rows} x {cols}: get it again"
        )
    col[~has_pixel] = row[~has_pixel] = -1
    return Lookup(row, col, crs, transform)


def _positions(table: Variable) -> npt.NDArray[np.int32]:
    """Positions in the swath from 0, -1 for none; stored from 1, and negative where a gap was interpolated."""
    if table.dtype.kind not in "iu":
        raise SceneError(f"{table.path} holds {table.dtype} values in {table.key!r}: whole numbers are expected")
    table.check()
    stored = table.take((slice(0, table.shape[0]), slice(0, table.shape[1]))).stored
    positions = np.abs(stored.astype(np.int64)) - 1
    positions[np.isin(stored, (0, _FILL, *table.numbers("_FillValue")))] = -1
    return positions.clip(-1, np.iinfo(np.int32).max).astype(np.int32)
