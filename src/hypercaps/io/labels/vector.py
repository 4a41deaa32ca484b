"""Labels from polygons, lines and points: a vector layer, its class field, and the scene to rasterize it onto."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from hypercaps.data.grid import Lookup
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import LabelsError, warn_data
from hypercaps.io.labels.class_field import Classes, ClassFields, as_texts, choose_fields, make_classes
from hypercaps.io.labels.fates import Fate, Fates, fates_message, features_noun
from hypercaps.io.labels.layer import Features, VectorLayer
from hypercaps.io.labels.merge import LabelFile, overlap_message
from hypercaps.io.labels.misplaced import likely_mistake
from hypercaps.io.labels.placing import Placement, extents_text, placed_features
from hypercaps.io.labels.qml import find_style
from hypercaps.io.labels.rasterize import RasterizedFeatures, features_to_grid, rasterize
from hypercaps.io.labels.regrid import crs_name, grid_to_swath, groups_to_swath
from hypercaps.io.labels.vector_file import open_layer, read_features


def vector_labels(
    path: Path, driver: str, layer_name: str | None, *, scene: Scene | None, class_field: str | None
) -> LabelFile:
    """Rasterize the features of a layer onto the valid pixels of a scene; each feature is a group."""
    if scene is None:
        raise LabelsError(f"{path} contains georeferenced features: name the scene that they are labels for")
    layer = open_layer(path, driver, layer_name, prefer_pixels=scene.map_grid.transform is None)
    fields = choose_fields(layer, class_field)
    features, placement = placed_features(layer, fields.all, scene)
    classes = _classes(layer, fields, features)
    texts = as_texts(features.columns[fields.field], fields.field, str(path))
    numbers = np.array([classes.numbers.get(text, 0) for text in texts], dtype=np.int64)  # (features,)
    on_grid = features_to_grid(features.geometries, placement.crs, placement.grid, str(path))
    raster = rasterize(on_grid, numbers, placement.grid.shape)
    if on_grid.repaired:
        which = "polygon that intersected itself" if on_grid.repaired == 1 else "polygons that intersected themselves"
        warn_data(f"{path.name}: {on_grid.repaired:,} {which} repaired")
    if raster.overlaps:
        warn_data(overlap_message(raster.overlaps, classes.legend, "features", path.name))
    if placement.lookup is not None:
        raster = _in_swath(raster, placement.lookup, scene.shape[:2])
    unread = layer.count - features.geometries.size
    if not raster.labels.any():
        if (raster.fates == Fate.OUTSIDE).all():
            raise LabelsError(_all_elsewhere(layer, features, placement, scene))
        raise LabelsError(_nothing_labelled(layer, features, raster, unread, scene))
    labels = Labels.from_array(raster.labels, classes.legend, name=layer_name or path.stem, groups=raster.groups)
    labels = _where_valid(path.name, labels, scene, features, raster.fates, unread)
    invented = frozenset(classes.legend.labels.tolist()) if classes.invented else frozenset()
    return LabelFile(labels, classes.legend, invented)


def _classes(layer: VectorLayer, fields: ClassFields, features: Features) -> Classes:
    """The classes of all features of a layer, also of those that were not read: their numbers depend on all names."""
    columns = read_features(layer, fields.all, geometry=False).columns if layer.is_large else features.columns
    texts = as_texts(columns[fields.field], fields.field, str(layer.path))
    style = find_style(layer.path, layer.name, fields.field)
    return make_classes(texts, fields, columns, style, str(layer.path))


def _in_swath(raster: RasterizedFeatures, lookup: Lookup, shape: tuple[int, int]) -> RasterizedFeatures:
    """Transfer features from a map grid to the pixels of a swath."""
    labels = grid_to_swath(raster.labels, lookup, shape)
    groups = groups_to_swath(raster.groups, raster.labels, labels, lookup)
    fates = raster.fates.copy()
    fates[(fates == Fate.USED) & ~_has_pixels(groups, fates.size)] = Fate.COVERED  # in the minority in its pixel
    fates[(fates == Fate.COVERED) & ~_has_pixels(raster.groups[lookup.rows >= 0], fates.size)] = Fate.OUTSIDE
    return RasterizedFeatures(labels, groups, raster.overlaps, fates)


def _has_pixels(groups: npt.NDArray[np.int32], features: int) -> npt.NDArray[np.bool_]:
    """(features,) whether each has a pixel."""
    return np.bincount(groups.ravel(), minlength=features + 1)[1:] > 0


def _where_valid(name: str, labels: Labels, scene: Scene, features: Features, fates: Fates, unread: int) -> Labels:
    """The labels on valid pixels; a warning counts the features that are not used."""
    # The warning below says the same of points, whose pixels are one each.
    valid = labels.where_valid(scene, warn=features_noun(features.geometries) != "points")
    assert valid.groups is not None
    fates = np.where((fates == Fate.USED) & ~_has_pixels(valid.groups, fates.size), np.int8(Fate.ON_NODATA), fates)
    if unread or (fates != Fate.USED).any():
        warn_data(f"{name}: {fates_message(features.geometries, fates, unread)}")
    return valid


def _all_elsewhere(layer: VectorLayer, features: Features, placement: Placement, scene: Scene) -> str:
    hint = likely_mistake(features.geometries, placement.crs, placement.grid)
    if not hint and layer.reference == "scene" and scene.map_grid.crs is not None:
        system = crs_name(scene.map_grid.crs)[:60]
        hint = f"; x and y are taken in its system, {system}; name the columns lon and lat if they are degrees"
    where = extents_text(features, placement)
    return f"no feature of {layer.path} lies in scene {scene.name!r}: give labels of the same place{where}{hint}"


def _nothing_labelled(
    layer: VectorLayer, features: Features, raster: RasterizedFeatures, unread: int, scene: Scene
) -> str:
    counts = fates_message(features.geometries, raster.fates, unread)
    place = f"scene {scene.name!r}"
    if raster.overlaps:
        return f"all features of {layer.path} in {place} overlap with other classes: correct them ({counts})"
    return f"no feature of {layer.path} labels a pixel of {place}: give others ({counts})"


def vector_mask(path: Path, driver: str, layer_name: str | None, scene: Scene) -> npt.NDArray[np.bool_]:
    """(rows, columns) pixels of the scene inside any feature of a layer."""
    layer = open_layer(path, driver, layer_name, prefer_pixels=scene.map_grid.transform is None)
    features, placement = placed_features(layer, [], scene)
    on_grid = features_to_grid(features.geometries, placement.crs, placement.grid, str(path))
    classes = np.ones(features.geometries.size, dtype=np.int64)
    inside = rasterize(on_grid, classes, placement.grid.shape).labels > 0
    if placement.lookup is not None:  # a swath pixel is inside if most of its grid pixels are
        inside = grid_to_swath(np.where(inside, 1, 2).astype(np.int16), placement.lookup, scene.shape[:2]) == 1
    return np.asarray(inside)
