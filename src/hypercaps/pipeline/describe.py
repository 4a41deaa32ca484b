"""Describe a scene, label file or model for ``hypercaps info``."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io import catalog
from hypercaps.io.detect import sniff, split_spec, vector_driver
from hypercaps.io.labels.regrid import crs_name
from hypercaps.io.labels.vector import describe_vector
from hypercaps.io.open import list_arrays, open_labels, open_scene
from hypercaps.io.tiles import open_tiles_or_remote


def describe(what: str, *, wavelengths: Path | None = None, allow_remote: bool = False) -> dict[str, Any]:
    """Facts about a public scene, a model file, a scene or a label file, as JSON takes them."""
    about = _describe(what, wavelengths, allow_remote)
    if wavelengths is not None and about["kind"] != "scene":
        raise SceneError(f"--wavelengths are for a scene's file, and {what} is a {about['kind']}: leave them out")
    return about


def _describe(what: str, wavelengths: Path | None, allow_remote: bool) -> dict[str, Any]:
    if what in catalog.names():
        return {"kind": "public scene"} | catalog.get_scene(what).describe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # shown when the scene itself is opened
        whole = open_tiles_or_remote(what, SceneError, allow_remote=allow_remote)
    if whole is not None:
        about: dict[str, Any] = {"file": what}
        if len(whole.tiles) > 1:
            about |= {"tiles": len(whole.tiles), "covered": whole.covered}
        if whole.raster.shape[2] == 1:
            return {"kind": "labels"} | about | _about_labels(open_labels(what, allow_remote=allow_remote))
        scene = open_scene(what, wavelengths=wavelengths, allow_remote=allow_remote)
        return {"kind": "scene"} | about | _about_scene(scene)
    path, key = split_spec(what, "scene, labels or model", SceneError)
    try:
        is_model = sniff(path) == "safetensors" or path.suffix == ".safetensors"
    except OSError as cause:
        raise SceneError(f"{path} can't be read: {(cause.strerror or str(cause)).lower()}") from None
    if is_model:
        return {"kind": "model", "file": str(path)} | _about_model(path)
    driver = vector_driver(path)
    if driver is not None:
        return {"kind": "vector labels", "file": str(path)} | describe_vector(path, driver, key)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # shown when the scene itself is opened
        arrays = list_arrays(path)
    chosen = [array for array in arrays if key is None or array.key == key]
    ndims = {len(array.shape) for array in chosen}
    about = {"file": str(path)}
    if len(arrays) > 1:
        about["arrays"] = [str(array) for array in arrays]
    if 3 in ndims or not ndims & {2, 3}:  # a file with neither is refused as a scene
        return {"kind": "scene"} | about | _about_scene(open_scene(what, wavelengths=wavelengths))
    try:
        return {"kind": "labels"} | about | _about_labels(open_labels(what))
    except LabelsError as error:
        raise SceneError(f"{what} is neither a scene nor labels: {error}") from error


def _about_model(path: Path) -> dict[str, Any]:
    from hypercaps.inference.model_file import read_model  # loads torch, which scenes do not need

    model = read_model(path)
    waves = model.wavelengths
    return model.describe() | {
        "wavelengths_nm": None if waves is None else waves.tolist(),
        "wavelength_range_nm": None if waves is None else [float(waves.min()), float(waves.max())],
        "fwhm_nm": None if model.fwhm is None else model.fwhm.tolist(),
    }


def _about_scene(scene: Scene) -> dict[str, Any]:
    ground = scene if scene.lookup is None else scene.lookup  # the grid of its maps
    waves, grid = scene.wavelengths, ground.transform
    about = {
        "name": scene.name,
        "rows": scene.rows,
        "cols": scene.cols,
        "bands": scene.bands,
        "dtype": str(scene.dtype),
        "wavelengths_nm": None if waves is None else waves.tolist(),
        "wavelength_range_nm": None if waves is None else [float(waves.min()), float(waves.max())],
        "crs": None if ground.crs is None else crs_name(ground.crs),
        # Along a row and down a column, in units of the CRS, also for a rotated grid.
        "pixel_size": None if grid is None else [math.hypot(grid[0], grid[3]), math.hypot(grid[1], grid[4])],
    }
    return about if scene.lookup is None else about | {"map_rows": ground.shape[0], "map_cols": ground.shape[1]}


def _about_labels(labels: Labels) -> dict[str, Any]:
    counts = labels.counts()
    return {
        "name": labels.name,
        "rows": labels.shape[0],
        "cols": labels.shape[1],
        "labelled": sum(counts.values()),
        "classes": [
            {"label": e.label, "name": e.name, "color": list(e.color), "pixels": counts[e.label]} for e in labels.legend
        ],
    }
