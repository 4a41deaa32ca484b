"""The trainings of a project: for each a folder with its labels, its model, its map and its scores."""

from __future__ import annotations

import json
import re
import shutil
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.io.writers.atomic import write_json
from hypercaps.workbench import class_list
from hypercaps.workbench.label_store import Snapshot
from hypercaps.workbench.map_store import CLASS, Bytes3, open_map
from hypercaps.workbench.raster_file import read_raster, write_raster
from hypercaps.workbench.refusals import RefusedError, not_found
from hypercaps.workbench.spans import Flat
from hypercaps.workbench.worker_messages import Settings

_IN_FULL = 3  # trainings whose scores are sent in full with each state
_KEPT_AUTO = 20  # trainings that started by themselves
_RECORD, _LABELS, _CURRENT = "training.json", "labels.npz", "current.json"
MODEL, HELD_OUT, DOUBTFUL, SUGGESTIONS = "model.safetensors", "held-out.npz", "doubtful.json", "suggestions.json"


@dataclass(frozen=True)
class Training:
    """What is known of a training."""

    id: str
    time: str  # ISO 8601
    settings: Settings
    labels_version: int
    labels_count: int
    classes: tuple[class_list.ClassRecord, ...]
    labels_file: str = ""  # in its folder, for the command
    auto: bool = False  # it has started by itself
    seconds: float | None = None  # until the map was there
    score: dict[str, Any] | None = None
    has_map: bool = False  # the whole scene is mapped
    complete: bool = False  # and scored, or there is nothing to score

    def describe(self, *, in_full: bool = True) -> dict[str, Any]:
        """A row of the page's history; not ``in_full``, its score has no confusion matrix and no classes."""
        score = self.score
        if score is not None and not in_full:
            score = {**score, "classes": [], "confusion": None, "reliability": None, "notes": []}
        return {
            "id": self.id,
            "time": self.time,
            "method": self.settings.method,
            "recipe": self.settings.recipe,
            "split": self.settings.split,
            "labels": {"version": self.labels_version, "count": self.labels_count},
            "seconds": self.seconds,
            "score": score,
            "auto": self.auto,
            "mapped": self.has_map,
            "complete": self.complete,
        }


class Trainings:
    """All trainings of a project, in the order in which they were started."""

    def __init__(self, folder: Path, shape: tuple[int, int]) -> None:
        self.folder, self._shape = folder, shape
        self._lock = threading.RLock()
        self._all: dict[str, Training] = {}
        self.unreadable: list[str] = []
        for path in sorted(folder.glob(f"t*/{_RECORD}")):
            try:
                training = _read(path)
                if training.has_map:
                    self._all[training.id] = training
                else:  # the server was killed while it was trained
                    shutil.rmtree(path.parent, ignore_errors=True)
            except (ValueError, KeyError, TypeError, OSError):
                self.unreadable.append(path.parent.name)
        self.current = self._read_current()

    def new_folder(self) -> tuple[str, Path]:
        """The number of a new training, and its folder."""
        with self._lock:
            taken = [int(path.name[1:]) for path in self.folder.glob("t*") if re.fullmatch(r"t\d+", path.name)]
            number = f"t{max(taken, default=0) + 1:04}"
            (self.folder / number).mkdir()
            return number, self.folder / number

    def add(self, training: Training, labels: Snapshot) -> None:
        write_raster(self.folder / training.id / _LABELS, labels.labels, labels.strokes)
        self.save(training)

    def save(self, training: Training) -> None:
        with self._lock:
            self._all[training.id] = training
            row = asdict(training)
            write_json(self.folder / training.id / _RECORD, row)

    def change(self, number: str, **changes: Any) -> Training:
        with self._lock:
            changed = replace(self.get(number), **changes)
            self.save(changed)
            return changed

    def prune(self) -> None:
        """Remove the oldest trainings that started by themselves: an hour of painting makes hundreds."""
        with self._lock:
            old = [one for one in self._all.values() if one.auto and one.id != self.current][:-_KEPT_AUTO]
            for one in old:
                self.forget(one.id)
                shutil.rmtree(self.folder / one.id, ignore_errors=True)

    def forget(self, number: str) -> None:
        """Leave out a training that failed or was cancelled before it had a map."""
        with self._lock:
            self._all.pop(number, None)

    def get(self, number: str) -> Training:
        with self._lock:
            if number not in self._all:
                raise not_found(f"training {number[:20]!r}")
            return self._all[number]

    def describe(self) -> list[dict[str, Any]]:
        with self._lock:
            shown = [one for one in self._all.values() if one.has_map]
            latest = {self.current, *(one.id for one in shown[-_IN_FULL:])}
            return [one.describe(in_full=one.id in latest) for one in shown]

    def path(self, number: str, file: str) -> Path:
        return self.folder / self.get(number).id / file

    # ---- the one that is shown ---------------------------------------------------------------------------------------

    def show(self, number: str) -> None:
        with self._lock:
            if not self.get(number).has_map:
                raise RefusedError("this training has no map", 409)
            self.current = number
            write_json(self.folder / _CURRENT, {"current": number})

    def _read_current(self) -> str | None:
        kept = read_json(self.folder / _CURRENT)
        number = kept.get("current") if isinstance(kept, dict) else None
        with_map = [one.id for one in self._all.values() if one.has_map]
        return number if number in with_map else (with_map[-1] if with_map else None)

    # ---- files -------------------------------------------------------------------------------------------------------

    def map(self, number: str) -> Bytes3:
        values = open_map(self.folder / self.get(number).id)
        if values is None or values.shape[:2] != self._shape:
            raise not_found(f"map of training {number}")
        return values

    def labels(self, number: str) -> Snapshot:
        """The labels of a training."""
        training = self.get(number)
        labels, strokes = read_raster(self.folder / number / _LABELS, self._shape)
        return Snapshot(training.labels_version, labels, strokes, training.classes)

    def errors(self, number: str, truth: int | None, predicted: int | None) -> Flat:
        """Held-out pixels that were predicted wrongly, of one class or of one cell of the confusion matrix."""
        path = self.path(number, HELD_OUT)
        if not path.exists():
            raise RefusedError("this training has no scores yet", 409)
        with np.load(path, allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in arrays.files}
        pixels, given, predictions = held["pixels"], held["truth"], held["predicted"]
        if "test" in held:  # a split that holds out pixels once: the map has the predictions
            pixels = held["test"]
            given = self.labels(number).labels.ravel()[pixels]
            predictions = np.asarray(self.map(number)[:, :, CLASS]).ravel()[pixels]
        wrong: npt.NDArray[np.bool_] = given != predictions
        if truth is not None and predicted is not None and truth == predicted:
            wrong = ~wrong  # the diagonal: the pixels that were right
        if truth is not None:
            wrong &= given == truth
        if predicted is not None:
            wrong &= predictions == predicted
        return np.sort(pixels[wrong]).astype(np.int64)

    def doubtful(self, number: str) -> list[dict[str, Any]]:
        return read_json(self.path(number, DOUBTFUL)) or []

    def suggestions(self, number: str) -> list[dict[str, Any]] | None:
        """The points to label next; None: they were not chosen, or not yet."""
        found: list[dict[str, Any]] | None = read_json(self.path(number, SUGGESTIONS))
        return found


def _read(path: Path) -> Training:
    row = json.loads(path.read_text(encoding="utf-8"))
    row["settings"] = Settings(**row["settings"])
    row["classes"] = class_list.from_json(row["classes"])
    training = Training(**row)
    if training.id != path.parent.name:
        raise ValueError("another training's record")
    return training


def read_json(path: Path) -> Any:
    """The content of a file of the project; None without a readable one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
