"""GeoTIFF and Cloud Optimized GeoTIFF, by window, through rasterio.

The driver is always named: a VRT that calls itself .tif could read any file of the machine. The file is opened anew
for every window, so that windows may be read by any thread and any process.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal
from xml.etree.ElementTree import Element

import numpy as np
import rasterio
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window as RasterWindow

from hypercaps.data.labels import Rgb
from hypercaps.data.scene import Affine
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.raster import Bands, RawWindow, StoredRaster, ranges
from hypercaps.io.readers.band_tags import BandTags
from hypercaps.io.readers.tiff_check import Blocks, check_tiff
from hypercaps.io.xml import read_xml

TIFF_MARKS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")  # both byte orders; with a plus: BigTIFF


Masks = Literal["none", "one", "each"]  # in the file: one for all bands, or one for each

_CACHE = 64 << 20  # bytes of blocks that GDAL keeps; by itself it takes a twentieth of the machine's memory

# Of an address nothing but the one file is asked for: no list of what lies beside it, no password kept on this machine.
_REMOTE = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_HTTP_NETRC": "NO",
    "GDAL_HTTP_CONNECTTIMEOUT": "15",
    "GDAL_HTTP_TIMEOUT": "60",
    "GDAL_HTTP_MAX_RETRY": "2",
}


@contextmanager
def _opened(source: Path | str) -> Iterator[Any]:
    """The dataset of a file, or of an http address, which is a text."""
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", NotGeoreferencedWarning)  # scenes need not lie anywhere
        options: dict[str, Any] = {"GDAL_CACHEMAX": _CACHE}
        if isinstance(source, Path):
            name = str(source.absolute())  # never taken for an address or for one of GDAL's own schemes
        else:
            name = f"/vsicurl/{source}"
            options |= {"CPL_VSIL_CURL_ALLOWED_FILENAME": name, **_REMOTE}
        stack.enter_context(rasterio.Env(**options))
        try:
            yield stack.enter_context(rasterio.open(name, driver="GTiff"))
        except Exception as cause:
            # rasterio lets some of GDAL's errors through as they are, of classes that it does not export.
            if type(cause).__module__.partition(".")[0] != "rasterio" or isinstance(cause, OSError):
                raise
            raise OSError(str(cause)) from cause


def geotiff_raster(path: Path, address: str | None = None) -> StoredRaster:
    """The raster of a GeoTIFF: bands with what their tags say; an alpha band is a mask and no band.

    With an ``address`` it is read from there, and nothing that may lie beside it.
    """
    blocks, beside = (None, None) if address else (check_tiff(path), _checked_sidecars(path))
    with _opened(address or path) as dataset:
        if "OVERVIEW_FILE" in dataset.tags(ns="OVERVIEWS"):
            raise SceneError(f"{path} names another file as its overviews, which is not opened here: take that out")
        # What is asked of a dataset is asked of all its bands anew each time: once is enough.
        kinds = dataset.colorinterp
        alpha = [i for i in dataset.indexes if kinds[i - 1] == ColorInterp.alpha]
        indexes = [i for i in dataset.indexes if i not in alpha]
        if not indexes:
            raise SceneError(f"{path} holds no band but a mask: a raster with data is expected")
        if alpha:  # some writers call any fourth band of bytes so
            warn_data(f"{path.name}: band {ranges(alpha)} says how opaque a pixel is (alpha) and is taken as a mask")
        dtypes, nodatavals, scales, offsets = dataset.dtypes, dataset.nodatavals, dataset.scales, dataset.offsets
        dtype = _number_type(path, {dtypes[i - 1] for i in indexes})
        nodata = tuple(nodatavals[i - 1] for i in indexes)
        masks = _masks([flags for i, flags in enumerate(dataset.mask_flag_enums, 1) if i in indexes])
        if None in nodata and masks == "none":
            _check_written(path, dataset, blocks)
        tags = BandTags(path, dataset, indexes)
        info = tags.wavelengths()
        scale = np.array([scales[i - 1] for i in indexes], dtype=np.float64)
        offset = np.array([offsets[i - 1] for i in indexes], dtype=np.float64)
        if (scale == 1).all() and (factor := tags.reflectance_factor()) is not None:
            scale = np.full(len(indexes), 1 / factor)
        if not (np.isfinite(scale) & (scale != 0) & np.isfinite(offset)).all():
            raise SceneError(f"{path} gives a band a scale of 0 or an offset that is no number: mend or get it again")
        one = len(indexes) == 1
        return StoredRaster(
            path,
            (dataset.height, dataset.width, len(indexes)),
            dtype,
            _taker(address or path, indexes, masks, blocks),
            wavelengths=None if info is None else info.wavelengths,
            fwhm=None if info is None else info.fwhm,
            good=tags.good(),
            nodata=nodata,
            scale=None if (scale == 1).all() else scale,
            offset=None if (offset == 0).all() else offset,
            crs=dataset.crs.to_wkt() if dataset.crs else None,
            transform=None if dataset.transform.is_identity else _coefficients(dataset.transform),
            names=_category_names(beside) if one else {},
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


def _masks(of_bands: list[list[MaskFlags]]) -> Masks:
    if all(MaskFlags.all_valid in flags or MaskFlags.nodata in flags for flags in of_bands):
        return "none"  # nodata is tested by us, on the stored numbers
    return "one" if all(MaskFlags.per_dataset in flags for flags in of_bands) else "each"


def _taker(
    source: Path | str, indexes: list[int], masks: Masks, blocks: Blocks | None
) -> Callable[[slice, slice, Bands], RawWindow]:
    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        wanted = [indexes[band] for band in bands]
        window = RasterWindow.from_slices(rows, cols)
        if blocks is not None:
            blocks.check(rows, cols, wanted)
        with _opened(source) as dataset:
            stored = np.moveaxis(dataset.read(wanted, window=window), 0, -1)  # (h, w, bands)
            if masks == "none":
                return RawWindow(stored, None)
            masked = dataset.read_masks(wanted[:1] if masks == "one" else wanted, window=window)
            return RawWindow(stored, np.moveaxis(masked, 0, -1) > 0)

    return take


def _checked_sidecars(path: Path) -> Element | None:
    """Check what GDAL reads beside a file, and give back the .aux.xml if there is one.

    Masks and overviews are opened with any driver: only TIFFs may be there.
    """
    for suffix in (".msk", ".ovr", ".MSK", ".OVR"):
        beside = path.with_name(path.name + suffix)
        if beside.is_file():
            with beside.open("rb") as file:
                if not file.read(4).startswith(TIFF_MARKS):
                    raise SceneError(f"{beside} is not a TIFF, as a mask or overview must be: take it away")
    metadata = path.with_name(path.name + ".aux.xml")
    return read_xml(metadata) if metadata.is_file() else None


def _check_written(path: Path, dataset: Any, blocks: Blocks | None) -> None:
    """A block that was never written reads as zeros; where zero is data, a killed writer's file would pass."""
    if blocks is not None:
        missing = f"{blocks.missing:,} of its {blocks.grid.blocks:,} blocks" if blocks.missing else ""
    else:  # from afar the last one must do: it is written last
        height, width = dataset.block_shapes[-1]
        last = f"BLOCK_OFFSET_{(dataset.width - 1) // width}_{(dataset.height - 1) // height}"
        missing = "" if dataset.get_tag_item(last, "TIFF", bidx=dataset.count) else "its last block"
    if missing:
        raise SceneError(f"{path} was never written to its end: {missing} never came; get or make it again")


def _color_table(dataset: Any) -> dict[int, Rgb]:
    """Colours by label; a table is filled up with black, which therefore stands for no colour."""
    try:
        table = dataset.colormap(1)
    except ValueError:  # there is none
        return {}
    return {label: (r, g, b) for label, (r, g, b, _) in table.items() if (r, g, b) != (0, 0, 0)}


def _category_names(beside: Element | None) -> dict[int, str]:
    """Class names by label from the .aux.xml beside a GeoTIFF, where GDAL keeps them; rasterio does not read them."""
    found = [] if beside is None else beside.findall("./PAMRasterBand[@band='1']/CategoryNames/Category")
    return {label: entry.text for label, entry in enumerate(found) if entry.text}
