"""Cloud Optimized GeoTIFFs: tiled, compressed, with overviews, written from strips of rows and read back.

GDAL makes such files as copies, so the strips first go to a plain GeoTIFF beside the output. GDAL may not report that
the disk is full: the file is read again and compared, strip by strip.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
import rasterio.shutil
from rasterio.errors import NotGeoreferencedWarning, RasterioError
from rasterio.windows import Window as RasterWindow

from hypercaps.data.scene import Affine, Scene
from hypercaps.errors import OutputError
from hypercaps.io.writers.raster_kind import RasterKind

Strip = Callable[[int, int], npt.NDArray[Any]]  # rows r0 to r1 -> (bands, r1 - r0, columns)
_STRIP_VALUES = 1 << 22  # of all bands of a strip
_CACHE = 32 << 20  # bytes of GDAL's block cache


@dataclass(frozen=True)
class Placement:
    """Size and georeference of a raster."""

    shape: tuple[int, int]
    crs: str | None = None
    transform: Affine | None = None

    @classmethod
    def of(cls, scene: Scene) -> Placement:
        """The grid of the scene's map: that of the lookup table, if the scene is a swath."""
        if scene.lookup is not None:
            return cls(scene.lookup.shape, scene.lookup.crs, scene.lookup.transform)
        return cls(scene.shape[:2], scene.crs, scene.transform)


def encode(values: npt.NDArray[Any], kind: RasterKind) -> npt.NDArray[Any]:
    """Values as they are stored; a scaled raster holds whole steps, and nodata where a value is NaN."""
    if kind.scale == 1:
        return values.astype(kind.dtype)
    steps = np.round(np.nan_to_num(values, nan=kind.nodata * kind.scale) / kind.scale)
    return np.where(np.isnan(values), kind.nodata, steps).astype(kind.dtype)


def write_cog(path: Path, kind: RasterKind, grid: Placement, strip: Strip) -> None:
    """Write the raster that ``strip`` reads; the same values give the same bytes."""
    plain = path.with_name(path.name + ".strips")
    try:
        with warnings.catch_warnings(), rasterio.Env(GDAL_CACHEMAX=_CACHE, GDAL_NUM_THREADS="1", GDAL_PAM_ENABLED="NO"):
            # A scene without georeference gives a map without it: nothing to warn about.
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            _write_plain(plain, kind, grid, strip)
            rasterio.shutil.copy(
                plain,
                path,
                driver="COG",
                compress="deflate",
                predictor="yes" if kind.dtype == "float32" else "no",
                blocksize=_block_side(grid.shape),
                overview_resampling=kind.overviews,
                bigtiff="if_safer",
                num_threads="1",
            )
            plain.unlink()
            _check_written(path, grid, len(kind.bands), strip)
    except (RasterioError, rasterio.errors.RasterioIOError) as error:
        raise OutputError(f"{path} can't be written: {error}; free some space or choose another place") from error
    finally:
        plain.unlink(missing_ok=True)


def _write_plain(path: Path, kind: RasterKind, grid: Placement, strip: Strip) -> None:
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
        _describe(raster, kind)
        for r0, r1 in _strips(grid.shape, len(kind.bands)):
            raster.write(strip(r0, r1), window=RasterWindow.from_slices((r0, r1), (0, grid.shape[1])))


def _block_side(shape: tuple[int, int]) -> int:
    """Side of the file's tiles; small for small maps, so that they get overviews too."""
    longest = max(shape)
    return 512 if longest > 1024 else 256 if longest > 512 else 128


def _strips(shape: tuple[int, int], bands: int) -> list[tuple[int, int]]:
    rows = max(1, _STRIP_VALUES // (shape[1] * bands))
    return [(r0, min(r0 + rows, shape[0])) for r0 in range(0, shape[0], rows)]


def _describe(raster: Any, kind: RasterKind) -> None:
    raster.update_tags(**kind.tags)
    if kind.band_tags:
        raster.update_tags(1, **kind.band_tags)
    for index, name in enumerate(kind.bands, 1):
        raster.set_band_description(index, name)
    if kind.scale != 1:
        raster.scales = (kind.scale,) * len(kind.bands)
    if kind.colors is not None:
        raster.write_colormap(1, kind.colors)


def _check_written(path: Path, grid: Placement, bands: int, strip: Strip) -> None:
    with rasterio.open(path, driver="GTiff") as raster:
        for r0, r1 in _strips(grid.shape, bands):
            written = raster.read(window=RasterWindow.from_slices((r0, r1), (0, grid.shape[1])))
            if not np.array_equal(written, strip(r0, r1), equal_nan=written.dtype.kind == "f"):
                raise OutputError(f"{path} can't be written: the disk did not keep it; free some space and try again")
