"""Cubes whose dimensions have names, by the CF conventions: which axis is which, what the numbers mean, where they lie.

NetCDF and Zarr share this; only how a window is read differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.raster import Bands, Bools, Floats, RawWindow, StoredRaster, is_wavelength_unit, nm_per_unit
from hypercaps.io.readers.georeference import georeference
from hypercaps.io.readers.variables import Variable, find, picked, span

Variables = Mapping[str, Variable]

_BANDS = frozenset((
    "band", "bands", "nband", "nbands", "wavelength", "wavelengths", "wl", "lambda", "spectral", "spectral_band",
    "spectral_bands", "channel", "channels",
))  # fmt: skip
_ROWS = frozenset((
    "y", "yc", "ydim", "lat", "latitude", "row", "rows", "northing", "northings", "line", "lines", "downtrack",
    "along_track", "alongtrack", "height",
))  # fmt: skip
_COLS = frozenset((
    "x", "xc", "xdim", "lon", "long", "longitude", "col", "cols", "column", "columns", "easting", "eastings", "sample",
    "samples", "crosstrack", "cross_track", "across_track", "acrosstrack", "width",
))  # fmt: skip
_TIMES = frozenset(("time", "times", "date", "t"))
_WAVELENGTH_NAMES = ("wavelength", "wavelengths", "wl", "lambda", "center_wavelength", "central_wavelength")
_FWHM_NAMES = ("fwhm", "bandwidth", "band_width")
_GOOD_NAMES = ("good_wavelengths", "good_bands", "good", "bbl")


@dataclass(frozen=True)
class Axes:
    """Which axis of a variable is which; all others are one long."""

    row: int
    col: int
    band: int | None  # None: a map


def cube_arrays(variables: Variables) -> list[StoredArray]:
    """The cubes and maps among the variables, with their axes as rows, columns and bands."""
    found = []
    for variable in variables.values():
        long = sum(length > 1 for length in variable.shape)
        is_coordinate = variable.name.lower() in _ROWS | _COLS or variable.name.endswith(("_bnds", "_bounds"))
        if not variable.is_numeric or is_coordinate or len(variable.shape) < 2 or long < 2 or 0 in variable.shape:
            continue
        shape = variable.shape
        if (axes := axes_of(variable, variables)) is not None:
            shape = tuple(shape[axis] for axis in (axes.row, axes.col, axes.band) if axis is not None)
            shape = shape[:2] if shape[2:] == (1,) else shape  # one band is a map, not a cube
        found.append(StoredArray(variable.key, shape, partial(cube_raster, variable, variables)))
    return found


def cube_raster(variable: Variable, variables: Variables) -> StoredRaster:
    """One variable as a raster: rows, columns and bands, whatever their order in the file."""
    axes = axes_of(variable, variables)
    if axes is None:
        sizes = ", ".join(f"{dim or 'unnamed'} {n}" for dim, n in zip(variable.dims, variable.shape, strict=True))
        raise SceneError(
            f"{variable.path} has {variable.key!r} over {sizes}: one dimension each for rows, columns and bands is "
            "expected; name another as FILE:KEY, or cut one moment out of it"
        )
    variable.check()
    bands = 1 if axes.band is None else variable.shape[axes.band]
    waves, fwhm, good = _of_bands(variable, variables, axes, bands)
    packing = _Packing(variable)
    crs, transform = georeference(variable, variables, axes.row, axes.col)
    chunks = variable.chunks
    return StoredRaster(
        variable.path,
        (variable.shape[axes.row], variable.shape[axes.col], bands),
        packing.dtype,
        _taker(variable, axes, packing),
        wavelengths=waves,
        fwhm=fwhm,
        good=good,
        nodata=() if not packing.missing else (packing.missing[0],) * bands,
        scale=packing.factor("scale_factor", bands),
        offset=packing.factor("add_offset", bands),
        crs=crs,
        transform=transform,
        names=_flag_names(variable),
        block=None if chunks is None else (chunks[axes.row], chunks[axes.col]),
    )


# Axes


def axes_of(variable: Variable, variables: Variables) -> Axes | None:
    """Rows, columns and bands by the names of dimensions or by what their coordinates say; None: they can't be told."""
    roles = [_role(variable, dim, variables) for dim in variable.dims]
    axes = [axis for axis, length in enumerate(variable.shape) if length > 1 or roles[axis] in ("row", "col", "band")]
    if len(axes) not in (2, 3) or any(roles[axis] == "time" for axis in axes):
        return None
    wanted = ["row", "col", "band"][: len(axes)]
    if len(axes) == 2 and "band" in (roles[axis] for axis in axes):
        return None
    by_role = {roles[axis]: axis for axis in axes if roles[axis]}
    if len(by_role) < sum(bool(roles[axis]) for axis in axes):  # two of a kind
        return None
    # What no name tells is taken in the order of every other format: rows, columns, bands.
    unknown = iter([axis for axis in axes if not roles[axis]])
    for role in wanted:
        if role not in by_role:
            by_role[role] = next(unknown)
    return Axes(by_role["row"], by_role["col"], by_role.get("band"))


def _role(variable: Variable, dim: str, variables: Variables) -> str:
    name = dim.lower()
    for role, names in (("band", _BANDS), ("row", _ROWS), ("col", _COLS), ("time", _TIMES)):
        if name in names:
            return role
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


# Bands


def _of_bands(
    variable: Variable, variables: Variables, axes: Axes, bands: int
) -> tuple[Floats | None, Floats | None, Bools | None]:
    """Wavelengths and band widths in nm, and which bands are good."""
    if axes.band is None:
        return None, None, None
    dim = variable.dims[axes.band]
    beside = [
        other
        for other in variables.values()
        if dim and other.dims == (dim,) and other.shape == (bands,) and other.is_numeric
    ]

    def listed(names: tuple[str, ...]) -> tuple[Floats, str] | None:
        for name in names:
            for other in beside:
                if other.name.lower() == name:
                    return other.unpacked(), other.text("units")
            if variable.numbers(name).size == bands:
                return variable.numbers(name).astype(np.float64), variable.text("wavelength_units")
        return None

    waves = listed(_WAVELENGTH_NAMES)
    if waves is None:
        for other in beside:
            if "wavelength" in other.text("standard_name") or is_wavelength_unit(other.text("units")):
                waves = other.unpacked(), other.text("units")
                break
    good = listed(_GOOD_NAMES)
    flags = None if good is None else good[0] != 0
    if waves is None:
        return None, None, flags
    if not (np.isfinite(waves[0]).all() and (waves[0] > 0).all()):
        warn_data(f"{variable.path.name}: some wavelengths are no numbers above 0, so none is used")
        return None, None, flags
    unit = nm_per_unit(waves[1] or None, waves[0], variable.path)
    if unit is None:
        return None, None, flags
    fwhm = listed(_FWHM_NAMES)
    widths = None
    if fwhm is not None and np.isfinite(fwhm[0]).all() and (fwhm[0] > 0).all():
        per = nm_per_unit(fwhm[1], fwhm[0], variable.path) if fwhm[1] else unit
        widths = None if per is None else fwhm[0] * per
    return waves[0] * unit, widths, flags


# Numbers


class _Packing:
    """How a variable's numbers are stored: their type, what stands for missing, scale and offset."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        stored = variable.dtype
        # NetCDF-3 has no unsigned numbers, and says so in an attribute.
        self.unsigned = stored.kind == "i" and variable.text("_Unsigned").lower() == "true"
        self.dtype = np.dtype(f"u{stored.itemsize}") if self.unsigned or stored.kind == "b" else stored
        listed = [*variable.numbers("_FillValue"), *variable.numbers("missing_value")]
        self.missing = tuple(dict.fromkeys(self._number(value) for value in listed))
        ends = [variable.numbers(name) for name in ("valid_min", "valid_max")]
        if variable.numbers("valid_range").size == 2:
            ends = [end[None] for end in variable.numbers("valid_range")]
        self.lowest = self._number(ends[0][0]) if ends[0].size == 1 else None
        self.highest = self._number(ends[1][0]) if ends[1].size == 1 else None

    def _number(self, value: Any) -> float:
        if self.unsigned and value < 0:
            return float(int(value) + (1 << 8 * self.dtype.itemsize))
        return float(value)

    def factor(self, name: str, bands: int) -> Floats | None:
        """Scale or offset (bands,); None where there is none."""
        if name not in self.variable.attrs:
            return None
        values = self.variable.numbers(name).astype(np.float64)
        if values.size not in (1, bands) or not np.isfinite(values).all() or (name == "scale_factor" and 0 in values):
            raise SceneError(
                f"{self.variable.path} gives {self.variable.attrs[name]!s:.40} as {name} of {self.variable.key!r}: a "
                "finite number is expected, and none that is 0 for a scale"
            )
        return np.broadcast_to(values, (bands,)).copy()

    def valid(self, stored: npt.NDArray[Any]) -> Bools | None:
        """What the stored numbers themselves say beyond the first missing value; None: nothing."""
        valid: Bools | None = None
        for value in self.missing[1:]:
            valid = (stored != value) if valid is None else valid & (stored != value)
        for bound, above in ((self.lowest, True), (self.highest, False)):
            if bound is not None:
                inside = stored >= bound if above else stored <= bound
                valid = inside if valid is None else valid & inside
        return valid


def _taker(variable: Variable, axes: Axes, packing: _Packing) -> Callable[[slice, slice, Bands], RawWindow]:
    order = [axes.row, axes.col] if axes.band is None else [axes.row, axes.col, axes.band]
    rest = tuple(axis for axis in range(len(variable.shape)) if axis not in order)

    def arranged(array: npt.NDArray[Any], bands: Bands) -> npt.NDArray[Any]:
        array = array.transpose(*order, *rest).reshape(*(array.shape[axis] for axis in order), -1)
        return picked(array[..., 0], bands, axis=2) if len(order) == 3 else array  # (h, w, bands)

    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        window = [slice(0, 1)] * len(variable.shape)
        window[axes.row], window[axes.col] = rows, cols
        if axes.band is not None:
            window[axes.band] = span(bands)
        part = variable.take(tuple(window))
        stored = arranged(part.stored, bands)
        stored = stored.view(packing.dtype) if packing.unsigned else stored.astype(packing.dtype, copy=False)
        valid = packing.valid(stored)
        if part.written is not None:
            written = arranged(part.written, bands)
            valid = written if valid is None else valid & written
        return RawWindow(stored, valid)

    return take


def _flag_names(variable: Variable) -> dict[int, str]:
    """Names of classes by label, where the variable lists them."""
    values, meanings = variable.numbers("flag_values"), variable.text("flag_meanings").split()
    if values.size != len(meanings):
        return {}
    return {int(value): name.replace("_", " ") for value, name in zip(values, meanings, strict=True)}
