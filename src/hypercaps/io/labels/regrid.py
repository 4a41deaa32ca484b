"""Labels from another grid or coordinate system onto the scene's, by nearest neighbour; names of such systems.

A scene that lies as its sensor flew has a table from the ground to its swath: labels go through it into the swath.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.crs import CRS
from rasterio.enums import Resampling
from rasterio.warp import reproject

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Affine, Lookup, Scene
from hypercaps.errors import LabelsError, SceneError, warn_data
from hypercaps.io.raster import StoredRaster

_SAME = 0.01  # pixels: grids that differ by less are one grid, written with other digits


class Grid(NamedTuple):
    """Pixels that lie somewhere."""

    crs: str | None
    transform: Affine
    shape: tuple[int, int]


def ground(scene: Scene) -> Grid | None:
    """Where things on the ground meet the scene: its own grid, or its lookup table's; None if it lies nowhere."""
    if scene.lookup is not None:
        return Grid(scene.lookup.crs, scene.lookup.transform, scene.lookup.shape)
    return None if scene.transform is None else Grid(scene.crs, scene.transform, scene.shape[:2])


def labels_on_grid(labels: Labels, raster: StoredRaster, scene: Scene) -> Labels:
    """``labels`` as they came out of ``raster``, on the scene's grid; untouched where neither lies anywhere."""
    moved = on_scene(labels.array, raster, scene)
    if moved is labels.array:
        return labels
    if not moved.any():
        raise LabelsError(
            f"no labelled pixel of {raster.path} lies in scene {scene.name!r}: give labels of the same place"
        )
    where = "on another grid than" if scene.lookup is None else "on the ground under the swath of"
    warn_data(f"labels {labels.name!r} lie {where} scene {scene.name!r}: the nearest label of a pixel is taken")
    return Labels.from_array(moved, labels.legend, name=labels.name)


def on_scene(array: npt.NDArray[np.int16], raster: StoredRaster, scene: Scene) -> npt.NDArray[np.int16]:
    """Numbers (rows, columns) that belong to ``raster`` on the scene's pixels, 0 where there are none.

    The very array comes back if it lies there already, or if neither the raster nor the scene lies anywhere.
    """
    grid = ground(scene)
    check_places(raster, grid, scene)
    if grid is None or grid.crs is None or raster.crs is None or raster.transform is None:
        return array  # its size is compared with the scene's later
    source, target = CRS.from_user_input(raster.crs), CRS.from_user_input(grid.crs)
    shape = (array.shape[0], array.shape[1])
    if source == target and shape == grid.shape and _same_grid(raster.transform, grid.transform, shape):
        moved = array
    else:
        moved = np.zeros(grid.shape, dtype=np.int16)
        reproject(
            array,
            moved,
            src_crs=source,
            src_transform=rasterio.Affine(*raster.transform),
            dst_crs=target,
            dst_transform=rasterio.Affine(*grid.transform),
            src_nodata=0,
            dst_nodata=0,
            resampling=Resampling.nearest,
        )
    return moved if scene.lookup is None else ground_to_swath(moved, scene.lookup, scene.shape[:2])


def check_places(raster: StoredRaster, grid: Grid | None, scene: Scene) -> None:
    """Refuse a raster with a coordinate system for a scene without one, and the other way round.

    Files that can't carry one (.mat, .npy) don't come here: they are taken pixel on pixel.
    """
    placed, scene_placed = raster.crs is not None and raster.transform is not None, grid is not None and grid.crs
    if placed and not scene_placed:
        raise LabelsError(_one_sided(raster.path, f"scene {scene.name!r}", str(raster.crs)))
    if scene_placed and not placed:
        if scene.lookup is not None and raster.shape[:2] == scene.shape[:2]:
            return  # drawn in the rows and columns of the sensor, which have no coordinate system
        raise LabelsError(_one_sided(f"scene {scene.name!r}", raster.path, str(scene_placed)))


def _one_sided(with_crs: str | Path, without: str | Path, crs: str) -> str:
    return (
        f"{with_crs} lies in {crs_name(crs)[:60]} but {without} has no coordinate system: give it one (a GIS can write "
        "it into the file), or, if they lie pixel on pixel, take a plain array in place of the raster (.npy or .mat)"
    )


def groups_to_swath(
    groups: npt.NDArray[np.int32], ground_labels: npt.NDArray[np.int16], swath: npt.NDArray[np.int16], lookup: Lookup
) -> npt.NDArray[np.int32]:
    """The group of each labelled pixel of ``swath``: that of the first ground pixel that voted for its label."""
    seen = (ground_labels > 0) & (lookup.rows >= 0) & (lookup.cols >= 0)
    at = lookup.rows[seen].astype(np.int64) * swath.shape[1] + lookup.cols[seen]
    for_it = ground_labels[seen] == swath.ravel()[at]
    found = np.zeros(swath.shape, dtype=np.int32)
    found.ravel()[at[for_it][::-1]] = groups[seen][for_it][::-1]  # the last one written is the first
    return found


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


def crs_name(crs: Any) -> str:
    """EPSG:32633 for the page of text that means it; a system without a number keeps its text."""
    name: str = CRS.from_user_input(crs).to_string()
    return name
