"""Describe a vector file: its layers, fields, coordinate system and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hypercaps.data.labels import Legend
from hypercaps.errors import LabelsError, warn_data
from hypercaps.io.labels.class_field import as_texts, candidate_fields, choose_fields, make_classes
from hypercaps.io.labels.layer import VectorLayer
from hypercaps.io.labels.qml import find_style
from hypercaps.io.labels.regrid import crs_name
from hypercaps.io.labels.vector_file import layer_names, open_layer, read_features

_MOST_VALUES = 20  # of a field that are listed
_COORDINATES = {
    "scene": "x and y in the coordinate system of the scene",
    "pixels": "rows and columns of the scene",
    "default": "longitude and latitude; columns and rows for a scene without a coordinate system",
}


@dataclass(frozen=True)
class VectorDescription:
    facts: dict[str, object]  # as JSON
    legend: Legend = field(default_factory=lambda: Legend(()))
    counts: Mapping[int, int] = field(default_factory=dict)  # features of each label


def describe_vector(path: Path, driver: str, layer_name: str | None, class_field: str | None) -> VectorDescription:
    """Format, layers, fields and classes of a vector file; of several layers only their names."""
    layers = layer_names(path, driver)
    about: dict[str, object] = {"format": driver, "layers": layers}
    if layer_name is None and len(layers) > 1:
        return VectorDescription(about)
    layer = open_layer(path, driver, layer_name)
    about |= {
        "layer": layer.name,
        "geometry": layer.geometry,
        "features": layer.features,
        "fields": list(layer.fields),
        "crs": None if layer.crs is None else crs_name(layer.crs),
    }
    if layer.reference in _COORDINATES:
        about["coordinates"] = _COORDINATES[layer.reference]
    if class_field is not None:
        return _with_classes(layer, class_field, about)
    candidates = candidate_fields(layer)
    if len(candidates) != 1:
        counts = _value_counts(layer, candidates)
        return VectorDescription(about | {"class_field": None, "possible_class_fields": counts})
    try:
        return _with_classes(layer, candidates[0], about)
    except LabelsError as error:
        warn_data(f"classes can't be listed: {error}")
        return VectorDescription(about)


def _value_counts(layer: VectorLayer, names: list[str]) -> list[str]:
    """Fields that could hold the class, such as 'kind (soil 3, tree 5)'."""
    columns = read_features(layer, names, geometry=False).columns if names else {}
    counts = {name: Counter(_shown(value) for value in column.tolist()) for name, column in columns.items()}
    return [
        f"{name} ({', '.join(f'{value} {number:,}' for value, number in sorted(values.items()))})"
        if len(values) <= _MOST_VALUES
        else f"{name} ({len(values):,} different values)"
        for name, values in counts.items()
    ]


def _shown(value: object) -> str:
    text = "" if value is None else str(value)
    return text if text.isprintable() else ascii(text)


def _with_classes(layer: VectorLayer, class_field: str, about: dict[str, object]) -> VectorDescription:
    fields = choose_fields(layer, class_field)
    columns = read_features(layer, fields.all, geometry=False).columns
    texts = as_texts(columns[fields.field], fields.field, str(layer.path))
    classes = make_classes(texts, fields, columns, find_style(layer.path, layer.name, fields.field), str(layer.path))
    numbers = np.bincount([classes.numbers.get(text, 0) for text in texts], minlength=1)
    counts = {entry.label: int(numbers[entry.label]) for entry in classes.legend}
    listed = [
        {"label": e.label, "name": e.name, "color": list(e.color), "features": counts[e.label]} for e in classes.legend
    ]
    facts = about | {"class_field": fields.field, "without_class": int(numbers[0]), "classes": listed}
    return VectorDescription(facts, classes.legend, counts)
