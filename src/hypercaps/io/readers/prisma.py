"""PRISMA L2D products (.he5): two cubes, (rows, bands, columns) each, joined in order of wavelength.

Each detector has its own scale. The error matrices say which values were invalid from the start: these are undefined.
Values that came out negative or saturated are stored as the lowest or highest number and stay so: water is full of the
former, clouds of the latter. Bands in which a large share of values is invalid or clipped are counted as bad. A pixel
whose VNIR bands are all 0 lies outside of the swath, in the corners of the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Affine
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.raster import Bands, Bools, Floats, RawWindow, StoredRaster, ranges
from hypercaps.io.readers.georeference import crs_of_text
from hypercaps.io.readers.hdf5 import Hdf5
from hypercaps.io.readers.variables import Variable, picked, span

_SWATH = "HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields"
_LARGEST = 65535
_RIGHT, _NEGATIVE, _SATURATED = 0, 2, 3  # in the error matrices; 1: invalid before the atmosphere was corrected for
_MOST_INVALID, _MOST_CLIPPED = 0.01, 0.5  # of a good band's pixels: one invalid band makes a pixel invalid
_LOOKS = 32  # rows that are looked at to find bad bands
_PIXEL = 30.0  # metres


@dataclass(frozen=True, eq=False)
class _Detector:
    """One of the two cubes and what the product says of it."""

    name: str  # VNIR or SWIR
    cube: Variable  # (rows, bands, columns)
    errors: Variable | None  # the same
    wavelengths: Floats  # (bands,) nm, 0 where there is no band
    fwhm: Floats
    there: Bools  # (bands,)
    lowest: float  # what a stored 0 means
    highest: float  # what a stored 65535 means


def is_prisma(file: Hdf5) -> bool:
    """Whether a file is a PRISMA product of any level."""
    return any(key.startswith("HDFEOS/SWATHS/PRS_L") for key in file.variables)


def prisma_arrays(file: Hdf5) -> list[StoredArray]:
    """The one cube of a PRISMA L2D product."""
    if f"{_SWATH}/VNIR_Cube" not in file.variables:
        raise SceneError(
            f"{file.path} is a PRISMA product, but not of level L2D with its VNIR and SWIR cubes: get the L2D product"
        )
    vnir, swir = _detector(file, "VNIR"), _detector(file, "SWIR")
    if vnir.cube.shape[::2] != swir.cube.shape[::2]:
        raise SceneError(
            f"{file.path} has cubes of {vnir.cube.shape} and {swir.cube.shape} (rows, bands, columns): the same rows "
            "and columns are expected in both, get the product again"
        )
    bands = int(vnir.there.sum() + swir.there.sum())
    shape = (vnir.cube.shape[0], vnir.cube.shape[2], bands)
    return [StoredArray("", shape, lambda: _raster(file, vnir, swir))]


def _raster(file: Hdf5, vnir: _Detector, swir: _Detector) -> StoredRaster:
    detectors = (vnir, swir)
    for detector in detectors:
        detector.cube.check()
        if detector.errors is not None:
            detector.errors.check()
        if not detector.there.all():
            places = ranges(np.flatnonzero(~detector.there) + 1)
            warn_data(f"{file.path.name}: these {detector.name} bands have no wavelength and are left out: {places}")
    waves = np.concatenate([detector.wavelengths[detector.there] for detector in detectors])
    order = np.argsort(waves, kind="stable")  # both are stored from long to short, and they overlap

    def joined(values: list[Floats]) -> Floats:
        return np.concatenate([v[d.there] for v, d in zip(values, detectors, strict=True)])[order]

    scale = [np.full(d.there.size, (d.highest - d.lowest) / _LARGEST) for d in detectors]
    offset = [np.full(d.there.size, d.lowest) for d in detectors]
    rows, _, cols = vnir.cube.shape
    crs, transform = _georeference(file, rows, cols)
    fwhm = joined([detector.fwhm for detector in detectors])
    return StoredRaster(
        file.path,
        (rows, cols, order.size),
        np.dtype(np.uint16),
        _taker(vnir, swir, order),
        wavelengths=waves[order],
        fwhm=fwhm if (fwhm > 0).all() else None,
        good=np.concatenate([_good_bands(vnir, detector)[detector.there] for detector in detectors])[order],
        scale=joined(scale),
        offset=joined(offset),
        crs=crs,
        transform=transform,
        block=None if vnir.cube.chunks is None else (vnir.cube.chunks[0], vnir.cube.chunks[2]),
    )


def _detector(file: Hdf5, name: str) -> _Detector:
    cube = file.variables.get(f"{_SWATH}/{name}_Cube")
    errors = file.variables.get(f"{_SWATH}/{name}_PIXEL_L2_ERR_MATRIX")
    if cube is None or len(cube.shape) != 3 or 0 in cube.shape or cube.dtype != np.uint16:
        raise SceneError(f"{file.path} has no {name} cube of three dimensions and 16 bits: get the product again")
    if errors is not None and (errors.shape != cube.shape or not errors.is_numeric):
        raise SceneError(f"{file.path} has an error matrix for {name} of another shape than its cube: get it again")
    title, bands = name.capitalize(), cube.shape[1]

    def listed(attribute: str, count: int) -> Floats:
        numbers = file.attrs.get(attribute)
        if not isinstance(numbers, np.ndarray) or numbers.size != count or not np.isfinite(numbers).all():
            raise SceneError(
                f"{file.path} should give {count} finite {'number' if count == 1 else 'numbers'} as its attribute "
                f"{attribute}: get the product again"
            )
        return numbers.ravel().astype(np.float64)

    waves = listed(f"List_Cw_{title}", bands)
    there = waves > 0
    if f"List_Cw_{title}_Flags" in file.attrs:
        there &= listed(f"List_Cw_{title}_Flags", bands) != 0
    lowest, highest = (float(listed(f"L2Scale{title}{end}", 1)[0]) for end in ("Min", "Max"))
    if not there.any() or lowest >= highest:
        raise SceneError(
            f"{file.path} gives {int(there.sum())} {name} bands with a wavelength and a scale from {lowest:g} to "
            f"{highest:g}: at least one band, and a scale that goes up, are expected"
        )
    return _Detector(name, cube, errors, waves, listed(f"List_Fwhm_{title}", bands), there, lowest, highest)


def _good_bands(vnir: _Detector, detector: _Detector) -> Bools:
    """Bands (bands,) with few enough invalid and clipped values in rows spread evenly over the swath."""
    count, rows, every = detector.there.size, detector.cube.shape[0], slice(0, detector.cube.shape[2])
    if detector.errors is None:
        return np.ones(count, dtype=bool)
    invalid, clipped, pixels = np.zeros(count), np.zeros(count), 0
    for i in range(min(_LOOKS, rows)):
        row = i * rows // min(_LOOKS, rows)
        seen = _window(vnir.cube, slice(row, row + 1), every, np.flatnonzero(vnir.there)).any(axis=2)  # (1, columns)
        errors = _window(detector.errors, slice(row, row + 1), every, np.arange(count))[seen]  # (pixels, bands)
        is_clipped = np.isin(errors, (_NEGATIVE, _SATURATED))
        clipped += is_clipped.sum(axis=0)
        invalid += (~is_clipped & (errors != _RIGHT)).sum(axis=0)
        pixels += int(seen.sum())
    good: Bools = (invalid <= _MOST_INVALID * pixels) & (clipped <= _MOST_CLIPPED * pixels)
    return good


def _taker(vnir: _Detector, swir: _Detector, order: npt.NDArray[np.intp]) -> Callable[[slice, slice, Bands], RawWindow]:
    first_swir = int(vnir.there.sum())
    stored_at = [np.flatnonzero(detector.there) for detector in (vnir, swir)]  # bands there -> bands of the cube

    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        joined = order[bands]
        shape = (rows.stop - rows.start, cols.stop - cols.start, bands.size)
        stored, valid = np.zeros(shape, dtype=np.uint16), np.ones(shape, dtype=bool)
        seen = _window(vnir.cube, rows, cols, stored_at[0])  # (h, w, VNIR bands)
        for detector, first, places in ((vnir, 0, stored_at[0]), (swir, first_swir, stored_at[1])):
            here = np.flatnonzero((joined >= first) & (joined < first + places.size))
            if not here.size:
                continue
            at = joined[here] - first
            values = seen[:, :, at] if detector is vnir else _window(detector.cube, rows, cols, places[at])
            stored[:, :, here] = values
            if detector.errors is not None:
                errors = _window(detector.errors, rows, cols, places[at])
                valid[:, :, here] = np.isin(errors, (_RIGHT, _NEGATIVE, _SATURATED))
        valid &= seen.any(axis=2, keepdims=True)
        return RawWindow(stored, valid)

    return take


def _window(cube: Variable, rows: slice, cols: slice, bands: Bands) -> npt.NDArray[Any]:
    """Some bands of a cube that is stored (rows, bands, columns), as (h, w, bands)."""
    return picked(cube.take((rows, span(bands), cols)).stored, bands, axis=1).transpose(0, 2, 1)


def _georeference(file: Hdf5, rows: int, cols: int) -> tuple[str | None, Affine | None]:
    """The corners are those of the outer pixels' centres; in a file where only their edges make 30 m, of the edges."""
    corners = [file.attrs.get(f"Product_{corner}") for corner in (
        "ULcorner_easting", "LRcorner_easting", "ULcorner_northing", "LRcorner_northing")]  # fmt: skip
    code = file.attrs.get("Epsg_Code")
    code = np.array(int(code)) if isinstance(code, str) and code.isdigit() else code
    if not all(isinstance(value, np.ndarray) and value.size == 1 for value in [*corners, code]):
        warn_data(f"{file.path.name}: its corners or its EPSG code are missing, so it lies nowhere")
        return None, None
    west, east, north, south = (float(value.ravel()[0]) for value in corners)  # type: ignore[union-attr]
    crs = crs_of_text(f"EPSG:{int(code.ravel()[0])}")  # type: ignore[union-attr]
    for inner in (1, 0):
        if cols <= inner or rows <= inner:
            continue
        dx, dy = (east - west) / (cols - inner), (south - north) / (rows - inner)
        if max(abs(dx - _PIXEL), abs(dy + _PIXEL)) < 0.5 / max(rows, cols) * _PIXEL:
            return crs, (dx, 0.0, west - inner * dx / 2, 0.0, dy, north - inner * dy / 2)
    warn_data(f"{file.path.name}: its corners make no pixels of {_PIXEL:g} m, so it lies nowhere")
    return crs, None
