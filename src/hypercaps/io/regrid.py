"""Labels from another grid or coordinate system onto the scene's, by nearest neighbour; names of such systems.

A scene that lies as its sensor flew has a table from the ground to its swath: labels go through it into the swath, and
maps go through it onto the ground.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.crs import CRS
from rasterio.enums import Resampling
from rasterio.warp import reproject

from hypercaps.errors import LabelsError, SceneError
from hypercaps.io.stored import StoredRaster, tell
from hypercaps.scene import Affine, Labels, Lookup, Scene

_SAME = 0.01  # pixels: grids that differ by less are one grid, written with other digits


def labels_on_grid(labels: Labels, raster: StoredRaster, scene: Scene) -> Labels:
    """``labels`` as they came out of ``raster``, on the scene's grid; untouched where either lies nowhere."""
    ground = scene if scene.lookup is None else scene.lookup
    if raster.crs is None or raster.transform is None or ground.crs is None or ground.transform is None:
        return labels  # check_fits compares the sizes
    source, target = CRS.from_user_input(raster.crs), CRS.from_user_input(ground.crs)
    shape = ground.shape[:2]
    moved, where = labels.array, "on another grid than"
    if not (source == target and labels.shape == shape and _same_grid(raster.transform, ground.transform, shape)):
        moved = np.zeros(shape, dtype=np.int16)
        reproject(
            labels.array,
            moved,
            src_crs=source,
            src_transform=rasterio.Affine(*raster.transform),
            dst_crs=target,
            dst_transform=rasterio.Affine(*ground.transform),
            src_nodata=0,
            dst_nodata=0,
            resampling=Resampling.nearest,
        )
    elif scene.lookup is None:
        return labels
    if scene.lookup is not None:
        moved, where = ground_to_swath(moved, scene.lookup, scene.shape[:2]), "on the ground under the swath of"
    if not moved.any():
        raise LabelsError(
            f"no labelled pixel of {raster.path} lies in scene {scene.name!r}: give labels of the same place"
        )
    tell(f"labels {labels.name!r} lie {where} scene {scene.name!r}: the nearest label of a pixel is taken")
    return Labels.from_array(moved, labels.legend, name=labels.name)


def ground_to_swath(array: npt.NDArray[np.int16], lookup: Lookup, shape: tuple[int, int]) -> npt.NDArray[np.int16]:
    """Classes on the ground grid (H, W), 0 = none, in the rows and columns of a swath of ``shape``.

    Several pixels of the ground may come from one of the swath: the class of most of them is taken, and none where two
    classes have as many.
    """
    _check_table(lookup, array.shape, shape)
    labelled = (array > 0) & (lookup.rows >= 0) & (lookup.cols >= 0)
    place = lookup.rows[labelled].astype(np.int64) * shape[1] + lookup.cols[labelled]  # (votes,)
    pairs, votes = np.unique(place << 16 | array[labelled].astype(np.int64), return_counts=True)
    order = np.lexsort((votes, pairs >> 16))  # by place, and there the most votes last
    place, label, votes = pairs[order] >> 16, pairs[order] & 0xFFFF, votes[order]
    last = np.flatnonzero(np.append(place[1:] != place[:-1], True)[: place.size])
    tied = (last > 0) & (place[last - 1] == place[last]) & (votes[last - 1] == votes[last])
    swath = np.zeros(shape[0] * shape[1], dtype=np.int16)
    swath[place[last[~tied]]] = label[last[~tied]]
    return swath.reshape(shape)


def swath_to_ground(array: npt.NDArray[Any], lookup: Lookup, fill: float) -> npt.NDArray[Any]:
    """An array in the swath (rows, columns, ...) on the ground grid (H, W, ...); ``fill`` where nothing was seen."""
    _check_table(lookup, lookup.shape, array.shape[:2])
    seen = (lookup.rows >= 0) & (lookup.cols >= 0)
    ground = np.full(lookup.shape + array.shape[2:], fill, dtype=array.dtype)
    ground[seen] = array[lookup.rows[seen], lookup.cols[seen]]
    return ground


def _check_table(lookup: Lookup, ground: tuple[int, ...], swath: tuple[int, ...]) -> None:
    """numpy would take places from the end of an array for negative ones, and say little of those beyond it."""
    if lookup.shape != ground or lookup.rows.max() >= swath[0] or lookup.cols.max() >= swath[1]:
        raise SceneError(
            f"a ground table of {lookup.shape} does not fit a grid of {ground} and a swath of {swath}: the scene's own "
            "table is expected"
        )


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
