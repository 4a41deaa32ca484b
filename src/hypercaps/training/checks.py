"""Checks of the input of a training or evaluation, before any work starts."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.data.splits import WITHOUT_TEST, Split
from hypercaps.errors import LabelsError, ModelError, SceneError, SplitError, warn_data

if TYPE_CHECKING:  # imports torch, and options are checked before that
    from hypercaps.models.registry import Method


def as_scene(value: object) -> Scene:
    """A scene; an array (rows, columns, bands), of NumPy or xarray, as one."""
    if isinstance(value, Scene):
        return value
    if isinstance(value, str | Path):
        raise SceneError(f"a Scene or an array is expected and a name came: open it first, open_scene({str(value)!r})")
    if not _is_array(value):
        raise SceneError(
            f"a Scene or an array (rows, columns, bands) is expected and {type(value).__name__} came: use open_scene "
            "for files, Scene.from_array for other data"
        )
    if len(shape := tuple(getattr(value, "shape", ()))) == 2:
        raise SceneError(
            f"a scene is an array (rows, columns, bands), but a table of shape {shape} came: give the whole cube, "
            "or the places of pixels to hypercaps.sklearn.PixelClassifier"
        )
    return Scene.from_array(value)


def as_labels(value: object) -> Labels:
    """Labels; an array (rows, columns) of class numbers as such."""
    if isinstance(value, Labels):
        return value
    if isinstance(value, str | Path):
        raise LabelsError(
            f"Labels or an array are expected and a name came: open it first, open_labels({str(value)!r})"
        )
    if not _is_array(value):
        raise LabelsError(
            f"Labels or an array (rows, columns) of class numbers are expected and {type(value).__name__} came: use "
            "open_labels for files, Labels.from_array for other data"
        )
    return Labels.from_array(value)  # type: ignore[arg-type]


def _is_array(value: object) -> bool:
    """Also of xarray, h5py, torch and others."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def compare_names(ours: Legend, models: Legend) -> None:
    """Warn where a class number has one name in the labels and another in the model, or only the model has names."""
    names = {entry.label: entry.name for entry in models if entry.is_named}
    if names and not any(entry.is_named for entry in ours):
        meant = ", ".join(f"{entry.label} as {names[entry.label]}" for entry in ours if entry.label in names)
        warn_data(f"the labels have numbers but no names: their classes are compared by number, {meant}")
    different = [
        f"{entry.label} is {entry.name} in the labels and {names[entry.label]} in the model"
        for entry in ours
        if entry.is_named and names.get(entry.label, entry.name) != entry.name
    ]
    if different:
        warn_data(
            f"classes are compared by number, and some have other names: {'; '.join(different)} (open_labels takes the "
            "model's legend to go by names)"
        )


def warn_of_similar_names(legend: Legend) -> None:
    """Warn of classes whose names differ in case or spaces only, such as Tree and tree."""
    by_name: dict[str, list[str]] = {}
    for entry in legend:
        by_name.setdefault(" ".join(entry.name.split()).casefold(), []).append(entry.name)
    for names in by_name.values():
        if len(names) > 1:
            warn_data(f"{' and '.join(map(repr, names))} are classes of their own: rename one if they are the same")


def check_enough(scene: Scene, labels: Labels, method: Method, patch: int) -> None:
    """Refuse labels of a single class, and a scene that is smaller than a patch."""
    if len(labels.legend) < 2:
        raise LabelsError(
            f"labels {labels.name!r} hold one class only, {labels.legend.entries[0].name}: two or more are needed, "
            "numbered from 1 up, because 0 means unlabelled"
        )
    if patch > min(scene.rows, scene.cols):
        raise ModelError(
            f"method {method.name} looks at patches of {patch} x {patch} pixels but scene {scene.name!r} has "
            f"{scene.rows} x {scene.cols}: take a method that looks at less, or a smaller patch where it allows one"
        )


def as_int(name: str, value: Any, least: int) -> int:
    """A parameter as a Python int (numpy integers too), because it may be written to a model file."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ModelError(f"{name} is {value!r}: a whole number of {least} or more is expected")
    return number


def check_split(split: Split, labels: Labels) -> None:
    """Refuse a split that does not belong to these labels, or that has no training pixel of a class."""
    if split.shape != labels.shape:
        raise SplitError(f"the split is for {split.shape} pixels but the labels have {labels.shape}")
    flat = labels.array.ravel()
    for name, indices in (("training", split.train), ("validation", split.val), ("test", split.test)):
        if (flat[indices] == 0).any():
            raise SplitError(
                f"some {name} pixels of the split are unlabelled or invalid in {labels.name!r}: it belongs to "
                "other labels, or the scene holds NaN, infinity, nodata or absurd values there"
            )
    if split.test.size == 0 and split.kind not in WITHOUT_TEST:
        raise SplitError("the split has no test pixel: without one the accuracy of the map is unknown")
    trained = set(np.unique(flat[split.train]).tolist())
    missing = [entry.name for entry in labels.legend if entry.label not in trained]
    if missing:
        raise SplitError(f"the split has no training pixel of {', '.join(missing)}: give at least one of each")
