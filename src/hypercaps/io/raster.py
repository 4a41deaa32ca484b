"""A raster in a file, and the scene or the labels made of it, by the same rules for every format.

Nodata is tested on the stored numbers, before any scale is applied. Bands that are marked bad or empty are left out,
and bands are sorted by wavelength, with a warning about both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.colors import Rgb
from hypercaps.data.grid import Affine, Lookup
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.pixels import PixelReader, Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import LabelsError, SceneError, warn_data

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Bands = npt.NDArray[np.intp]  # positions of bands in the file, from 0

_SAMPLES = 64  # windows that are searched for empty bands
_SAMPLE_SIDE = 64  # longest side of such a window: a raster of up to 512 x 512 pixels is searched completely
_FILL = 255  # the highest number of a byte, which often marks pixels without a label
_SAMPLE_VALUES = 1 << 22  # limits the memory for a file that claims thousands of bands


class RawWindow(NamedTuple):
    """A window of a file, without scale and nodata applied."""

    stored: npt.NDArray[Any]  # (h, w, requested bands), the numbers in the file
    valid: Bools | None  # (h, w, requested bands or 1), the file's own mask; None: it has none


@dataclass(frozen=True)
class StoredRaster:
    """A raster file: its metadata, and a function that reads windows."""

    path: Path
    shape: tuple[int, int, int]  # rows, columns, bands
    dtype: np.dtype[Any]
    take: Callable[[slice, slice, Bands], RawWindow]
    wavelengths: Floats | None = None  # (bands,) nm
    fwhm: Floats | None = None  # (bands,) nm
    good: Bools | None = None  # (bands,), None: all
    nodata: tuple[float | None, ...] = ()  # (bands,), or empty: none
    scale: Floats | None = None  # (bands,), None: the stored numbers are the values
    offset: Floats | None = None  # (bands,), added after scaling
    crs: str | None = None
    transform: Affine | None = None
    names: Mapping[int, str] = field(default_factory=dict)  # of classes, by label
    colors: Mapping[int, Rgb] = field(default_factory=dict)
    lookup: Lookup | None = None  # for a raster in sensor geometry
    block: tuple[int, int] | None = None  # rows and columns of a tile of the file; None: strips
    has_place: bool = True  # False for a format without georeference: its pixels are those of the scene

    def defined(self, rows: slice, cols: slice, bands: Bands) -> tuple[npt.NDArray[Any], Bools]:
        """The stored numbers of a window, and where they are valid: both (h, w, bands)."""
        stored, masked = self.take(rows, cols, bands)
        valid = np.isfinite(stored) if stored.dtype.kind == "f" else np.ones_like(stored, dtype=bool)
        if masked is not None:
            valid &= masked
        values = [self.nodata[band] for band in bands] if self.nodata else []
        for value in dict.fromkeys(values):  # nearly always one for all bands
            if value is not None:  # NaN equals nothing, but is not finite
                bands_of_value = (
                    slice(None) if len(set(values)) == 1 else np.array([other == value for other in values])
                )
                with np.errstate(over="ignore"):  # a nodata beyond the range of float32
                    valid[..., bands_of_value] &= stored[..., bands_of_value] != value
        return stored, valid


def scene_from(raster: StoredRaster, parts: Sequence[StoredRaster] = ()) -> Scene:
    """The raster's good bands in order of wavelength, in physical units, read by window.

    parts : the tiles of the raster, which are searched for empty bands instead of the whole
    """
    name = raster.path.stem  # of the data file, also where its header was named
    bands = _kept_bands(raster, name, parts or [raster])
    waves = None if raster.wavelengths is None else raster.wavelengths[bands]
    if waves is not None and (np.diff(waves) < 0).any():
        steps_back = int((np.diff(waves) < 0).sum())
        places = "one place" if steps_back == 1 else f"{steps_back} places"
        warn_data(f"{name}: the wavelengths decrease in {places}; the bands are sorted by wavelength")
        order = np.argsort(waves, kind="stable")
        bands, waves = bands[order], waves[order]
    return Scene(
        (*raster.shape[:2], len(bands)),
        raster.dtype,
        RasterReader(raster, bands),
        name=name,
        wavelengths=waves,
        fwhm=None if raster.fwhm is None else raster.fwhm[bands],
        crs=raster.crs,
        transform=raster.transform,
        lookup=raster.lookup,
        block=raster.block,
    )


@dataclass(frozen=True)
class RasterReader:
    """A reader of some bands of a raster, in physical units."""

    raster: StoredRaster
    bands: Bands

    def __call__(self, rows: slice, cols: slice) -> Pixels:
        raster, bands = self.raster, self.bands
        shape = (max(0, rows.stop - rows.start), max(0, cols.stop - cols.start))
        if min(shape) < 1:
            return Pixels(np.zeros((*shape, len(bands)), dtype=np.float32), np.zeros(shape, dtype=bool))
        stored, defined = raster.defined(rows, cols, bands)
        # Small integers are scaled exactly enough in float32; large ones and doubles are scaled before rounding.
        wide = np.result_type(raster.dtype, np.float32)
        is_scaled = raster.scale is not None or raster.offset is not None
        with np.errstate(over="ignore", invalid="ignore"):  # overflow becomes inf, which is invalid
            physical = np.ascontiguousarray(stored, dtype=wide if is_scaled else np.float32)
            if raster.scale is not None:
                physical *= raster.scale[bands].astype(wide)
            if raster.offset is not None:
                physical += raster.offset[bands].astype(wide)
            values = physical.astype(np.float32, copy=False)  # (h, w, bands)
        return Pixels(values, np.asarray(defined.all(axis=2) & np.isfinite(values).all(axis=2)))

    def select(self, chosen: Bands) -> PixelReader:
        return RasterReader(self.raster, self.bands[chosen])


def _kept_bands(raster: StoredRaster, name: str, parts: Sequence[StoredRaster]) -> Bands:
    """The bands that are neither marked bad nor empty; one warning names those left out."""
    good = np.ones(raster.shape[2], dtype=bool) if raster.good is None else raster.good
    if not good.any():
        raise SceneError(
            f"{raster.path} marks all of its {good.size} bands as bad: at least one good band is expected; correct "
            "its list of good bands (bbl)"
        )
    marked = np.flatnonzero(good)
    empty = _empty_bands(raster.path, parts, marked)
    reasons = []
    if not good.all():
        reasons.append(f"{ranges(np.flatnonzero(~good) + 1)} (marked bad in the file)")
    if empty.size:
        reasons.append(f"{ranges(empty + 1)} (nodata in all sampled pixels)")
    if reasons:
        warn_data(f"{name}: of {raster.shape[2]} bands, these are left out: {' and '.join(reasons)}")
    return np.setdiff1d(marked, empty)


def _empty_bands(path: Path, parts: Sequence[StoredRaster], bands: Bands) -> Bands:
    """Those of ``bands`` without a valid number in up to 64 windows spread over the raster or its parts."""
    empty, searched_all = bands, True
    for part in parts:
        count = _SAMPLES if len(parts) == 1 else max(4, 4 * _SAMPLES // len(parts))
        windows, is_complete = _sample_windows(part, count)
        searched_all &= is_complete
        for window in windows:  # the following windows only read bands that are still empty
            _, valid = part.defined(window.rows, window.cols, empty)
            empty = empty[~valid.any(axis=(0, 1))]
            if not empty.size:
                return empty
    if empty.size < bands.size:
        return empty
    if searched_all:
        raise SceneError(f"{path} has no valid number in any band: a scene with data is expected")
    return empty[:0]  # all bands are empty in the sample: it shows nothing about single bands


def _sample_windows(raster: StoredRaster, count: int) -> tuple[Iterable[Window], bool]:
    """Windows spread over the raster, and whether they cover all of it."""
    rows, cols, bands = raster.shape
    side = min(_SAMPLE_SIDE, max(1, math.isqrt(_SAMPLE_VALUES // bands)))
    down, across = -(-rows // side), -(-cols // side)
    if down * across <= count:
        return tile_windows(Window(0, rows, 0, cols), side), True
    # Evenly down the rows, and across by the golden ratio, which avoids periodic patterns.
    corners = [(i * down // count * side, int(i * 0.61803398875 % 1.0 * across) * side) for i in range(count)]
    return [Window(r, min(r + side, rows), c, min(c + side, cols)) for r, c in corners], False


def labels_from(raster: StoredRaster) -> Labels:
    """The raster's one band as class numbers with its own names and colours; nodata counts as unlabelled."""
    if raster.shape[2] != 1:
        raise LabelsError(
            f"{raster.path} has {raster.shape[2]} bands: labels are a raster of one band that holds class numbers"
        )
    stored, valid = raster.defined(slice(0, raster.shape[0]), slice(0, raster.shape[1]), np.zeros(1, dtype=np.intp))
    # NaN that is not nodata is kept, for Labels to refuse.
    unlabelled = ~valid if any(value is not None for value in raster.nodata) else ~valid & np.isfinite(stored)
    numbers = np.where(unlabelled, stored.dtype.type(0), stored)[:, :, 0]  # (rows, columns)
    names, colors = raster.names, raster.colors
    if not any(value is not None for value in raster.nodata) and _FILL not in names:
        numbers = without_fill(numbers, raster.path)
    described = sorted(label for label in {*names, *colors} if label > 0)
    legend = Legend.of(described, [names.get(label, f"class {label}") for label in described], colors)
    return Labels.from_array(numbers, legend, name=raster.path.stem)


def without_fill(numbers: npt.NDArray[Any], path: Path) -> npt.NDArray[Any]:
    """Class numbers (rows, columns) of a file that states no nodata value, with 255 replaced by 0 if it is one.

    Many programs fill unlabelled pixels of byte rasters with 255. It is taken for that if other classes have lower
    numbers than 254.
    """
    if numbers.dtype.kind not in "iuf" or numbers.ndim != 2:
        return numbers  # Labels refuses it
    is_fill = numbers == _FILL
    others = numbers[(numbers > 0) & ~is_fill]
    if not is_fill.any() or others.size == 0 or others.max() >= _FILL - 1:
        return numbers
    warn_data(
        f"{path.name}: its {is_fill.sum():,} pixels of 255 are taken as unlabelled, because its other classes end at "
        f"{others.max():g} and it states no nodata value; if 255 is a class, give it another number or a name"
    )
    return np.where(is_fill, numbers.dtype.type(0), numbers)


def ranges(numbers: Iterable[int]) -> str:
    """1, 2, 3, 7 as '1-3, 7'."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = int(number)
        else:
            runs.append([int(number), int(number)])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


# Names of wavelength units, in nm.
_UNITS = {
    "nanometers": 1.0, "nanometer": 1.0, "nanometres": 1.0, "nanometre": 1.0, "nm": 1.0,
    "micrometers": 1e3, "micrometer": 1e3, "micrometres": 1e3, "micrometre": 1e3, "microns": 1e3, "micron": 1e3,
    "um": 1e3, "\u00b5m": 1e3, "\u03bcm": 1e3,
    "millimeters": 1e6, "mm": 1e6, "meters": 1e9, "m": 1e9, "angstroms": 0.1,
}  # fmt: skip


def is_wavelength_unit(units: str) -> bool:
    """Whether ``units`` are typical of wavelengths (micrometres or less)."""
    return _UNITS.get(units.strip().lower(), math.inf) <= 1e3


def nm_per_unit(units: str | None, values: Floats, path: Path) -> float | None:
    """Nanometres per unit of ``values``; None, with a warning, for units that are not lengths."""
    word = (units or "").strip().lower()
    if word in _UNITS:
        return _UNITS[word]
    if word in ("", "unknown"):  # sensors cover 100 nm to 100 micrometres
        return 1e3 if values.max() < 100 else 1.0
    warn_data(f"{path.name}: wavelengths in {units!r} can't be converted to nanometres and are not used")
    return None
