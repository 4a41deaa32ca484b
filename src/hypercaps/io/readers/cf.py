"""Cubes with named dimensions as rasters, by the CF conventions: axes, wavelengths, packed numbers, coordinate system.

NetCDF, Zarr and xarray share these rules; they differ in how a window is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.colors import Rgb
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.raster import Bands, Bools, Floats, RawWindow, StoredRaster, is_wavelength_unit, nm_per_unit
from hypercaps.io.readers.georeference import georeference
from hypercaps.io.readers.variables import Variable, find, picked, span
from hypercaps.io.wavelengths import BandInfo

Variables = Mapping[str, Variable]

_DIMENSION_NAMES = {
    "band": frozenset((
        "band", "bands", "nband", "nbands", "wavelength", "wavelengths", "wl", "lambda", "spectral", "spectral_band",
        "spectral_bands", "channel", "channels",
    )),
    "row": frozenset((
        "y", "yc", "ydim", "lat", "latitude", "row", "rows", "northing", "northings", "line", "lines", "downtrack",
        "along_track", "alongtrack", "height",
    )),
    "col": frozenset((
        "x", "xc", "xdim", "lon", "long", "longitude", "col", "cols", "column", "columns", "easting", "eastings",
        "sample", "samples", "crosstrack", "cross_track", "across_track", "acrosstrack", "width",
    )),
    "time": frozenset(("time", "times", "date", "t")),
}  # fmt: skip
_COORDINATE_NAMES = _DIMENSION_NAMES["row"] | _DIMENSION_NAMES["col"]
_WAVELENGTH_NAMES = ("wavelength", "wavelengths", "wl", "lambda", "center_wavelength", "central_wavelength")
_FWHM_NAMES = ("fwhm", "bandwidth", "band_width")
_GOOD_NAMES = ("good_wavelengths", "good_bands", "good", "bbl")


@dataclass(frozen=True)
class Axes:
    """Which axis of a variable is which; all others have length 1."""

    row: int
    col: int
    band: int | None  # None: a map


def cube_arrays(variables: Variables) -> list[StoredArray]:
    """The cubes and maps among the variables, with the shape (rows, columns, bands) or (rows, columns)."""
    arrays = []
    beside = {name for variable in variables.values() for name in variable.text("coordinates").split()}
    for variable in variables.values():
        shape = variable.shape
        is_coordinate = variable.name.lower() in _COORDINATE_NAMES or variable.name.endswith(("_bnds", "_bounds"))
        if not variable.is_numeric or is_coordinate or sum(length > 1 for length in shape) < 2 or 0 in shape:
            continue
        if (axes := axes_of(variable, variables)) is not None:
            shape = tuple(shape[axis] for axis in (axes.row, axes.col, axes.band) if axis is not None)
            shape = shape[:2] if shape[2:] == (1,) else shape  # one band is a map, not a cube
        load = partial(cube_raster, variable, variables)
        arrays.append(StoredArray(variable.key, shape, load, is_beside=variable.name in beside))
    return arrays


def cube_raster(variable: Variable, variables: Variables) -> StoredRaster:
    """One variable as a raster of rows, columns and bands, whatever their order in the file."""
    axes = axes_of(variable, variables)
    if axes is None:
        sizes = ", ".join(f"{dim or 'unnamed'} {n}" for dim, n in zip(variable.dims, variable.shape, strict=True))
        raise SceneError(
            f"{variable.path} has {variable.key!r} over {sizes}: one dimension each for rows, columns and bands is "
            "expected; select another variable as FILE:KEY, or extract one moment in time"
        )
    variable.check()
    bands = 1 if axes.band is None else variable.shape[axes.band]
    info, good = (None, None) if axes.band is None else _band_info(variable, variables, axes.band)
    waves, fwhm = info or (None, None)
    packing = _Packing(variable)
    crs, transform = georeference(variable, variables, axes.row, axes.col)
    return StoredRaster(
        variable.path,
        (variable.shape[axes.row], variable.shape[axes.col], bands),
        packing.dtype,
        partial(_read_window, variable, axes, packing),
        wavelengths=waves,
        fwhm=fwhm,
        good=good,
        nodata=packing.missing[:1] * bands,
        scale=packing.factor("scale_factor", bands),
        offset=packing.factor("add_offset", bands),
        crs=crs,
        transform=transform,
        names=class_names(variable),
        colors=class_colors(variable),
        block=None if variable.chunks is None else (variable.chunks[axes.row], variable.chunks[axes.col]),
    )


def axes_of(variable: Variable, variables: Variables) -> Axes | None:
    """Rows, columns and bands by the names of dimensions or by the coordinates' attributes; None if ambiguous."""
    roles = [_role(variable, dim, variables) for dim in variable.dims]
    axes = [axis for axis, length in enumerate(variable.shape) if length > 1 or roles[axis] in ("row", "col", "band")]
    named = {roles[axis]: axis for axis in axes if roles[axis]}
    unnamed = [axis for axis in axes if not roles[axis]]
    needed = ["row", "col", "band"][: len(axes)]
    if len(axes) not in (2, 3) or len(named) + len(unnamed) < len(axes) or not named.keys() <= set(needed):
        return None
    # Axes without a known name are taken in the order of every other format: rows, columns, bands.
    named |= zip([role for role in needed if role not in named], unnamed, strict=True)
    return Axes(named["row"], named["col"], named.get("band"))


def unknown_dims(variable: Variable, variables: Variables) -> list[str]:
    """The dimensions, other than those of length 1, whose names don't say what they are."""
    lengths = zip(variable.dims, variable.shape, strict=True)
    return [dim for dim, length in lengths if length > 1 and not _role(variable, dim, variables)]


def _role(variable: Variable, dim: str, variables: Variables) -> str:
    """Whether a dimension is "row", "col", "band" or "time"; empty if unknown."""
    if known := next((role for role, names in _DIMENSION_NAMES.items() if dim.lower() in names), ""):
        return known
    coordinate = find(variables, variable.group, dim) if dim else None
    if coordinate is None:
        return ""
    standard, units = coordinate.text("standard_name"), coordinate.text("units").lower()
    if "wavelength" in standard or is_wavelength_unit(units):
        return "band"
    if standard in ("projection_y_coordinate", "latitude") or coordinate.text("axis") == "Y":
        return "row"
    if standard in ("projection_x_coordinate", "longitude") or coordinate.text("axis") == "X":
        return "col"
    return "time" if " since " in units else ""


def _band_info(variable: Variable, variables: Variables, axis: int) -> tuple[BandInfo | None, Bools | None]:
    """Wavelengths and band widths in nm, and flags of good bands."""
    dim, count = variable.dims[axis], (variable.shape[axis],)
    lists = [v for v in variables.values() if dim and v.dims == (dim,) and v.shape == count and v.is_numeric]
    good = _band_list(variable, lists, _GOOD_NAMES, count[0])
    flags = None if good is None else good[0] != 0
    band_list = _band_list(variable, lists, _WAVELENGTH_NAMES, count[0])
    if band_list is None:
        by_units = (v for v in lists if "wavelength" in v.text("standard_name") or is_wavelength_unit(v.text("units")))
        band_list = next(((v.read_scaled(), v.text("units")) for v in by_units), None)
    if band_list is None:
        _warn_of_texts(variable, variables, dim)
        return None, flags
    waves, units = band_list
    if not _are_positive(waves):
        warn_data(f"{variable.path.name}: some wavelengths are no numbers above 0, so none is used")
        return None, flags
    unit = nm_per_unit(units or None, waves, variable.path)
    if unit is None:
        return None, flags
    fwhm, width_unit = _band_list(variable, lists, _FWHM_NAMES, count[0]), None
    if fwhm is not None and _are_positive(fwhm[0]):
        width_unit = nm_per_unit(fwhm[1], fwhm[0], variable.path) if fwhm[1] else unit
    return BandInfo(waves * unit, None if fwhm is None or width_unit is None else fwhm[0] * width_unit), flags


def _warn_of_texts(variable: Variable, variables: Variables, dim: str) -> None:
    """Say that wavelengths are there, but written as text."""
    for other in variables.values():
        if dim and other.dims == (dim,) and not other.is_numeric and other.name.lower() in _WAVELENGTH_NAMES:
            warn_data(f"{variable.path.name}: {other.name} is no list of numbers, so no wavelengths are used")
            return


def _are_positive(values: Floats) -> bool:
    return bool(np.isfinite(values).all() and (values > 0).all())


def _band_list(
    variable: Variable, lists: Sequence[Variable], names: Sequence[str], count: int
) -> tuple[Floats, str] | None:
    """One value per band under one of ``names``, and its units: a variable, or an attribute of the cube."""
    for name in names:
        for other in lists:
            if other.name.lower() == name:
                return other.read_scaled(), other.text("units")
        if variable.numbers(name).size == count:
            return variable.numbers(name).astype(np.float64), variable.text("wavelength_units")
    return None


class _Packing:
    """How a variable's numbers are stored: their type, values for missing data, valid range, scale and offset."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        stored = variable.dtype
        # NetCDF-3 has no unsigned integers: an attribute marks them.
        self.unsigned = stored.kind == "i" and variable.text("_Unsigned").lower() == "true"
        self.dtype = np.dtype(f"u{stored.itemsize}") if self.unsigned or stored.kind == "b" else stored
        listed = [*variable.numbers("_FillValue"), *variable.numbers("missing_value")]
        self.missing = tuple(dict.fromkeys(self._number(value) for value in listed))
        limits = variable.numbers("valid_range")
        lowest, highest = variable.numbers("valid_min"), variable.numbers("valid_max")
        if limits.size == 2:
            lowest, highest = limits[:1], limits[1:]
        self.lowest, self.highest = (self._number(limit[0]) if limit.size == 1 else None for limit in (lowest, highest))

    def _number(self, value: Any) -> float:
        if self.unsigned and value < 0:
            return float(int(value) + (1 << 8 * self.dtype.itemsize))
        return float(value)

    def factor(self, name: str, bands: int) -> Floats | None:
        """Scale or offset (bands,); None if there is none."""
        if name not in self.variable.attrs:
            return None
        values = self.variable.numbers(name).astype(np.float64)
        if values.size not in (1, bands) or not np.isfinite(values).all() or (name == "scale_factor" and 0 in values):
            raise SceneError(
                f"{self.variable.path} gives {self.variable.attrs[name]!s:.40} as {name} of {self.variable.key!r}: a "
                "finite number is expected, and a scale other than 0"
            )
        return np.broadcast_to(values, (bands,)).copy()

    def tests(self, stored: npt.NDArray[Any]) -> list[Bools]:
        """Where stored numbers pass each test; the first missing value is StoredRaster.nodata."""
        tests = [stored != value for value in self.missing[1:]]
        tests += [stored >= self.lowest] if self.lowest is not None else []
        return tests + ([stored <= self.highest] if self.highest is not None else [])


def _read_window(
    variable: Variable, axes: Axes, packing: _Packing, rows: slice, cols: slice, bands: Bands
) -> RawWindow:
    order = [axis for axis in (axes.row, axes.col, axes.band) if axis is not None]
    window = [slice(0, 1)] * len(variable.shape)
    window[axes.row], window[axes.col] = rows, cols
    if axes.band is not None:
        window[axes.band] = span(bands)

    def arranged(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rest = tuple(axis for axis in range(array.ndim) if axis not in order)
        array = array.transpose(*order, *rest).reshape(*(array.shape[axis] for axis in order), -1)
        return picked(array[..., 0], bands, axis=2) if len(order) == 3 else array  # (h, w, bands)

    part = variable.take(tuple(window))
    stored = arranged(part.stored)
    stored = stored.view(packing.dtype) if packing.unsigned else stored.astype(packing.dtype, copy=False)
    tests = packing.tests(stored) + ([] if part.written is None else [arranged(part.written)])
    return RawWindow(stored, reduce(np.logical_and, tests) if tests else None)


def class_names(variable: Variable) -> dict[int, str]:
    """Names of classes by number, from the attributes that CF has for them."""
    values, meanings = variable.numbers("flag_values"), variable.text("flag_meanings").split()
    if values.size != len(meanings):
        return {}
    return {int(value): name.replace("_", " ") for value, name in zip(values, meanings, strict=True)}


def class_colors(variable: Variable) -> dict[int, Rgb]:
    """Colours of classes by number, from one #rrggbb for each of ``flag_values``."""
    values, colors = variable.numbers("flag_values"), variable.text("flag_colors").split()
    if values.size != len(colors) or not all(re.fullmatch("#[0-9a-fA-F]{6}", color) for color in colors):
        return {}
    rgb = [(int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)) for color in colors]
    return dict(zip(map(int, values), rgb, strict=True))
