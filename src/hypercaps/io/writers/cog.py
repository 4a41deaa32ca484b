"""Rasters as Cloud Optimized GeoTIFF: tiled, compressed, with overviews, written from strips and read back.

GDAL makes such files as copies, so the strips first go to a plain GeoTIFF beside it. GDAL can lose a full disk's error:
what was written is compared with what was to be written, strip by strip.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

Strip = Callable[[int, int], npt.NDArray[Any]]  # rows r0 to r1 -> (bands, r1 - r0, columns)
_STRIP_VALUES = 1 << 22  # values of a strip, all bands together
_CACHE = 32 << 20  # bytes that GDAL may keep of blocks


@dataclass(frozen=True)
class Placement:
    """Where the pixels of a raster lie, if anywhere."""

    shape: tuple[int, int]
    crs: str | None = None
    transform: Affine | None = None

    @classmethod
    def of(cls, scene: Scene) -> Placement:
        """The grid that the scene's map is on: that of the ground, where the scene itself is not."""
        if scene.lookup is not None:
            return cls(scene.lookup.shape, scene.lookup.crs, scene.lookup.transform)
        return cls(scene.shape[:2], scene.crs, scene.transform)


@dataclass(frozen=True)
class RasterKind:
    """What a raster holds."""

    dtype: str
    nodata: float
    overviews: str  # how GDAL makes one pixel of several
    bands: tuple[str, ...]  # a name each
    colors: Mapping[int, tuple[int, int, int, int]] | None = None
    scale: float = 1.0  # value = stored number times this
    tags: Mapping[str, str] = field(default_factory=dict)
    band_tags: Mapping[str, str] = field(default_factory=dict)  # of the first band


def write_cog(path: Path, kind: RasterKind, grid: Placement, strip: Strip) -> None:
    """Write the raster that ``strip`` gives; the same numbers give the same bytes."""
    plain = path.with_name(path.name + ".strips")
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "height": grid.shape[0],
        "width": grid.shape[1],
        "count": len(kind.bands),
        "dtype": kind.dtype,
        "nodata": kind.nodata,
        "crs": grid.crs,
        "interleave": "band",
        "bigtiff": "if_safer",
    }
    if grid.transform is not None:
        profile["transform"] = rasterio.Affine(*grid.transform)
    side = _block_side(grid.shape)
    try:
        with warnings.catch_warnings(), rasterio.Env(GDAL_CACHEMAX=_CACHE, GDAL_NUM_THREADS="1", GDAL_PAM_ENABLED="NO"):
            # Scenes without georeference give the same files without it: nothing to warn about.
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.open(plain, "w", **profile) as raster:
                _describe(raster, kind)
                for r0, r1 in _strips(grid.shape, len(kind.bands)):
                    raster.write(strip(r0, r1), window=RasterWindow.from_slices((r0, r1), (0, grid.shape[1])))
            rasterio.shutil.copy(
                plain,
                path,
                driver="COG",
                compress="deflate",
                predictor="yes" if kind.dtype == "float32" else "no",
                blocksize=side,
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


def _block_side(shape: tuple[int, int]) -> int:
    """Of the blocks that the file is kept in: small maps get overviews too."""
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
            found = raster.read(window=RasterWindow.from_slices((r0, r1), (0, grid.shape[1])))
            if not np.array_equal(found, strip(r0, r1), equal_nan=found.dtype.kind == "f"):
                raise OutputError(f"{path} can't be written: the disk did not keep it; free some space and try again")
