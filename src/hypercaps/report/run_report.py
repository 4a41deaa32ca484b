"""report.html of a run: one page made from the files of the run's folder and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hypercaps.data.json_records import from_json
from hypercaps.data.tiling import thinning
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.io.writers.thumbnails import MapLook, look_at_map, look_at_raster
from hypercaps.report import page, spectra
from hypercaps.report.figure import NO_DATA_COLOR, hex_color
from hypercaps.report.map_pictures import confidence_colors, painted, raster_picture
from hypercaps.report.quicklook import LONGEST_SIDE
from hypercaps.report.signatures import ClassesRecord, ClassRecord
from hypercaps.report.wording import among_labels, both_text, leakage_text, scene_text, split_text

_SET_COLORS = {"test": (204, 204, 204), "val": (230, 159, 0), "train": (0, 114, 178)}  # in drawing order


class RunFolder(NamedTuple):
    """What the report reads of a run."""

    path: Path
    metrics: RunMetrics
    classes: ClassesRecord
    map: MapLook | None  # None: the run has no map

    @staticmethod
    def read(path: Path) -> RunFolder:
        metrics = RunMetrics.from_json(json.loads((path / "metrics.json").read_text(encoding="utf-8")))
        classes = from_json(ClassesRecord, json.loads((path / "classes.json").read_text(encoding="utf-8")))
        map_file = path / "map.tif"
        return RunFolder(path, metrics, classes, look_at_map(map_file, LONGEST_SIDE) if map_file.exists() else None)


def make_report(folder: Path, rasters: Mapping[str, str]) -> str:
    """The page of a run folder whose other files are already written.

    ``rasters`` are the file names of the layers with a one-line description each.
    """
    run = RunFolder.read(folder)
    metrics, classes = run.metrics, run.classes
    both = metrics.both or {}
    return page.render(
        "report",
        title=f"{metrics.scene}: map and scores",
        metrics=metrics,
        scene=classes.scene,
        split_text=split_text(metrics),
        among_labels=among_labels(metrics),
        advice=[scene_text(metrics)] if both else [leakage_text(metrics), scene_text(metrics)],
        both=both,
        both_text=both_text(both) if both else None,
        tested=[_tested_classes(scores) for scores in (metrics, *both.values())],
        wide=classes.scene.cols > 2.5 * classes.scene.rows,
        panels=_make_panels(run),
        rasters={name: about for name, about in rasters.items() if (folder / name).exists()},
        gradient=", ".join(map(hex_color, confidence_colors(np.linspace(0, 1, 9)[None])[0].tolist())),
        no_data_color=hex_color(NO_DATA_COLOR),
        rows=_class_rows(run),
        unsure=_unsure_row(run),
        hectares=run.map is not None and run.map.hectares is not None,
        split_png=_split_picture(run),
        set_colors={name: hex_color(color) for name, color in _SET_COLORS.items()},
        curves=(folder / "curves.png").read_bytes(),
        reliability=(folder / "reliability.png").read_bytes(),
        spectra=spectra.draw_spectra(classes),
        explained=any(entry.share is not None for entry in classes.classes),
        axis=spectra.make_axis(classes),
        python=_python_code(metrics),
    )


class Panel(NamedTuple):
    """A picture of the whole scene."""

    title: str
    caption: str | None
    png: bytes


def _make_panels(run: RunFolder) -> list[Panel]:
    folder = run.path
    panels = [
        Panel("Scene", run.classes.scene.picture, (folder / "scene.png").read_bytes()),
        Panel("Ground truth", "all labelled pixels", (folder / "labels.png").read_bytes()),
    ]
    if run.map is not None:
        confidence = look_at_raster(folder / "confidence.tif", LONGEST_SIDE)
        panels += [
            Panel("Map", "predicted class of each pixel", raster_picture(painted(run.map.classes, run.map.colors))),
            Panel("Confidence", None, raster_picture(confidence_colors(confidence))),
        ]
    return panels


def _split_picture(run: RunFolder) -> bytes:
    """Training, validation and test pixels; in a large scene, training hides validation, and that hides test."""
    rows, cols = run.classes.scene.rows, run.classes.scene.cols
    step = thinning((rows, cols), LONGEST_SIDE)
    picture = np.full((-(-rows // step), -(-cols // step), 3), NO_DATA_COLOR, dtype=np.uint8)
    with np.load(run.path / "split.npz", allow_pickle=False) as split:
        for name, color in _SET_COLORS.items():
            r, c = np.divmod(split[name], cols)
            picture[r // step, c // step] = color
    return raster_picture(picture)


class Area(NamedTuple):
    """How much of the map a class covers."""

    pixels: int
    share: float  # of the classified pixels, in percent
    hectares: float | None  # None: the map has no grid in metres


class ClassRow(NamedTuple):
    """A row of the table of classes."""

    entry: ClassRecord
    producers: float | None  # producer's accuracy in percent; None: no test pixel
    users: float | None  # user's accuracy in percent; None: no test pixel was given to the class
    area: Area | None  # None: the run has no map


class UnsureRow(NamedTuple):
    """Pixels below the threshold of ``--reject``."""

    color: str
    area: Area


def _class_rows(run: RunFolder) -> list[ClassRow]:
    confusion = np.asarray(run.metrics.confusion)  # (n, n)
    predicted = confusion.sum(axis=0)
    rows = []
    for i, (score, entry) in enumerate(zip(run.metrics.per_class, run.classes.classes, strict=True)):
        users = 100 * confusion[i, i] / predicted[i] if predicted[i] else None
        area = None if run.map is None else _area(run.map, entry.label)
        rows.append(ClassRow(entry, score.accuracy, users, area))
    return rows


def _unsure_row(run: RunFolder) -> UnsureRow | None:
    """Of a map with ``--reject``; unsure is the only value of such a map that is no class."""
    if run.map is None or run.metrics.reject is None:
        return None
    [label] = set(run.map.colors) - {entry.label for entry in run.classes.classes} - {0}
    return UnsureRow(hex_color(run.map.colors[label]), _area(run.map, label))


def _area(of_map: MapLook, label: int) -> Area:
    pixels = of_map.counts[label]
    mapped = sum(of_map.counts.values()) - of_map.counts[0]
    hectares = None if of_map.hectares is None else pixels * of_map.hectares
    return Area(pixels, 100 * pixels / mapped if mapped else 0.0, hectares)


def _tested_classes(metrics: RunMetrics) -> int:
    return sum(row.accuracy is not None for row in metrics.per_class)


def _python_code(metrics: RunMetrics) -> str:
    """The same run in Python."""
    params = ", ".join(f"{name}={value!r}" for name, value in (metrics.params or {}).items())
    own_split = metrics.split in ("file", "given")
    opened = 'split = open_split("split.npz", labels)\n' if own_split else ""
    return (
        f"from hypercaps import ConvCapsClassifier, open_labels, open_scene{', open_split' if own_split else ''}\n"
        "scene = open_scene(...)  # the same scene\n"
        f"labels = open_labels(..., scene=scene)\n{opened}"
        f"ConvCapsClassifier({params}).fit(scene, labels{', split' if own_split else ''})"
    )
