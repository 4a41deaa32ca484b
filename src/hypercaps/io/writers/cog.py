"""Cloud Optimized GeoTIFFs: tiled, compressed, with overviews, written from strips of rows and read back.

GDAL makes such files as copies, so the strips first go to a plain GeoTIFF: in memory or, if it is too large, beside the
output. GDAL may not report that the disk is full: the file is read again and compared, strip by strip.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.ma  # rasterio imports it when it writes: here, that may happen in parallel with other work
import numpy.typing as npt
import rasterio
import rasterio.shutil
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.io import MemoryFile
from rasterio.windows import Window as RasterWindow

from hypercaps.data.grid import MapGrid
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import OutputError
from hypercaps.io.writers.raster_kind import RasterKind

Strip = Callable[[int, int], npt.NDArray[Any]]  # rows r0 to r1 -> (bands, r1 - r0, columns)
_STRIP_VALUES = 1 << 22  # of all bands of a strip
_CACHE = 32 << 20  # bytes of GDAL's block cache
_MEMORY = 64 << 20  # default, bytes


def encode(values: npt.NDArray[Any], kind: RasterKind) -> npt.NDArray[Any]:
    """Values as they are stored; a scaled raster holds whole steps, and nodata where a value is NaN."""
    if kind.scale == 1:
        return values.astype(kind.dtype)
    steps = np.round(np.nan_to_num(values, nan=kind.nodata * kind.scale) / kind.scale)
    return np.where(np.isnan(values), kind.nodata, steps).astype(kind.dtype)


def write_cog(path: Path, kind: RasterKind, grid: MapGrid, strip: Strip, memory: int = _MEMORY) -> None:
    """Write the raster that ``strip`` reads; the same values give the same bytes.

    ``memory``: bytes that may be used for it; the plain GeoTIFF takes up to twice its size while it grows.
    """
    longest, size = max(grid.shape), math.prod(grid.shape) * len(kind.bands) * np.dtype(kind.dtype).itemsize
    try:
        with warnings.catch_warnings(), rasterio.Env(GDAL_CACHEMAX=_CACHE, GDAL_NUM_THREADS="1", GDAL_PAM_ENABLED="NO"):
            # A scene without georeference gives a map without it: nothing to warn about.
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with _plain_file(path, in_memory=2 * size <= memory) as plain:
                _write_plain(plain, kind, grid, strip)
                rasterio.shutil.copy(
                    plain,
                    path,
                    driver="COG",
                    compress="deflate",
                    predictor="yes" if kind.dtype == "float32" else "no",
                    # Small tiles for small maps, so that they get overviews too.
                    blocksize=512 if longest > 1024 else 256 if longest > 512 else 128,
                    overview_resampling=kind.overviews,
                    bigtiff="if_safer",
                    num_threads="1",
                )
            _check_written(path, grid, len(kind.bands), strip)
    except RasterioError as error:
        raise OutputError(f"{path} can't be written: {error}; free some space or choose another place") from error


@contextmanager
def _plain_file(path: Path, *, in_memory: bool) -> Iterator[str]:
    """Name of the plain GeoTIFF, which is deleted at the end."""
    if in_memory:
        with MemoryFile(ext=".tif") as file:
            yield file.name
        return
    plain = path.with_name(path.name + ".strips")
    try:
        yield str(plain)
    finally:
        plain.unlink(missing_ok=True)


def _write_plain(path: str, kind: RasterKind, grid: MapGrid, strip: Strip) -> None:
    """A GeoTIFF without tiles and overviews."""
    georeference = {} if grid.transform is None else {"transform": rasterio.Affine(*grid.transform)}
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=grid.shape[0],
        width=grid.shape[1],
        count=len(kind.bands),
        dtype=kind.dtype,
        nodata=kind.nodata,
        crs=grid.crs,
        interleave="band",
        bigtiff="if_safer",
        **georeference,
    ) as raster:
        raster.update_tags(**kind.tags)
        if kind.band_tags:
            raster.update_tags(1, **kind.band_tags)
        raster.descriptions = kind.bands
        if kind.scale != 1:
            raster.scales = (kind.scale,) * len(kind.bands)
        if kind.colors is not None:
            raster.write_colormap(1, kind.colors)
        for at in _strips(grid, len(kind.bands)):
            raster.write(strip(at.r0, at.r1), window=RasterWindow.from_slices(at.rows, at.cols))


def _strips(grid: MapGrid, bands: int) -> Iterator[Window]:
    height, width = grid.shape
    return tile_windows(Window(0, height, 0, width), max(1, _STRIP_VALUES // (width * bands)), width)


def _check_written(path: Path, grid: MapGrid, bands: int, strip: Strip) -> None:
    with rasterio.open(path, driver="GTiff") as raster:
        for at in _strips(grid, bands):
            written = raster.read(window=RasterWindow.from_slices(at.rows, at.cols))
            if not np.array_equal(written, strip(at.r0, at.r1), equal_nan=written.dtype.kind == "f"):
                raise OutputError(f"{path} can't be written: the disk did not keep it; free some space and try again")
