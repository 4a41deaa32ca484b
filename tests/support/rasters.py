"""Small GeoTIFFs with a known answer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.enums import ColorInterp
from rasterio.errors import NotGeoreferencedWarning

CUBE = (np.arange(40 * 50 * 4) % 251 + 1).reshape(40, 50, 4)
GT = np.arange(30).reshape(6, 5) % 4
GRID = rasterio.Affine(30, 0, 366015, 0, -30, 5809965)
TURNED = rasterio.Affine(25.0, 12.5, 366015, 12.5, -25.0, 5809965)


def write(
    path: Path, cube: np.ndarray = CUBE, dtype: str = "int16", *, tags: list[dict[str, str]] | None = None,
    imagery: list[dict[str, str]] | None = None, envi: Mapping[str, str] | None = None, scales: Any = None,
    offsets: Any = None, mask: np.ndarray | None = None, colors: Any = None, alpha: bool = False, **profile: Any,
) -> Path:  # fmt: skip
    """A GeoTIFF of ``cube`` (rows, columns, bands) or labels (rows, columns)."""
    cube = np.atleast_3d(cube)
    rows, cols, bands = cube.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with (
            rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
            rasterio.open(
                path, "w", driver="GTiff", height=rows, width=cols, count=bands, dtype=dtype, **profile
            ) as raster,
        ):
            if alpha:
                raster.colorinterp = [ColorInterp.gray] * (bands - 1) + [ColorInterp.alpha]
            if scales is not None:
                raster.scales = scales
            if offsets is not None:
                raster.offsets = offsets
            for band in range(bands):
                raster.update_tags(band + 1, **(tags[band] if tags else {}))
                raster.update_tags(band + 1, ns="IMAGERY", **(imagery[band] if imagery else {}))
            if envi is not None:
                raster.update_tags(ns="ENVI", **envi)
            if colors is not None:
                raster.write_colormap(1, colors)
            raster.write(np.moveaxis(cube, -1, 0).astype(dtype))
            if mask is not None:
                raster.write_mask(mask)
    return path
