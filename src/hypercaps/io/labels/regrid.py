"""Resample labels from another grid or coordinate system to a scene's pixels, by nearest neighbour.

Labels of a swath scene are resampled to the grid of its lookup table and then transferred to the swath.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.crs import CRS
from rasterio.enums import Resampling
from rasterio.warp import reproject

from hypercaps.data.grid import Affine, Lookup
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import LabelsError, SceneError, warn_data
from hypercaps.io.raster import StoredRaster

_SAME = 0.01  # pixels: grids that differ by less are equal but for rounding


def labels_on_grid(labels: Labels, raster: StoredRaster, scene: Scene) -> Labels:
    """The ``labels`` of ``raster`` on the scene's pixels; unchanged if neither is georeferenced."""
    resampled = on_scene(labels.array, raster, scene)
    if resampled is labels.array:
        return labels
    if not resampled.any():
        raise LabelsError(
            f"no labelled pixel of {raster.path} lies in scene {scene.name!r}: give labels of the same place"
        )
    where = "on another grid than" if scene.lookup is None else "on a map grid, not in the swath of"
    warn_data(f"labels {labels.name!r} lie {where} scene {scene.name!r}: the nearest label of a pixel is taken")
    return Labels.from_array(resampled, labels.legend, name=labels.name)


def on_scene(array: npt.NDArray[np.int16], raster: StoredRaster, scene: Scene) -> npt.NDArray[np.int16]:
    """Resample numbers (rows, columns) of ``raster`` to the scene's pixels, 0 outside the raster.

    Returns the same array if it is on the scene's grid, or if neither the raster nor the scene is georeferenced.
    """
    grid = scene.map_grid
    check_georeference(raster, scene)
    if grid.crs is None or grid.transform is None or raster.crs is None or raster.transform is None:
        return array  # its size is compared with the scene's later
    source, target = CRS.from_user_input(raster.crs), CRS.from_user_input(grid.crs)
    shape = (array.shape[0], array.shape[1])
    if source == target and shape == grid.shape and _same_grid(raster.transform, grid.transform, shape):
        resampled = array
    else:
        resampled = np.zeros(grid.shape, dtype=np.int16)
        reproject(
            array,
            resampled,
            src_crs=source,
            src_transform=rasterio.Affine(*raster.transform),
            dst_crs=target,
            dst_transform=rasterio.Affine(*grid.transform),
            src_nodata=0,
            dst_nodata=0,
            resampling=Resampling.nearest,
        )
    return resampled if scene.lookup is None else grid_to_swath(resampled, scene.lookup, scene.shape[:2])


def check_georeference(raster: StoredRaster, scene: Scene) -> None:
    """Refuse a raster with a coordinate system for a scene without one, and vice versa.

    Formats without georeference (.mat, .npy, .png) are not checked: their pixels are those of the scene.
    """
    if not raster.has_place:
        return
    raster_crs = raster.crs if raster.transform is not None else None
    scene_crs = scene.map_grid.crs if scene.map_grid.transform is not None else None
    if raster_crs and not scene_crs:
        raise LabelsError(_one_sided(raster.path, f"scene {scene.name!r}", raster_crs))
    if scene_crs and not raster_crs:
        if scene.lookup is not None and raster.shape[:2] == scene.shape[:2]:
            return  # drawn in the swath, which has no coordinate system
        raise LabelsError(_one_sided(f"scene {scene.name!r}", raster.path, scene_crs))


def _one_sided(with_crs: str | Path, without: str | Path, crs: str) -> str:
    return (
        f"{with_crs} lies in {crs_name(crs)[:60]} but {without} has no coordinate system: give it one (a GIS can write "
        "it into the file) or, if their pixels are the same, give a plain array instead of the raster (.npy or .mat)"
    )


def groups_to_swath(
    groups: npt.NDArray[np.int32], grid_labels: npt.NDArray[np.int16], swath: npt.NDArray[np.int16], lookup: Lookup
) -> npt.NDArray[np.int32]:
    """The group of each labelled pixel of ``swath``: that of the first grid pixel with its label."""
    is_in_swath = (grid_labels > 0) & (lookup.rows >= 0) & (lookup.cols >= 0)
    at = lookup.rows[is_in_swath].astype(np.int64) * swath.shape[1] + lookup.cols[is_in_swath]
    has_label = grid_labels[is_in_swath] == swath.ravel()[at]
    swath_groups = np.zeros(swath.shape, dtype=np.int32)
    swath_groups.ravel()[at[has_label][::-1]] = groups[is_in_swath][has_label][::-1]  # the last assignment remains
    return swath_groups


def grid_to_swath(array: npt.NDArray[np.int16], lookup: Lookup, shape: tuple[int, int]) -> npt.NDArray[np.int16]:
    """Transfer classes on the map grid (H, W), 0 = none, to a swath of ``shape``.

    Several grid pixels may come from one swath pixel: it gets the majority class, and none if two classes tie.
    """
    if lookup.shape != array.shape or lookup.rows.max() >= shape[0] or lookup.cols.max() >= shape[1]:
        raise SceneError(
            f"a lookup table of {lookup.shape} does not fit a grid of {array.shape} and a swath of {shape}: the "
            "scene's own table is expected"
        )
    labelled = (array > 0) & (lookup.rows >= 0) & (lookup.cols >= 0)
    place = lookup.rows[labelled].astype(np.int64) * shape[1] + lookup.cols[labelled]  # (votes,)
    pairs, votes = np.unique(place << 16 | array[labelled].astype(np.int64), return_counts=True)
    order = np.lexsort((votes, pairs >> 16))  # by place, then by votes
    place, label, votes = pairs[order] >> 16, pairs[order] & 0xFFFF, votes[order]
    last = np.flatnonzero(np.append(place[1:] != place[:-1], True)[: place.size])
    tied = (last > 0) & (place[last - 1] == place[last]) & (votes[last - 1] == votes[last])
    swath = np.zeros(shape[0] * shape[1], dtype=np.int16)
    swath[place[last[~tied]]] = label[last[~tied]]
    return swath.reshape(shape)


def _same_grid(one: Affine, other: Affine, shape: tuple[int, int]) -> bool:
    """Whether the corners of two grids of one shape coincide."""
    rows, cols = shape
    a, b, c, d, e, f = np.subtract(one, other)
    near = _SAME * min(math.hypot(other[0], other[3]), math.hypot(other[1], other[4]))
    corners = ((0, 0), (cols, 0), (0, rows), (cols, rows))
    return all(math.hypot(a * col + b * row + c, d * col + e * row + f) < near for col, row in corners)


def crs_name(crs: Any) -> str:
    """A short name such as EPSG:32633, or the full text of a system without an authority code."""
    name: str = CRS.from_user_input(crs).to_string()
    return name
