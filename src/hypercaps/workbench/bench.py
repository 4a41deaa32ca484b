"""Bench: a scene, its project, and everything that the routes of the workbench act on."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hypercaps import __version__
from hypercaps.data.scene import Scene
from hypercaps.workbench import class_list
from hypercaps.workbench.class_spectra import ClassSpectra
from hypercaps.workbench.events import Hub
from hypercaps.workbench.label_exchange import read_upload
from hypercaps.workbench.label_store import LabelStore, Outcome
from hypercaps.workbench.pixel_reader import SIDE
from hypercaps.workbench.project import Project
from hypercaps.workbench.refusals import RefusedError
from hypercaps.workbench.scene_view import SceneView
from hypercaps.workbench.spans import Spans, pixels_of, spans_of
from hypercaps.workbench.training_desk import Computing, TrainingDesk

_OVERVIEWS_AFTER = 3.0  # seconds: the first picture comes first


@dataclass(frozen=True)
class Stroke:
    """A stroke as the page sends it."""

    client: str
    uuid: str
    tool: str
    number: int  # of the class; 0 erases
    spans: Spans


class Bench:
    """One scene and its project, open."""

    def __init__(self, project: Project, scene: Scene, computing: Computing) -> None:
        self.project, self.scene, self.hub = project, scene, Hub()
        self.labels = LabelStore(project.folder, (scene.rows, scene.cols))
        self.view = SceneView(scene, project.folder / "overviews", self._on_overviews)
        self._server = uuid.uuid4().hex  # tells pages whether the server was started again
        self.messages: list[dict[str, str]] = []
        self._class_spectra = ClassSpectra(self.view.reader)
        if self.labels.journal.lost is not None:
            self.say("warning", self.labels.journal.lost)
        self.desk = TrainingDesk(project.folder, scene, self.labels, self.hub, computing, self.say)

    def start(self) -> None:
        """Start what runs beside the requests: the worker, and overviews."""
        self.desk.start()
        self.view.overviews.start(_OVERVIEWS_AFTER)

    def close(self) -> None:
        self.hub.close()
        self.desk.close()
        self.view.overviews.close()
        self.labels.close()

    def say(self, level: str, text: str) -> None:
        """Show a sentence in every page, also in those that are opened later."""
        self.messages = [*self.messages[-19:], {"level": level, "text": text}]
        self.hub.publish("message", {"level": level, "text": text})

    def _on_overviews(self, done: float) -> None:
        self.hub.publish("overviews", {"done": done})
        if self.view.overviews.failed is not None:
            self.say("warning", self.view.overviews.failed)

    # ---- state -------------------------------------------------------------------------------------------------------

    def state(self, client: str) -> dict[str, Any]:
        """Everything that a page needs after it is loaded."""
        return {
            "version": __version__,
            "server": self._server,
            "project": self.project.name,
            "writer": self.hub.is_writer(client),
            "scene": self.view.describe(),
            **self.label_state(),
            **self.desk.state(),
            "messages": self.messages,
        }

    def label_state(self) -> dict[str, Any]:
        with self.labels.lock:  # classes and their version belong together
            return {"classes": self.class_rows(), "labels": self.label_numbers()}

    def class_rows(self) -> list[dict[str, Any]]:
        rows = class_list.to_json(self.labels.classes)
        return [row | {"count": self.labels.count(row["id"])} for row in rows]

    def label_numbers(self) -> dict[str, Any]:
        store = self.labels
        return {
            "version": store.version,
            "undo": store.undo_title,
            "redo": store.redo_title,
            "count": store.raster.labelled,
        }

    # ---- labels ------------------------------------------------------------------------------------------------------

    def paint(self, stroke: Stroke) -> dict[str, Any]:
        """Carry out a stroke; when this returns, it is on disk."""
        pixels = pixels_of(stroke.spans, self.scene.cols)
        without = 0
        if stroke.number:
            valid = self.view.reader.are_valid(pixels)
            without = int((~valid).sum())
            pixels = pixels[valid]
        kept = spans_of(pixels, self.scene.cols)
        with self.labels.lock:  # pages are told in the order of the versions
            outcome = self.labels.stroke(stroke.uuid, stroke.tool, stroke.number, kept)
            answer = self._answer(outcome, stroke.client)
        return answer | {"nodata": without} if without else answer

    def undo(self, client: str, step: str = "") -> dict[str, Any]:
        with self.labels.lock:
            outcome = self.labels.undo(step)
            return self._answer(outcome, client) | {"spans": outcome.spans()}

    def redo(self, client: str, step: str = "") -> dict[str, Any]:
        with self.labels.lock:
            outcome = self.labels.redo(step)
            return self._answer(outcome, client) | {"spans": outcome.spans()}

    def change_classes(self, client: str, request: dict[str, Any]) -> dict[str, Any]:
        """Add, merge, remove or change a class."""
        with self.labels.lock:
            self._answer(self._change_class(request), client)
            return self.label_state()

    def _change_class(self, request: dict[str, Any]) -> Outcome:
        action, number = request["action"], request.get("id")
        if action == "add":
            return self.labels.add_class(request.get("name"), request.get("color"))
        if number is None:
            raise RefusedError(f"{action} needs the id of a class")
        if action in ("merge", "remove"):
            into = request.get("into") if action == "merge" else 0
            if into is None:
                raise RefusedError("merge needs the class to merge into")
            return self.labels.merge_class(number, into)
        if action in class_list.CHANGES:
            value = {"rename": "name", "recolor": "color", "key": "key"}.get(action)
            given = "" if value is None else request.get(value)
            if given is None:
                raise RefusedError(f"{action} needs a {value}")
            return self.labels.change_classes(action, number, given)
        raise RefusedError(f"there is no action {action[:40]!r} for classes")

    def _answer(self, outcome: Outcome, client: str) -> dict[str, Any]:
        """What the page that made a change gets; the other pages are told of it."""
        if len(outcome.change.runs):
            self.hub.publish("labels", {"version": outcome.version, "spans": outcome.spans(), "origin": client})
        self.hub.publish("state", self.label_state())
        if len(outcome.change.runs):
            self.desk.on_stroke()
        counts = {str(one.id): self.labels.count(one.id) for one in self.labels.classes}
        numbers = self.label_numbers()
        answer = {"version": outcome.version, "undo": numbers["undo"], "redo": numbers["redo"], "counts": counts}
        return answer | {"classes": self.class_rows()} if outcome.with_classes else answer

    def import_file(self, client: str, path: Path, name: str, class_field: str | None) -> dict[str, Any]:
        """Take over the labels of an uploaded file."""
        with self.labels.lock:
            imported = read_upload(path, name, self.scene, class_field, self.labels.snapshot())
            outcome = self.labels.take(f"Import {name}"[:60], imported.classes, imported.labels, imported.strokes)
            self._answer(outcome, client)
            return {"imported": imported.pixels, "messages": imported.messages, **self.label_state()}

    def restore(self, client: str, number: str) -> dict[str, Any]:
        """Labels and map as they were at a training; it can be undone."""
        labels = self.desk.trainings.labels(number)
        self.desk.show(number)
        with self.labels.lock:
            outcome = self.labels.take(f"Restore {number}", labels.classes, labels.labels, labels.strokes)
            return self._answer(outcome, client) | {**self.label_state(), **self.desk.map_state()}

    def label_tile(self, level: int, x: int, y: int) -> bytes:
        """Class of each of 256 x 256 pixels; at a coarser level, a labelled pixel wins over unlabelled ones."""
        side, step = SIDE << level, 1 << level
        with self.labels.lock:
            part = self.labels.raster.classes[y * side : (y + 1) * side, x * side : (x + 1) * side].copy()
        return padded(coarser(part, step))

    # ---- spectra -----------------------------------------------------------------------------------------------------

    def check_pixel(self, row: int, col: int) -> None:
        if not (0 <= row < self.scene.rows and 0 <= col < self.scene.cols):
            raise RefusedError(f"row {row}, column {col} is outside of the scene", 404)

    def class_spectra(self) -> dict[str, Any]:
        """Mean spectra of the labels as they are."""
        return self._class_spectra.of(self.labels.snapshot())

    @property
    def folder(self) -> Path:
        return self.project.folder


def coarser(classes: np.ndarray[Any, np.dtype[np.uint8]], step: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The highest value of each block of ``step`` x ``step`` pixels."""
    if step == 1 or not classes.size:
        return classes
    rows, cols = classes.shape
    down, across = -(-rows // step), -(-cols // step)
    padded_classes = np.zeros((down * step, across * step), dtype=classes.dtype)
    padded_classes[:rows, :cols] = classes
    return np.asarray(padded_classes.reshape(down, step, across, step).max(axis=(1, 3)))


def padded(values: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """A tile of 256 x 256 pixels, 0 beyond the scene, as bytes."""
    tile = np.zeros((SIDE, SIDE, *values.shape[2:]), dtype=np.uint8)
    tile[: values.shape[0], : values.shape[1]] = values
    return tile.tobytes()
