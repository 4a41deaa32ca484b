"""Labels from polygons, lines and points: a vector layer, its class field, and the scene to rasterize it onto."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from rasterio.crs import CRS
from rasterio.errors import CRSError

from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import MapGrid, Scene
from hypercaps.errors import LabelsError, warn_data
from hypercaps.io.labels.class_field import as_texts, choose_fields, make_classes
from hypercaps.io.labels.merge import LabelFile, overlap_message
from hypercaps.io.labels.qml import find_style
from hypercaps.io.labels.rasterize import FeaturesOnGrid, RasterizedFeatures, bounding_box, features_to_grid, rasterize
from hypercaps.io.labels.regrid import crs_name, grid_to_swath, groups_to_swath
from hypercaps.io.labels.vector_file import Features, VectorLayer, layer_names, open_layer, read_features


def vector_labels(
    path: Path, driver: str, layer_name: str | None, *, scene: Scene | None, class_field: str | None
) -> LabelFile:
    """Rasterize the features of a layer onto the scene's pixels; each feature is a group."""
    if scene is None:
        raise LabelsError(f"{path} contains georeferenced features: name the scene that they are labels for")
    layer = open_layer(path, driver, layer_name)
    fields = choose_fields(layer, class_field)
    grid = check_grid(layer, scene)
    features = read_near(layer, fields.all, grid)
    texts = as_texts(features.columns[fields.field], fields.field, str(path))
    columns, all_texts = features.columns, texts
    if layer.is_large:  # only a part was read, and the numbers of classes must not depend on it
        columns = read_features(layer, fields.all, geometry=False).columns
        all_texts = as_texts(columns[fields.field], fields.field, str(path))
    style = find_style(path, layer.name, fields.field)
    classes = make_classes(all_texts, fields, columns, style, str(path))
    on_grid = features_to_grid(features.geometries, layer.crs, grid, str(path))
    numbers = np.array([classes.numbers.get(text, 0) for text in texts], dtype=np.int64)  # (features,)
    raster = rasterize(on_grid, numbers, grid.shape)
    _warn_unused(path.name, on_grid, raster, classes.legend, without_class=int((numbers == 0).sum()))
    array, groups = raster.labels, raster.groups
    if scene.lookup is not None:
        array = grid_to_swath(raster.labels, scene.lookup, scene.shape[:2])
        groups = groups_to_swath(raster.groups, raster.labels, array, scene.lookup)
    if not array.any():
        raise LabelsError(_nothing_labelled(layer, on_grid, raster, scene))
    labels = Labels.from_array(array, classes.legend, name=layer_name or path.stem, groups=groups)
    invented = frozenset(classes.legend.labels.tolist()) if classes.invented else frozenset()
    return LabelFile(labels, classes.legend, invented)


def vector_mask(path: Path, driver: str, layer_name: str | None, scene: Scene) -> npt.NDArray[np.bool_]:
    """(rows, columns) pixels of the scene inside any feature of a layer."""
    layer = open_layer(path, driver, layer_name)
    grid = check_grid(layer, scene)
    geometries = read_near(layer, [], grid).geometries
    on_grid = features_to_grid(geometries, layer.crs, grid, str(path))
    inside = rasterize(on_grid, np.ones(geometries.size, dtype=np.int64), grid.shape).labels > 0
    if scene.lookup is not None:  # a swath pixel is inside if most of its grid pixels are
        inside = grid_to_swath(np.where(inside, 1, 2).astype(np.int16), scene.lookup, scene.shape[:2]) == 1
    return np.asarray(inside)


def check_grid(layer: VectorLayer, scene: Scene) -> MapGrid:
    """The grid to rasterize a layer onto; refused if only one of layer and scene has a coordinate system."""
    grid = scene.map_grid
    try:
        CRS.from_user_input(layer.crs or "EPSG:4326")
    except CRSError:
        raise LabelsError(
            f"{layer.path} has a coordinate system that can't be read: assign it again in a GIS"
        ) from None
    if grid.transform is None or (grid.crs is None and layer.crs is not None):
        place = "a local system" if layer.crs is None else crs_name(layer.crs)[:60]
        raise LabelsError(
            f"{layer.path} lies in {place} but scene {scene.name!r} has no coordinate system: give the "
            "scene one, or give a raster of its size"
        )
    if layer.crs is None and grid.crs is not None:
        raise LabelsError(
            f"{layer.path} has no coordinate system but scene {scene.name!r} lies in {crs_name(grid.crs)[:60]}: give "
            "the layer its own (in QGIS: Assign Projection; a shapefile needs its .prj)"
        )
    if layer.crs is None:
        warn_data(
            f"neither {layer.path.name} nor scene {scene.name!r} has a coordinate system: it is assumed to be the same"
        )
    return grid


def read_near(layer: VectorLayer, fields: list[str], grid: MapGrid) -> Features:
    """All features of a layer, or, of a large file, those around the grid."""
    if layer.features == 0:
        raise LabelsError(
            f"layer {layer.name!r} of {layer.path} holds no feature: polygons, lines or points are expected"
        )
    within = bounding_box(grid, layer.crs or "") if layer.is_large else None
    return read_features(layer, fields, within=within)


def describe_vector(path: Path, driver: str, layer_name: str | None) -> dict[str, object]:
    """Format, layers and fields of a vector file, as JSON."""
    about: dict[str, object] = {"format": driver, "layers": (layers := layer_names(path, driver))}
    if layer_name is None and len(layers) > 1:
        return about
    layer = open_layer(path, driver, layer_name)
    return about | {
        "layer": layer.name,
        "geometry": layer.geometry,
        "features": layer.features,
        "fields": list(layer.fields),
        "crs": None if layer.crs is None else crs_name(layer.crs),
    }


def _warn_unused(
    name: str, on_grid: FeaturesOnGrid, raster: RasterizedFeatures, legend: Legend, *, without_class: int
) -> None:
    """Warn of features that were left out or changed."""
    pronoun = "itself" if on_grid.repaired == 1 else "themselves"
    for number, noun, text in (
        (on_grid.without_geometry, "feature", "without a geometry left out"),
        (without_class, "feature", "without a class left out"),
        (on_grid.repaired, "polygon", f"that intersected {pronoun} repaired"),
        (raster.empty, "polygon", "too small to contain the centre of a pixel left out"),
    ):
        if number:
            warn_data(f"{name}: {number:,} {noun}{'' if number == 1 else 's'} {text}")
    if raster.overlaps:
        warn_data(overlap_message(raster.overlaps, legend, "features", name))


def _nothing_labelled(layer: VectorLayer, on_grid: FeaturesOnGrid, raster: RasterizedFeatures, scene: Scene) -> str:
    if on_grid.shapes.size == 0:
        return f"no feature of {layer.path} lies in scene {scene.name!r}: give labels of the same place"
    if raster.overlaps:
        return f"all features of {layer.path} in scene {scene.name!r} overlap with other classes: correct them"
    return (
        f"no feature of {layer.path} labels a pixel of scene {scene.name!r}: those that lie in it have no class or "
        "contain no pixel centre"
    )
