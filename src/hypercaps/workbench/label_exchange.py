"""Labels in and out: strokes as groups of pixels, files of every format, and classes matched with the current ones."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits.polygons import connected_areas
from hypercaps.errors import DataWarning, HypercapsError
from hypercaps.io.open import open_labels
from hypercaps.io.writers.label_files import SUFFIXES, write_labels
from hypercaps.workbench import class_list
from hypercaps.workbench.class_list import Classes
from hypercaps.workbench.label_store import Snapshot
from hypercaps.workbench.refusals import RefusedError, not_found

_BY_OPTION = "name one with --class-field (class_field in Python; docs/labels.md)"
_IN_PAGE = "type one into the box below the file"
FORMATS = tuple(suffix[1:] for suffix in SUFFIXES)
_READ = (
    *(".gpkg", ".geojson", ".json", ".shp", ".zip", ".kml", ".kmz", ".csv", ".tsv", ".fgb", ".tif", ".tiff", ".img"),
    *(".dat", ".png", ".npy", ".npz", ".mat", ".h5", ".nc"),
)


def labels_of(snapshot: Snapshot, name: str = "labels") -> Labels:
    """The labels of a moment; pixels that touch, or belong to one stroke, are one group."""
    if not snapshot.labels.any():
        raise RefusedError("nothing is labelled yet: paint at least two classes", 409)
    array = snapshot.labels.astype(np.int16)
    groups = _joined(connected_areas(array), snapshot.strokes, array)
    return Labels.from_array(array, class_list.legend_of(snapshot.classes), name=name, groups=groups)


def _joined(
    areas: npt.NDArray[np.int32], strokes: npt.NDArray[np.int32], array: npt.NDArray[np.int16]
) -> npt.NDArray[np.int32]:
    """(rows, columns) groups: areas of one class, of which those that share a stroke are one."""
    labelled = areas > 0
    _, area = np.unique(areas[labelled], return_inverse=True)
    of_stroke = np.stack([strokes[labelled], array[labelled].astype(np.int32)], axis=1)
    _, stroke = np.unique(of_stroke, axis=0, return_inverse=True)
    stroke = stroke.ravel() + area.max() + 1
    nodes = int(stroke.max()) + 1
    links = coo_array((np.ones(area.size, dtype=bool), (area, stroke)), shape=(nodes, nodes))
    _, group = connected_components(links, directed=False)
    groups = np.zeros(areas.shape, dtype=np.int32)
    groups[labelled] = group[area] + 1
    return groups


def exported(snapshot: Snapshot, scene: Scene, kind: str) -> bytes:
    """The content of a label file."""
    if kind not in FORMATS:
        raise not_found(f"format {kind[:10]!r}")
    with tempfile.TemporaryDirectory(prefix="hypercaps-") as folder:
        path = Path(folder) / f"labels.{kind}"
        write_labels(path, labels_of(snapshot), scene)
        return path.read_bytes()


@dataclass(frozen=True, eq=False)
class Imported:
    """Labels of a file, ready to be taken over."""

    labels: npt.NDArray[np.uint8]  # (rows, columns), with the current labels where the file has none
    strokes: npt.NDArray[np.int32]
    classes: Classes
    pixels: int
    messages: list[str]


@contextmanager
def upload_folder(project: Path, name: str) -> Iterator[Path]:
    """A place for an uploaded file of this name, which is deleted at the end."""
    suffix = Path(name).suffix.lower()
    if suffix not in _READ:
        raise RefusedError(
            f"{name[:80]!r} is no label file that can be read: its name should end in {', '.join(_READ)}"
        )
    folder = Path(tempfile.mkdtemp(prefix=".upload-", dir=project))
    try:
        yield folder / f"labels{suffix}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_upload(path: Path, name: str, scene: Scene, class_field: str | None, now: Snapshot) -> Imported:
    """The labels of an uploaded file, in which messages name it as the user does."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        legend = class_list.legend_of(now.classes) if now.classes else None
        try:
            labels = open_labels(path, scene=scene, class_field=class_field, legend=legend)
            labels.check_fits(scene)
            labels = labels.where_valid(scene)
        except HypercapsError as error:
            text = str(error).replace(str(path), name).replace(path.name, name)
            raise RefusedError(text.replace(_BY_OPTION, _IN_PAGE)) from error
    messages = [str(one.message).replace(path.name, name) for one in caught if issubclass(one.category, DataWarning)]
    return merged(labels, now, messages)


def merged(labels: Labels, now: Snapshot, messages: list[str] | None = None) -> Imported:
    """Labels of a file on top of the current ones; a locked class keeps its pixels."""
    classes, numbers = _matched(labels, now.classes)
    table = np.zeros(int(labels.array.max()) + 1, dtype=np.uint8)
    for label, number in numbers.items():
        table[label] = number
    new = table[labels.array]  # (rows, columns)
    locked = np.zeros(256, dtype=bool)
    locked[[one.id for one in now.classes if one.locked]] = True
    taken = (new > 0) & ~locked[now.labels]
    groups = connected_areas(labels.array) if labels.groups is None else labels.groups
    last = int(now.strokes.max(initial=0))
    strokes = np.where(taken, groups + last, now.strokes).astype(np.int32)
    return Imported(np.where(taken, new, now.labels), strokes, classes, int(taken.sum()), messages or [])


def _matched(labels: Labels, classes: Classes) -> tuple[Classes, dict[int, int]]:
    """The classes with those of a file added, and the number of each class of the file among them."""
    by_name = {one.name.casefold(): one.id for one in classes}
    numbers: dict[int, int] = {}
    for entry in labels.legend:
        known = {one.id for one in classes}
        if entry.name.casefold() in by_name:
            numbers[entry.label] = by_name[entry.name.casefold()]
        elif entry.label in known and not entry.is_named:
            numbers[entry.label] = entry.label
        else:
            free = entry.label if entry.label <= class_list.MOST and entry.label not in known else None
            color = f"#{bytes(entry.color).hex()}"
            reserved = [one.label for one in labels.legend if one.label <= class_list.MOST]
            added = class_list.new_class(classes, entry.name, color, reserved if free is None else (), free)
            classes = tuple(sorted((*classes, added), key=lambda one: one.id))
            numbers[entry.label] = added.id
    return classes, numbers
