"""Masks from rasters and arrays: which pixels of a scene to map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Scene
from hypercaps.errors import LabelsError
from hypercaps.io.labels.regrid import on_scene
from hypercaps.io.raster import StoredRaster

Mask = npt.NDArray[np.bool_]  # (rows, columns)

_INSIDE, _OUTSIDE = 1, 2  # 0 is outside the raster


def raster_mask(raster: StoredRaster, scene: Scene) -> Mask:
    """Pixels of the scene whose nearest pixel of the raster is neither 0 nor nodata."""
    if raster.shape[2] != 1:
        raise LabelsError(f"{raster.path} has {raster.shape[2]} bands: a mask is a raster of one band")
    stored, valid = raster.defined(slice(0, raster.shape[0]), slice(0, raster.shape[1]), np.zeros(1, dtype=np.intp))
    inside = (valid & (stored != 0))[:, :, 0]
    resampled = on_scene(np.where(inside, _INSIDE, _OUTSIDE).astype(np.int16), raster, scene)
    return _check_size(resampled == _INSIDE, raster.path, scene)


def array_mask(array: npt.NDArray[Any], path: Path, scene: Scene) -> Mask:
    """Pixels where an array of the scene's size is neither 0 nor NaN."""
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise LabelsError(f"{path} holds a {array.ndim}-D array of {array.dtype}: a mask is a 2-D array of numbers")
    return _check_size((array != 0) & ~np.isnan(array), path, scene)


def _check_size(inside: Mask, path: Path, scene: Scene) -> Mask:
    if inside.shape != scene.shape[:2]:
        raise LabelsError(
            f"the mask {path} has {inside.shape[0]} x {inside.shape[1]} pixels but scene {scene.name!r} has "
            f"{scene.rows} x {scene.cols}, and no georeference relates them: give one of the same size, or with a "
            "coordinate system where the scene has one"
        )
    return np.asarray(inside)
