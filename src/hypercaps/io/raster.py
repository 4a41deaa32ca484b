"""GeoTIFF and Cloud Optimized GeoTIFF, by window, through rasterio.

The driver is always named: a VRT that calls itself .tif could read any file of the machine. The file is opened anew
for every window, so that windows may be read by any thread and any process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio._err import CPLE_BaseError
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window as RasterWindow

from hypercaps.errors import SceneError
from hypercaps.io.envi import items
from hypercaps.io.stored import Bands, Floats, StoredRaster, Taken, nm_per_unit, ranges, tell
from hypercaps.scene import Affine, Rgb

TIFF_MARKS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")  # both byte orders; with a plus: BigTIFF
_LONGEST_XML = 1 << 24  # bytes


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # scenes need not lie anywhere
        # An absolute path is never taken for an address or for one of GDAL's own schemes.
        try:
            with rasterio.open(path.absolute(), driver="GTiff") as dataset:
                yield dataset
        except CPLE_BaseError as cause:  # rasterio lets some of GDAL's errors through as they are
            raise OSError(str(cause)) from cause


def geotiff_raster(path: Path) -> StoredRaster:
    """The raster of a GeoTIFF: bands with what their tags say; an alpha band is a mask and no band."""
    _check_sidecars(path)
    with _opened(path) as dataset:
        alpha = [i for i in dataset.indexes if dataset.colorinterp[i - 1] == ColorInterp.alpha]
        indexes = [i for i in dataset.indexes if i not in alpha]
        if not indexes:
            raise SceneError(f"{path} holds no band but a mask: a raster with data is expected")
        if alpha:  # some writers call any fourth band of bytes so
            tell(f"{path.name}: band {ranges(alpha)} says how opaque a pixel is (alpha) and is taken as a mask")
        dtype = _number_type(path, {dataset.dtypes[i - 1] for i in indexes})
        nodata = tuple(dataset.nodatavals[i - 1] for i in indexes)
        if None in nodata:
            _check_written(path, dataset)
        tags = _BandTags(path, dataset, indexes)
        waves, fwhm = tags.wavelengths()
        scale = np.array([dataset.scales[i - 1] for i in indexes], dtype=np.float64)
        offset = np.array([dataset.offsets[i - 1] for i in indexes], dtype=np.float64)
        if (scale == 1).all() and (factor := tags.reflectance_factor()) is not None:
            scale = np.full(len(indexes), 1 / factor)
        one = len(indexes) == 1
        return StoredRaster(
            path,
            (dataset.height, dataset.width, len(indexes)),
            dtype,
            _taker(path, indexes),
            wavelengths=waves,
            fwhm=fwhm,
            good=tags.good(),
            nodata=nodata,
            scale=None if (scale == 1).all() else scale,
            offset=None if (offset == 0).all() else offset,
            crs=dataset.crs.to_wkt() if dataset.crs else None,
            transform=None if dataset.transform.is_identity else _coefficients(dataset.transform),
            names=_category_names(path) if one else {},
            colors=_color_table(dataset) if one else {},
            block=_tile(dataset, indexes[0]),
        )


def _coefficients(transform: Any) -> Affine:
    a, b, c, d, e, f = tuple(transform)[:6]
    return a, b, c, d, e, f


def _tile(dataset: Any, index: int) -> tuple[int, int] | None:
    """Rows and columns of a tile; None for strips, which are as wide as the raster."""
    rows, cols = dataset.block_shapes[index - 1]
    return None if cols == dataset.width else (rows, cols)


def _number_type(path: Path, names: set[str]) -> np.dtype[Any]:
    if any(name.startswith("complex") for name in names):
        raise SceneError(f"{path} holds complex numbers: a cube of real numbers is expected")
    return np.result_type(*(np.dtype(name) for name in names))


def _taker(path: Path, indexes: list[int]) -> Callable[[slice, slice, Bands], Taken]:
    def take(rows: slice, cols: slice, bands: Bands) -> Taken:
        wanted = [indexes[band] for band in bands]
        window = RasterWindow.from_slices(rows, cols)
        with _opened(path) as dataset:
            stored = np.moveaxis(dataset.read(wanted, window=window), 0, -1)  # (h, w, bands)
            flags = [dataset.mask_flag_enums[i - 1] for i in wanted]
            if all(MaskFlags.all_valid in flag or MaskFlags.nodata in flag for flag in flags):
                return Taken(stored, None)  # nodata is tested by us, on the stored numbers
            if all(MaskFlags.per_dataset in flag for flag in flags):
                wanted = wanted[:1]  # one mask for all bands
            return Taken(stored, np.moveaxis(dataset.read_masks(wanted, window=window), 0, -1) > 0)

    return take


def _check_sidecars(path: Path) -> None:
    """GDAL opens masks and overviews beside a file with any driver: only TIFFs may be there."""
    for suffix in (".msk", ".ovr"):
        beside = path.with_name(path.name + suffix)
        if beside.is_file():
            with beside.open("rb") as file:
                if not file.read(4).startswith(TIFF_MARKS):
                    raise SceneError(f"{beside} is not a TIFF, as a mask or overview must be: take it away")


def _check_written(path: Path, dataset: Any) -> None:
    """A block that was never written reads as zeros; where zero is not nodata, a killed writer's file would pass."""
    height, width = dataset.block_shapes[-1]
    last = f"BLOCK_OFFSET_{(dataset.width - 1) // width}_{(dataset.height - 1) // height}"
    if dataset.get_tag_item(last, "TIFF", bidx=dataset.count) is None:
        raise SceneError(f"{path} was never written to its end: its last block is missing; get or make it again")


class _BandTags:
    """What a GeoTIFF says of its bands: in the IMAGERY domain, in the bands' own tags, or in the ENVI domain."""

    def __init__(self, path: Path, dataset: Any, indexes: list[int]) -> None:
        self.path, self.count = path, dataset.count
        self.indexes = indexes
        self.imagery = [_lower(dataset.tags(i, ns="IMAGERY")) for i in indexes]
        self.tags = [_lower(dataset.tags(i)) for i in indexes]
        self.envi = _lower(dataset.tags(ns="ENVI"))

    def wavelengths(self) -> tuple[Floats | None, Floats | None]:
        """Wavelengths and band widths (bands,) in nm, from the first place that has one for every band."""
        waves = self._of_bands(self.imagery, "central_wavelength_um")
        if waves is not None:
            fwhm = self._of_bands(self.imagery, "fwhm_um")
            return waves * 1e3, None if fwhm is None else fwhm * 1e3
        waves, fwhm = self._of_bands(self.tags, "wavelength"), self._of_bands(self.tags, "fwhm")
        units = next((t[key] for t in self.tags for key in ("wavelength_units", "wavelength units") if key in t), None)
        if waves is None:
            waves, fwhm = self._listed("wavelength"), self._listed("fwhm")
            units = self.envi.get("wavelength_units", self.envi.get("wavelength units"))
        if waves is None:
            return None, None
        unit = nm_per_unit(units, waves, self.path)
        if unit is None:
            return None, None
        return waves * unit, None if fwhm is None else fwhm * unit

    def good(self) -> npt.NDArray[np.bool_] | None:
        """Which bands are not marked bad; None if nothing is said."""
        words = [tags.get("bbl", tags.get("good")) for tags in self.tags]
        if any(word is not None for word in words):
            return np.array([word is None or word.strip().lower() not in ("0", "0.0", "false", "no") for word in words])
        listed = self._listed("bbl")
        return None if listed is None else listed != 0

    def reflectance_factor(self) -> float | None:
        text = self.envi.get("reflectance_scale_factor", self.envi.get("reflectance scale factor"))
        if text is None:
            return None
        factor = self._number(text, "reflectance scale factor")
        if factor <= 0:
            raise SceneError(f"{self.path} gives {factor:g} as reflectance scale factor: a number above 0 is expected")
        return factor

    def _of_bands(self, tags: list[Mapping[str, str]], key: str) -> Floats | None:
        if not all(key in of_band for of_band in tags):
            return None
        return np.array([self._number(of_band[key], key) for of_band in tags])

    def _listed(self, key: str) -> Floats | None:
        if key not in self.envi:
            return None
        numbers = np.array([self._number(item, key) for item in items(self.envi[key])])
        if numbers.size != self.count:
            raise SceneError(
                f"{self.path} gives {numbers.size} numbers as {key!r} for {self.count} bands: give one for each band"
            )
        ours: Floats = numbers[np.array(self.indexes) - 1]
        return ours

    def _number(self, text: str, key: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not np.isfinite(number):
            raise SceneError(f"{self.path} gives {text[:40]!r} as {key!r} of a band: a finite number is expected")
        return number


def _lower(tags: Mapping[str, str]) -> Mapping[str, str]:
    return {key.lower(): value for key, value in tags.items()}


def _color_table(dataset: Any) -> dict[int, Rgb]:
    """Colours by label; a table is filled up with black, which therefore stands for no colour."""
    try:
        table = dataset.colormap(1)
    except ValueError:  # there is none
        return {}
    return {label: (r, g, b) for label, (r, g, b, _) in table.items() if (r, g, b) != (0, 0, 0)}


def _category_names(path: Path) -> dict[int, str]:
    """Class names by label from the .aux.xml beside a GeoTIFF, where GDAL keeps them; rasterio does not read them."""
    beside = path.with_name(path.name + ".aux.xml")
    if not beside.is_file() or beside.stat().st_size > _LONGEST_XML:
        return {}
    text = beside.read_bytes()
    if b"<!" in text.replace(b"<!--", b""):  # no entities: GDAL writes none
        return {}
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return {}
    names = [entry.text or "" for entry in root.findall("./PAMRasterBand[@band='1']/CategoryNames/Category")]
    return {label: name for label, name in enumerate(names) if name}
