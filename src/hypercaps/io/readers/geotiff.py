"""GeoTIFF and Cloud Optimized GeoTIFF, read by window with rasterio.

The driver is always given: a VRT named .tif could read any file of the machine. The file is opened again for every
window, so that any thread and any process can read, unless a thread keeps it open for several windows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from xml.etree.ElementTree import Element

import numpy as np
import rasterio
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window as RasterWindow

from hypercaps.data.colors import Rgb
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.marks import TIFF_MARKS
from hypercaps.io.raster import Bands, RawWindow, StoredRaster, ranges
from hypercaps.io.readers.band_tags import BandTags
from hypercaps.io.readers.envi import reflectance_factor
from hypercaps.io.readers.open_files import opened
from hypercaps.io.readers.tiff_blocks import Blocks
from hypercaps.io.readers.tiff_check import check_tiff
from hypercaps.io.xml import read_xml

Masks = Literal["none", "one", "each"]  # mask bands in the file: one for all bands, or one for each

_CACHE = 64 << 20  # bytes of GDAL's block cache, which is a twentieth of the memory by default

# Only the file itself is requested from a server: no directory listing, no password from .netrc.
_REMOTE = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_HTTP_NETRC": "NO",
    "GDAL_HTTP_CONNECTTIMEOUT": "15",
    "GDAL_HTTP_TIMEOUT": "60",
    "GDAL_HTTP_MAX_RETRY": "2",
}


@contextmanager
def opened_geotiff(source: Path | str) -> Iterator[Any]:
    """The rasterio dataset of a file (a Path) or of an http address (a str)."""
    try:
        with opened(source, lambda: _open(source)) as dataset:
            yield dataset
    except Exception as cause:
        # rasterio raises some of GDAL's errors as classes that it does not export.
        if type(cause).__module__.partition(".")[0] != "rasterio" or isinstance(cause, OSError):
            raise
        raise OSError(str(cause)) from cause


@contextmanager
def _open(source: Path | str) -> Iterator[Any]:
    # An absolute path, so that GDAL sees neither an address nor one of its own prefixes.
    name = str(source.absolute()) if isinstance(source, Path) else f"/vsicurl/{source}"
    remote = {} if isinstance(source, Path) else {"CPL_VSIL_CURL_ALLOWED_FILENAME": name, **_REMOTE}
    with rasterio.Env(GDAL_CACHEMAX=_CACHE, **remote):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotGeoreferencedWarning)  # a scene may have no georeference
            dataset = rasterio.open(name, driver="GTiff")
        with dataset:
            yield dataset


def geotiff_raster(path: Path, address: str | None = None) -> StoredRaster:
    """The raster of a GeoTIFF with the metadata of its bands; an alpha band becomes a mask.

    address : http address to read instead of the local file; no sidecar files are read then
    """
    blocks, aux_xml = (None, None) if address else (check_tiff(path), checked_sidecars(path))
    with opened_geotiff(address or path) as dataset:
        if "OVERVIEW_FILE" in dataset.tags(ns="OVERVIEWS"):
            raise SceneError(f"{path} refers to another file for overviews, which is not opened: remove the reference")
        interpretations = dataset.colorinterp  # each access queries all bands
        alpha = [i for i in dataset.indexes if interpretations[i - 1] == ColorInterp.alpha]
        indexes = [i for i in dataset.indexes if i not in alpha]
        if not indexes:
            raise SceneError(f"{path} holds a mask band only: a raster with data is expected")
        if alpha:  # some writers mark any fourth byte band as alpha
            warn_data(f"{path.name}: band {ranges(alpha)} is an alpha band and is used as a mask")
        dtypes, nodatavals, scales, offsets = dataset.dtypes, dataset.nodatavals, dataset.scales, dataset.offsets
        dtype = _number_type(path, {dtypes[i - 1] for i in indexes})
        nodata = tuple(nodatavals[i - 1] for i in indexes)
        masks = _masks([flags for i, flags in enumerate(dataset.mask_flag_enums, 1) if i in indexes])
        if None in nodata and masks == "none":
            _check_written(path, dataset, blocks)
        tags = BandTags(path, dataset, indexes)
        waves, fwhm = tags.wavelengths() or (None, None)
        scale = np.array([scales[i - 1] for i in indexes], dtype=np.float64)
        offset = np.array([offsets[i - 1] for i in indexes], dtype=np.float64)
        if (scale == 1).all() and (factor := reflectance_factor(tags.envi, path)) is not None:
            scale = np.full(len(indexes), 1 / factor)
        if not (np.isfinite(scale) & (scale != 0) & np.isfinite(offset)).all():
            raise SceneError(
                f"{path} gives a band a scale of 0 or an offset that is not a number: correct it or get it again"
            )
        one, block = len(indexes) == 1, dataset.block_shapes[indexes[0] - 1]
        return StoredRaster(
            path,
            (dataset.height, dataset.width, len(indexes)),
            dtype,
            _taker(address or path, indexes, masks, blocks)
            if blocks is None or masks != "none" or not blocks.can_decode(dtype)
            else _decoder(blocks, indexes),
            wavelengths=waves,
            fwhm=fwhm,
            good=tags.good(),
            nodata=nodata,
            scale=None if (scale == 1).all() else scale,
            offset=None if (offset == 0).all() else offset,
            crs=dataset.crs.to_wkt() if dataset.crs else None,
            transform=None if dataset.transform.is_identity else dataset.transform[:6],
            names=_category_names(aux_xml) if one else {},
            colors=_color_table(dataset) if one else {},
            block=None if block[1] == dataset.width else block,  # strips are as wide as the raster
        )


def _number_type(path: Path, names: set[str]) -> np.dtype[Any]:
    if any(name.startswith("complex") for name in names):
        raise SceneError(f"{path} holds complex numbers: a cube of real numbers is expected")
    return np.result_type(*(np.dtype(name) for name in names))


def _masks(of_bands: list[list[MaskFlags]]) -> Masks:
    if all(MaskFlags.all_valid in flags or MaskFlags.nodata in flags for flags in of_bands):
        return "none"  # nodata is tested by StoredRaster, on the stored numbers
    return "one" if all(MaskFlags.per_dataset in flags for flags in of_bands) else "each"


def _taker(
    source: Path | str, indexes: list[int], masks: Masks, blocks: Blocks | None
) -> Callable[[slice, slice, Bands], RawWindow]:
    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        numbers = [indexes[band] for band in bands]  # rasterio counts from 1
        window = RasterWindow.from_slices(rows, cols)
        if blocks is not None:
            blocks.check(rows, cols, numbers)
        with opened_geotiff(source) as dataset:
            stored = np.moveaxis(dataset.read(numbers, window=window), 0, -1)  # (h, w, bands)
            if masks == "none":
                return RawWindow(stored, None)
            masked = dataset.read_masks(numbers[:1] if masks == "one" else numbers, window=window)
            return RawWindow(stored, np.moveaxis(masked, 0, -1) > 0)

    return take


def _decoder(blocks: Blocks, indexes: list[int]) -> Callable[[slice, slice, Bands], RawWindow]:
    """Like ``_taker``, without GDAL."""
    return lambda rows, cols, bands: RawWindow(blocks.read(rows, cols, [indexes[band] for band in bands]), None)


def checked_sidecars(path: Path) -> Element | None:
    """Check the sidecar files that GDAL reads; returns the root of the .aux.xml, if it exists.

    GDAL opens masks and overviews with any driver: only TIFFs are accepted.
    """
    for suffix in (".msk", ".ovr", ".MSK", ".OVR"):
        sidecar = path.with_name(path.name + suffix)
        if sidecar.is_file():
            with sidecar.open("rb") as file:
                if not file.read(4).startswith(TIFF_MARKS):
                    raise SceneError(f"{sidecar} is not a TIFF, as a mask or overview must be: remove it")
    metadata = path.with_name(path.name + ".aux.xml")
    return read_xml(metadata) if metadata.is_file() else None


def _check_written(path: Path, dataset: Any, blocks: Blocks | None) -> None:
    """Refuse missing blocks, which GDAL reads as zeros: the file of a killed writer would look complete."""
    if blocks is not None:
        missing = f"{blocks.missing:,} of its {blocks.grid.blocks:,} blocks were" if blocks.missing else ""
    else:  # remote: only the last block, which is written last
        height, width = dataset.block_shapes[-1]
        last = f"BLOCK_OFFSET_{(dataset.width - 1) // width}_{(dataset.height - 1) // height}"
        missing = "" if dataset.get_tag_item(last, "TIFF", bidx=dataset.count) else "its last block was"
    if missing:
        raise SceneError(f"{path} is incomplete: {missing} never written; get or make it again")


def _color_table(dataset: Any) -> dict[int, Rgb]:
    """Colours by label; black is ignored, because colour tables are padded with it."""
    try:
        table = dataset.colormap(1)
    except ValueError:  # no colour table
        return {}
    return {label: (r, g, b) for label, (r, g, b, _) in table.items() if (r, g, b) != (0, 0, 0)}


def _category_names(aux_xml: Element | None) -> dict[int, str]:
    """Class names by label from the .aux.xml beside a GeoTIFF, where GDAL stores them; rasterio does not read them."""
    categories = [] if aux_xml is None else aux_xml.findall("./PAMRasterBand[@band='1']/CategoryNames/Category")
    return {label: entry.text for label, entry in enumerate(categories) if entry.text}
