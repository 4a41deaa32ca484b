"""Labels from another grid or coordinate system onto the scene's, by nearest neighbour; names of such systems."""

from __future__ import annotations

import math

import numpy as np
import rasterio
from rasterio.crs import CRS
from rasterio.enums import Resampling
from rasterio.warp import reproject

from hypercaps.errors import LabelsError
from hypercaps.io.stored import StoredRaster, tell
from hypercaps.scene import Affine, Labels, Scene

_SAME = 0.01  # pixels: grids that differ by less are one grid, written with other digits


def labels_on_grid(labels: Labels, raster: StoredRaster, scene: Scene) -> Labels:
    """``labels`` as they came out of ``raster``, on the scene's grid; untouched where either lies nowhere."""
    if raster.crs is None or raster.transform is None or scene.crs is None or scene.transform is None:
        return labels  # check_fits compares the sizes
    source, target = CRS.from_user_input(raster.crs), CRS.from_user_input(scene.crs)
    if (
        source == target
        and labels.shape == scene.shape[:2]
        and _same_grid(raster.transform, scene.transform, labels.shape)
    ):
        return labels
    moved = np.zeros(scene.shape[:2], dtype=np.int16)
    reproject(
        labels.array,
        moved,
        src_crs=source,
        src_transform=rasterio.Affine(*raster.transform),
        dst_crs=target,
        dst_transform=rasterio.Affine(*scene.transform),
        src_nodata=0,
        dst_nodata=0,
        resampling=Resampling.nearest,
    )
    if not moved.any():
        raise LabelsError(
            f"no labelled pixel of {raster.path} lies in scene {scene.name!r}: give labels of the same place"
        )
    tell(f"labels {labels.name!r} lie on another grid than scene {scene.name!r}: the nearest label of a pixel is taken")
    return Labels.from_array(moved, labels.legend, name=labels.name)


def _same_grid(one: Affine, other: Affine, shape: tuple[int, int]) -> bool:
    """Whether the corners of two grids of one shape lie on each other."""
    rows, cols = shape
    a, b, c, d, e, f = np.subtract(one, other)
    near = _SAME * min(math.hypot(other[0], other[3]), math.hypot(other[1], other[4]))
    corners = ((0, 0), (cols, 0), (0, rows), (cols, rows))
    return all(math.hypot(a * col + b * row + c, d * col + e * row + f) < near for col, row in corners)


def crs_name(crs: str) -> str:
    """EPSG:32633 for the page of text that means it; a system without a number keeps its text."""
    name: str = CRS.from_user_input(crs).to_string()
    return name
