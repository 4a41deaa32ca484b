"""Doubtful labels of a run: doubtful.json and the drawings of their spectra."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hypercaps.data.json_records import from_json
from hypercaps.report.signatures import ClassesRecord, ClassRecord
from hypercaps.report.spectra import BandAxis, to_height


@dataclass(frozen=True)
class DoubtfulRecord:
    """A label in doubtful.json."""

    rank: int  # from 1, the most doubtful first
    row: int  # from 0
    col: int
    label: int
    name: str
    predicted_label: int
    predicted: str
    doubt: float  # probability of the predicted class minus that of the given one, 0 to 1
    spectrum: list[float]  # of the pixel, with the bands of classes.json


@dataclass(frozen=True)
class ClassLine:
    """The mean of a class in the drawing of a pixel."""

    entry: ClassRecord
    path: str  # "": the class has no labelled pixel


@dataclass(frozen=True)
class DoubtfulDrawing:
    """A doubtful label: its record, and the paths of its spectrum and of the two classes."""

    record: DoubtfulRecord
    pixel: str
    given: ClassLine
    predicted: ClassLine


def read_doubtful(file: Path) -> list[DoubtfulRecord]:
    """The content of doubtful.json; empty if the run has none."""
    if not file.exists():
        return []
    return from_json(list[DoubtfulRecord], json.loads(file.read_text(encoding="utf-8")))


def draw_doubtful(records: list[DoubtfulRecord], classes: ClassesRecord) -> list[DoubtfulDrawing]:
    """The spectrum of each pixel over the means of its given and its predicted class."""
    axis = BandAxis.of(classes)
    entries = {entry.label: entry for entry in classes.classes}
    drawings = []
    for record in records:
        both = entries[record.label], entries[record.predicted_label]
        curves = [record.spectrum, *(entry.spectrum for entry in both if entry.spectrum is not None)]
        paths = [axis.line(y) for y in to_height(np.array(curves))]
        pixel, means = paths[0], iter(paths[1:])
        given, predicted = (ClassLine(entry, "" if entry.spectrum is None else next(means)) for entry in both)
        drawings.append(DoubtfulDrawing(record, pixel, given, predicted))
    return drawings
