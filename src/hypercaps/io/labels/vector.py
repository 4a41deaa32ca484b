"""Labels from polygons, lines and points: a layer, its class field, and the scene it is burnt onto."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.crs import CRS
from rasterio.errors import CRSError

from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.errors import LabelsError, warn_data
from hypercaps.io.labels.class_field import as_texts, choose_fields, make_classes
from hypercaps.io.labels.merge import LabelFile, overlap_message
from hypercaps.io.labels.qml import find_style
from hypercaps.io.labels.rasterize import Burnt, Placed, burn, outline, place
from hypercaps.io.labels.regrid import Grid, crs_name, ground, ground_to_swath, groups_to_swath
from hypercaps.io.labels.vector_file import Features, VectorLayer, layer_names, open_layer, read_features


def vector_labels(
    path: Path, driver: str, layer_name: str | None, *, scene: Scene | None, class_field: str | None
) -> LabelFile:
    """The labels that a layer's features give the scene's pixels; each feature is a group of its own."""
    if scene is None:
        raise LabelsError(f"{path} holds features that lie somewhere: name the scene that they are labels for")
    layer = open_layer(path, driver, layer_name)
    fields = choose_fields(layer, class_field)
    grid = common_ground(layer, scene)
    features = read_near(layer, fields.all, grid)
    texts = as_texts(features.columns[fields.field], fields.field, str(path))
    everything, all_texts = features, texts
    if layer.is_large:  # classes are numbered the same whichever part of a layer the scene needs
        everything = read_features(layer, fields.all, geometry=False)
        all_texts = as_texts(everything.columns[fields.field], fields.field, str(path))
    style = find_style(path, layer.name, fields.field)
    classes = make_classes(all_texts, fields, everything.columns, style, str(path))
    placed = place(features.geometries, layer.crs, grid, str(path))
    numbers = np.array([classes.numbers.get(text, 0) for text in texts], dtype=np.int64)  # (features,)
    burnt = burn(placed.pieces, numbers, grid.shape)
    _tell(path.name, placed, burnt, classes.legend, without_class=int((numbers == 0).sum()))
    labels, groups = burnt.labels, burnt.groups
    if scene.lookup is not None:
        labels = ground_to_swath(burnt.labels, scene.lookup, scene.shape[:2])
        groups = groups_to_swath(burnt.groups, burnt.labels, labels, scene.lookup)
    if not labels.any():
        raise LabelsError(_nothing(layer, placed, burnt, scene))
    name = path.stem if layer_name is None else layer_name
    made = Labels.from_array(labels, classes.legend, name=name, groups=groups)
    invented = frozenset(classes.legend.labels.tolist()) if classes.invented else frozenset()
    return LabelFile(made, classes.legend, invented)


def vector_mask(path: Path, driver: str, layer_name: str | None, scene: Scene) -> npt.NDArray[np.bool_]:
    """(rows, columns) of the scene: where any feature of a layer lies."""
    layer = open_layer(path, driver, layer_name)
    grid = common_ground(layer, scene)
    geometries = read_near(layer, [], grid).geometries
    placed = place(geometries, layer.crs, grid, str(path))
    inside = burn(placed.pieces, np.ones(geometries.size, dtype=np.int64), grid.shape).labels > 0
    if scene.lookup is not None:  # outside is a vote too
        inside = ground_to_swath(np.where(inside, 1, 2).astype(np.int16), scene.lookup, scene.shape[:2]) == 1
    return np.asarray(inside)


def common_ground(layer: VectorLayer, scene: Scene) -> Grid:
    """The grid to burn a layer onto; refused where only one of the two has a coordinate system."""
    grid = ground(scene)
    try:
        CRS.from_user_input(layer.crs or "EPSG:4326")
    except CRSError:
        raise LabelsError(
            f"{layer.path} has a coordinate system that can't be understood: write it anew in a GIS"
        ) from None
    if grid is None or (grid.crs is None and layer.crs is not None):
        raise LabelsError(
            f"{layer.path} lies in {_named(layer.crs)} but scene {scene.name!r} has no coordinate system: give the "
            "scene one, or take a raster of its size"
        )
    if layer.crs is None and grid.crs is not None:
        raise LabelsError(
            f"{layer.path} has no coordinate system but scene {scene.name!r} lies in {_named(grid.crs)}: give the "
            "layer its own (in QGIS: Assign Projection; a shapefile needs its .prj)"
        )
    if layer.crs is None:
        warn_data(
            f"neither {layer.path.name} nor scene {scene.name!r} has a coordinate system: they are taken to share one"
        )
    return grid


def read_near(layer: VectorLayer, fields: list[str], grid: Grid) -> Features:
    """All features of a layer, or, of a large file, those around the grid."""
    if layer.features == 0:
        raise LabelsError(
            f"layer {layer.name!r} of {layer.path} holds no feature: polygons, lines or points are expected"
        )
    within = None
    if layer.is_large:
        within = outline(grid, layer.crs or "")
    return read_features(layer, fields, within=within)


def describe_vector(path: Path, driver: str, layer_name: str | None) -> dict[str, Any]:
    """What a vector file holds, as JSON takes it."""
    layers = layer_names(path, driver)
    if layer_name is None and len(layers) > 1:
        return {"format": driver, "layers": layers}
    layer = open_layer(path, driver, layer_name)
    return {
        "format": driver,
        "layers": layers,
        "layer": layer.name,
        "geometry": layer.geometry,
        "features": layer.features,
        "fields": list(layer.fields),
        "crs": None if layer.crs is None else crs_name(layer.crs),
    }


def _named(crs: str | None) -> str:
    return "a system of its own" if crs is None else crs_name(crs)[:60]


def _tell(name: str, placed: Placed, burnt: Burnt, legend: Legend, *, without_class: int) -> None:
    if placed.without:
        warn_data(f"{name}: {_count(placed.without, 'feature')} without a geometry left out")
    if without_class:
        warn_data(f"{name}: {_count(without_class, 'feature')} without a class left out")
    if placed.mended:
        warn_data(f"{name}: {_count(placed.mended, 'polygon')} that crossed themselves or their holes mended")
    if burnt.empty:
        warn_data(f"{name}: {_count(burnt.empty, 'polygon')} too small to hold the centre of a pixel, labelling none")
    if burnt.overlaps:
        warn_data(overlap_message(burnt.overlaps, legend, "features", name))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _nothing(layer: VectorLayer, placed: Placed, burnt: Burnt, scene: Scene) -> str:
    if placed.pieces.shapes.size == 0:
        return f"no feature of {layer.path} lies in scene {scene.name!r}: give labels of the same place"
    if burnt.overlaps:
        return f"all features of {layer.path} in scene {scene.name!r} overlap with other classes: mend them"
    return (
        f"no feature of {layer.path} labels a pixel of scene {scene.name!r}: those that lie in it have no class or "
        "hold no pixel's centre"
    )
