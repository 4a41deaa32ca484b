"""report.html of a run: one page made from the files of the run's folder and from nothing else."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hypercaps.data.colors import NO_DATA_COLOR
from hypercaps.data.json_records import from_json
from hypercaps.data.tiling import thinning
from hypercaps.inference.metrics import ClassScore
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.io.writers.thumbnails import MapLook, look_at_map, look_at_raster
from hypercaps.report import comparison, page, spectra, wording
from hypercaps.report.doubtful import draw_doubtful, read_doubtful
from hypercaps.report.figure import hex_color
from hypercaps.report.label_picture import dot_side
from hypercaps.report.map_pictures import confidence_colors, painted, raster_picture
from hypercaps.report.python_code import python_code
from hypercaps.report.quicklook import LONGEST_SIDE
from hypercaps.report.signatures import ClassesRecord, ClassRecord, SceneRecord
from hypercaps.report.split_picture import split_picture


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
    return page.render(
        "report",
        title=f"{metrics.scene}: map and scores" if metrics.oa is not None else f"{metrics.scene}: map",
        metrics=metrics,
        scene=classes.scene,
        **_accuracy_content(metrics),
        wide=classes.scene.cols > 2.5 * classes.scene.rows,
        panels=_make_panels(run),
        rasters={name: about for name, about in rasters.items() if (folder / name).exists()},
        gradient=", ".join(map(hex_color, confidence_colors(np.linspace(0, 1, 9)[None])[0].tolist())),
        no_data_color=hex_color(NO_DATA_COLOR),
        rows=_class_rows(run),
        class_colors={entry.label: entry.color for entry in classes.classes},
        marked=_marked_rows(run),
        hectares=run.map is not None and run.map.hectares is not None,
        split=split_picture(folder / "split.npz", classes.scene, metrics.split),
        curves=_picture(folder / "curves.png"),
        reliability=_picture(folder / "reliability.png"),
        spectra=spectra.draw_spectra(classes),
        explained=any(entry.share is not None for entry in classes.classes),
        axis=spectra.make_axis(classes),
        doubtful=draw_doubtful(read_doubtful(folder / "doubtful.json"), classes),
        doubtful_files=[name for name in ("doubtful.gpkg", "doubtful.csv") if (folder / name).exists()],
        python=python_code(metrics),
        epochs_text=wording.epochs_text(metrics, _second_epochs(folder / "history.csv")),
    )


def _accuracy_content(metrics: RunMetrics) -> dict[str, object]:
    """The sentences around the scores, and the comparisons."""
    both = metrics.both or {}
    return {
        "is_folds": metrics.split == "folds",
        "tested_pixels": "held-out pixels" if metrics.split == "folds" else "test pixels",
        "intervals": any(row.interval is not None for row in metrics.per_class),
        "sample_text": wording.sample_text(metrics) if metrics.split == "folds" else None,
        "split_text": wording.split_text(metrics),
        "unscored_text": wording.unscored_text(metrics),
        "too_few_text": wording.too_few_text(metrics),
        "untested_text": wording.untested_text(metrics),
        "map_accuracy_text": wording.map_accuracy_text(metrics),
        "one_area_text": wording.one_area_text(metrics),
        "partly_seen_text": wording.partly_seen_text(metrics),
        "tested_share_text": wording.tested_share_text(metrics),
        "question_text": wording.question_text(metrics),
        "baseline_text": comparison.baseline_text(metrics),
        "calibration_text": wording.calibration_text(metrics),
        "contradiction_text": wording.contradiction_text(metrics),
        "unknown_text": wording.unknown_text(metrics),
        "compared_text": comparison.compared_text(metrics.candidates),
        "unit_names": wording.unit_names(metrics),
        "counts_areas": wording.counts_areas(metrics),
        "candidates": comparison.ranked(metrics.candidates),
        "among_labels": wording.among_labels(metrics),
        "advice": [] if both else [wording.leakage_text(metrics), wording.scene_text(metrics)],  # both_text has them
        "both": both,
        "both_text": wording.both_text(both) if both else None,
        "tested": [_tested_classes(scores) for scores in (metrics, *both.values())],
    }


def _second_epochs(history: Path) -> int:
    """Number of epochs of the second of two networks; 0: one was trained."""
    if not history.exists():
        return 0
    with history.open(newline="", encoding="utf-8") as file:
        return sum(row["stage"] == "2" for row in csv.DictReader(file))


def _picture(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


class Panel(NamedTuple):
    """A picture of the whole scene."""

    title: str
    caption: str | None
    png: bytes


def _make_panels(run: RunFolder) -> list[Panel]:
    folder = run.path
    panels = [
        Panel("Scene", run.classes.scene.picture, (folder / "scene.png").read_bytes()),
        Panel("Ground truth", _labels_caption(run.classes.scene), (folder / "labels.png").read_bytes()),
    ]
    if run.map is not None:
        confidence = look_at_raster(folder / "confidence.tif", LONGEST_SIDE)
        panels += [
            Panel("Map", "predicted class of each pixel", raster_picture(painted(run.map.classes, run.map.colors))),
            Panel("Confidence", None, raster_picture(confidence_colors(confidence))),
        ]
        if (folder / "familiarity.tif").exists():
            familiarity = look_at_raster(folder / "familiarity.tif", LONGEST_SIDE)
            panels.append(
                Panel("Familiarity", "dark: unlike any label", raster_picture(confidence_colors(familiarity)))
            )
    return panels


def _labels_caption(scene: SceneRecord) -> str:
    step = thinning((scene.rows, scene.cols), LONGEST_SIDE)
    larger = dot_side((scene.rows // step, scene.cols // step)) > 1
    return "all labelled pixels, single ones drawn larger" if larger else "all labelled pixels"


class Area(NamedTuple):
    """How much of the map a class covers."""

    pixels: int
    share: float  # of the classified pixels, in percent
    hectares: float | None  # None: the map has no grid in metres


class ClassRow(NamedTuple):
    """A row of the table of classes."""

    entry: ClassRecord
    score: ClassScore | None  # None: nothing was scored
    tested: bool
    users: float | None  # user's accuracy in percent; None: not tested, or no test pixel was given to the class
    area: Area | None  # None: the run has no map

    @property
    def labelled(self) -> int:
        """Labelled pixels, whichever sets they are in."""
        return self.entry.train + self.entry.val + self.entry.test


class MarkedRow(NamedTuple):
    """Pixels of a map that have no class of the legend: those below ``--reject`` or ``--unknown``."""

    name: str
    meaning: str
    color: str
    area: Area


def _class_rows(run: RunFolder) -> list[ClassRow]:
    metrics = run.metrics
    confusion = np.asarray(metrics.confusion)  # (n, n), or empty if nothing was scored
    scores = {row.label: (i, row) for i, row in enumerate(metrics.per_class)} if metrics.oa is not None else {}
    rows = []
    for entry in run.classes.classes:
        area = None if run.map is None else _area(run.map, entry.label)
        if entry.label not in scores:
            rows.append(ClassRow(entry, None, False, None, area))
            continue
        i, score = scores[entry.label]
        predicted, held_out = confusion[:, i].sum(), entry.name not in metrics.untested
        # Of a class that is never held out, all pixels given to it are errors, whatever its true user's accuracy.
        users = 100 * confusion[i, i] / predicted if predicted and held_out else None
        rows.append(ClassRow(entry, score, held_out and score.accuracy is not None, users, area))
    return rows


def _marked_rows(run: RunFolder) -> list[MarkedRow]:
    if run.map is None:
        return []
    reject, unknown = run.metrics.reject, run.metrics.unknown
    meanings = {"unsure": f"confidence below {reject}", "unknown": f"familiarity below {unknown}"}
    names = [name for name, value in (("unsure", reject), ("unknown", unknown)) if value is not None]
    classes = {entry.label for entry in run.classes.classes}
    marked = {name: label for label, name in run.map.names.items() if label not in classes}
    return [
        MarkedRow(name, meanings[name], hex_color(run.map.colors[marked[name]]), _area(run.map, marked[name]))
        for name in names
    ]


def _area(of_map: MapLook, label: int) -> Area:
    pixels = of_map.counts[label]
    mapped = sum(of_map.counts.values()) - of_map.counts[0]
    hectares = None if of_map.hectares is None else pixels * of_map.hectares
    return Area(pixels, 100 * pixels / mapped if mapped else 0.0, hectares)


def _tested_classes(metrics: RunMetrics) -> int:
    return sum(row.accuracy is not None for row in metrics.per_class)
