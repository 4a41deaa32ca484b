"""PRISMA L2D products (.he5): two cubes, (rows, bands, columns) each, joined in order of wavelength.

Each detector has its own scale. The error matrices mark values that were invalid before the atmospheric correction:
these are undefined. Negative and saturated values are stored as the lowest or highest number and stay valid: they are
common over water and clouds. Bands with a large share of invalid or clipped values count as bad. A pixel whose VNIR
bands are all 0 lies outside of the swath, in the corners of the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.grid import Affine
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.raster import Bands, Bools, Floats, RawWindow, StoredRaster, ranges
from hypercaps.io.readers.georeference import crs_of_text
from hypercaps.io.readers.hdf5 import Hdf5
from hypercaps.io.readers.variables import Variable, picked, span

_SWATH = "HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields"
_MAX_STORED = 65535
_RIGHT, _NEGATIVE, _SATURATED = 0, 2, 3  # in the error matrices; 1: invalid before the atmospheric correction
_MAX_INVALID, _MAX_CLIPPED = 0.01, 0.5  # share of a good band's pixels: one invalid band makes a pixel invalid
_SAMPLED_ROWS = 32  # to find bad bands
_PIXEL = 30.0  # metres


@dataclass(frozen=True, eq=False)
class _Detector:
    name: str  # VNIR or SWIR
    cube: Variable  # (rows, bands, columns)
    errors: Variable | None  # same shape
    wavelengths: Floats  # (bands,) nm, 0 for no band
    fwhm: Floats  # (bands,) nm
    used: Bands  # positions of bands with a wavelength
    lowest: float  # value of a stored 0
    highest: float  # value of a stored 65535


def is_prisma(file: Hdf5) -> bool:
    return any(key.startswith("HDFEOS/SWATHS/PRS_L") for key in file.variables)


def prisma_arrays(file: Hdf5) -> list[StoredArray]:
    if f"{_SWATH}/VNIR_Cube" not in file.variables:
        raise SceneError(f"{file.path} is a PRISMA product, but not of level L2D (VNIR and SWIR cubes): get that level")
    vnir, swir = _detector(file, "VNIR"), _detector(file, "SWIR")
    if vnir.cube.shape[::2] != swir.cube.shape[::2]:
        raise SceneError(
            f"{file.path} has cubes of {vnir.cube.shape} and {swir.cube.shape} (rows, bands, columns): the same rows "
            "and columns are expected in both, get the product again"
        )
    rows, _, cols = vnir.cube.shape
    return [StoredArray("", (rows, cols, vnir.used.size + swir.used.size), partial(_raster, file, vnir, swir))]


def _raster(file: Hdf5, vnir: _Detector, swir: _Detector) -> StoredRaster:
    detectors = (vnir, swir)
    for detector in detectors:
        detector.cube.check()
        if detector.errors is not None:
            detector.errors.check()
        if unused := ranges(np.setdiff1d(np.arange(detector.wavelengths.size), detector.used) + 1):
            warn_data(f"{file.path.name}: these {detector.name} bands have no wavelength and are left out: {unused}")
    waves = np.concatenate([detector.wavelengths[detector.used] for detector in detectors])
    order = np.argsort(waves, kind="stable")  # both are stored from long to short, and they overlap

    def joined(of: Callable[[_Detector], npt.ArrayLike]) -> npt.NDArray[Any]:
        return np.concatenate([np.broadcast_to(of(d), d.wavelengths.shape)[d.used] for d in detectors])[order]

    rows, _, cols = vnir.cube.shape
    crs, transform = _georeference(file, rows, cols)
    fwhm = joined(lambda detector: detector.fwhm)
    return StoredRaster(
        file.path,
        (rows, cols, order.size),
        np.dtype(np.uint16),
        partial(_read_window, vnir, swir, order),
        wavelengths=waves[order],
        fwhm=fwhm if (fwhm > 0).all() else None,
        good=joined(lambda detector: _good_bands(vnir, detector)),
        scale=joined(lambda detector: (detector.highest - detector.lowest) / _MAX_STORED),
        offset=joined(lambda detector: detector.lowest),
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
    waves = _attribute(file, f"List_Cw_{title}", bands)
    is_used = waves > 0
    if f"List_Cw_{title}_Flags" in file.attrs:
        is_used &= _attribute(file, f"List_Cw_{title}_Flags", bands) != 0
    lowest, highest = (float(_attribute(file, f"L2Scale{title}{end}", 1)[0]) for end in ("Min", "Max"))
    if not is_used.any() or lowest >= highest:
        raise SceneError(
            f"{file.path} gives {int(is_used.sum())} {name} bands with a wavelength and a scale from {lowest:g} to "
            f"{highest:g}: at least one band, and a scale that goes up, are expected"
        )
    fwhm = _attribute(file, f"List_Fwhm_{title}", bands)
    return _Detector(name, cube, errors, waves, fwhm, np.flatnonzero(is_used), lowest, highest)


def _attribute(file: Hdf5, name: str, count: int) -> Floats:
    numbers = file.attrs.get(name)
    if not isinstance(numbers, np.ndarray) or numbers.size != count or not np.isfinite(numbers).all():
        finite = "finite number" if count == 1 else "finite numbers"
        raise SceneError(f"{file.path} should give {count} {finite} as its attribute {name}: get the product again")
    return numbers.ravel().astype(np.float64)


def _good_bands(vnir: _Detector, detector: _Detector) -> Bools:
    """Bands (bands,) with few invalid and clipped values in rows spread evenly over the swath."""
    rows, count, cols = detector.cube.shape
    if detector.errors is None:
        return np.ones(count, dtype=bool)
    invalid, clipped, pixels = np.zeros(count), np.zeros(count), 0
    samples = min(_SAMPLED_ROWS, rows)
    for row in (i * rows // samples for i in range(samples)):
        here, across = slice(row, row + 1), slice(0, cols)
        seen = _window(vnir.cube, here, across, vnir.used).any(axis=2)  # (1, columns)
        errors = _window(detector.errors, here, across, np.arange(count))[seen]  # (pixels, bands)
        is_clipped = np.isin(errors, (_NEGATIVE, _SATURATED))
        clipped += is_clipped.sum(axis=0)
        invalid += (~is_clipped & (errors != _RIGHT)).sum(axis=0)
        pixels += int(seen.sum())
    good: Bools = (invalid <= _MAX_INVALID * pixels) & (clipped <= _MAX_CLIPPED * pixels)
    return good


def _read_window(vnir: _Detector, swir: _Detector, order: Bands, rows: slice, cols: slice, bands: Bands) -> RawWindow:
    """Bands by their number in order of wavelength; ``order`` gives their position in VNIR, then SWIR."""
    positions = order[bands]
    shape = (rows.stop - rows.start, cols.stop - cols.start, bands.size)
    stored, valid = np.zeros(shape, dtype=np.uint16), np.ones(shape, dtype=bool)
    all_vnir = _window(vnir.cube, rows, cols, vnir.used)  # (h, w, VNIR bands)
    for detector, first in ((vnir, 0), (swir, vnir.used.size)):
        here = np.flatnonzero((positions >= first) & (positions < first + detector.used.size))
        if not here.size:
            continue
        at = positions[here] - first
        used = detector.used[at]
        stored[:, :, here] = all_vnir[:, :, at] if detector is vnir else _window(detector.cube, rows, cols, used)
        if detector.errors is not None:
            errors = _window(detector.errors, rows, cols, used)
            valid[:, :, here] = np.isin(errors, (_RIGHT, _NEGATIVE, _SATURATED))
    valid &= all_vnir.any(axis=2, keepdims=True)
    return RawWindow(stored, valid)


def _window(cube: Variable, rows: slice, cols: slice, bands: Bands) -> npt.NDArray[Any]:
    """Some bands of a cube that is stored (rows, bands, columns), as (h, w, bands)."""
    return picked(cube.take((rows, span(bands), cols)).stored, bands, axis=1).transpose(0, 2, 1)


def _georeference(file: Hdf5, rows: int, cols: int) -> tuple[str | None, Affine | None]:
    """The corners are centres of the outer pixels, or their edges in files where only these give pixels of 30 m."""
    corners = [file.attrs.get(f"Product_{corner}") for corner in (
        "ULcorner_easting", "LRcorner_easting", "ULcorner_northing", "LRcorner_northing")]  # fmt: skip
    code = file.attrs.get("Epsg_Code")
    code = np.array(int(code)) if isinstance(code, str) and code.isdigit() else code
    numbers = [value.item() for value in (*corners, code) if isinstance(value, np.ndarray) and value.size == 1]
    if len(numbers) < 5:
        warn_data(f"{file.path.name}: its corners or its EPSG code are missing, so it is not georeferenced")
        return None, None
    west, east, north, south = map(float, numbers[:4])
    crs = crs_of_text(f"EPSG:{int(numbers[4])}")
    for inner in (1, 0):
        if cols <= inner or rows <= inner:
            continue
        dx, dy = (east - west) / (cols - inner), (south - north) / (rows - inner)
        if max(abs(dx - _PIXEL), abs(dy + _PIXEL)) < 0.5 / max(rows, cols) * _PIXEL:
            return crs, (dx, 0.0, west - inner * dx / 2, 0.0, dy, north - inner * dy / 2)
    warn_data(f"{file.path.name}: its corners make no pixels of {_PIXEL:g} m, so it is not georeferenced")
    return crs, None
