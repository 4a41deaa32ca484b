"""LabelStore: labels and classes of a project. Every change is an entry of the journal, and follows from it alone.

Entries: ``stroke``, ``classes`` (the list after a change), ``merge``, ``raster`` (labels from a file of the project),
``undo``, ``redo`` and ``recovered``, each with the ``time`` at which it was made. The version is the number of entries
so far, so that it never goes back.
"""

from __future__ import annotations

import datetime
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.workbench import class_list
from hypercaps.workbench.class_list import Classes
from hypercaps.workbench.journal import Entry, Journal
from hypercaps.workbench.label_raster import NOTHING, Change, LabelRaster
from hypercaps.workbench.raster_file import read_raster, write_raster
from hypercaps.workbench.refusals import RefusedError
from hypercaps.workbench.spans import Spans, expanded, pixels_of, spans_of

MOST_STEPS = 1000  # that can be undone
_REMEMBERED = 10_000  # strokes and steps back that are recognised if a page repeats them


@dataclass(frozen=True, eq=False)
class Step:
    """What one entry has changed."""

    title: str
    change: Change
    before: Classes
    after: Classes


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a change has done, for the answer and for other pages."""

    version: int
    change: Change
    undone: bool = False
    with_classes: bool = False  # the list of classes has changed

    def spans(self) -> dict[str, list[list[int]]]:
        return self.change.spans_by_class(undone=self.undone)


class LabelStore:
    """The labels of a scene of ``shape``; ``folder`` has the journal and rasters that it refers to."""

    def __init__(self, folder: Path, shape: tuple[int, int]) -> None:
        self.folder, self.raster = folder, LabelRaster(shape)
        self.classes: Classes = ()
        self.version = 0
        self.lock = threading.RLock()
        self._undo: deque[Step] = deque(maxlen=MOST_STEPS)
        self._redo: list[Step] = []
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._stroke = 0  # number of the last one
        self.journal = Journal(folder / "journal.jsonl")
        for entry in self.journal.entries:
            self._apply(entry)
        self.journal.entries.clear()
        if self.journal.lost_lines:  # numbers of lost versions are not given again: pages may have kept their tiles
            self._commit({"op": "recovered", "versions": self.journal.lost_lines})

    # ---- reading -----------------------------------------------------------------------------------------------------

    def count(self, number: int) -> int:
        return int(self.raster.counts[number])

    @property
    def undo_title(self) -> str | None:
        return self._undo[-1].title if self._undo else None

    @property
    def redo_title(self) -> str | None:
        return self._redo[-1].title if self._redo else None

    def snapshot(self) -> Snapshot:
        """A copy of the labels as they are."""
        with self.lock:
            raster = self.raster
            return Snapshot(self.version, raster.classes.copy(), raster.strokes.copy(), self.classes)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def stroke(self, uuid: str, tool: str, number: int, spans: Spans) -> Outcome:
        """Paint, or erase with class 0; a stroke that was made already changes nothing."""
        with self.lock:
            if uuid in self._seen:
                return Outcome(self.version, NOTHING)
            if number and class_list.find(self.classes, number).locked:
                raise RefusedError("this class is locked: unlock it to paint with it", 409)
            pixels = pixels_of(spans, self.raster.shape[1])
            kept = spans_of(pixels, self.raster.shape[1]).tolist()
            return self._commit({"op": "stroke", "id": uuid, "tool": tool, "class": number, "spans": kept})

    def change_classes(self, action: str, number: int, value: str) -> Outcome:
        """Rename, recolor and the other ``class_list.CHANGES``."""
        with self.lock:
            return self._commit_classes(action, class_list.changed(self.classes, action, number, value))

    def add_class(self, name: str | None, color: str | None) -> Outcome:
        with self.lock:
            taken = np.flatnonzero(self.raster.counts[1:]) + 1  # numbers of pixels without a class are not given
            new = class_list.new_class(self.classes, name, color, taken.tolist())
            if any(one.name.casefold() == new.name.casefold() for one in self.classes):
                raise RefusedError(f"there is a class {new.name!r} already: choose another name", 409)
            return self._commit_classes("add", (*self.classes, new))

    def merge_class(self, number: int, into: int) -> Outcome:
        """Give the pixels of a class to another one, or with ``into`` 0 to none, and remove the class."""
        with self.lock:
            if number == into:
                raise RefusedError("a class can't be merged with itself")
            class_list.find(self.classes, number)
            if into:
                class_list.find(self.classes, into)
            return self._commit({"op": "merge", "class": number, "into": into})

    def take(
        self, title: str, classes: Classes, labels: npt.NDArray[np.uint8], strokes: npt.NDArray[np.int32]
    ) -> Outcome:
        """Take other classes and labels (rows, columns), from a file or an earlier state."""
        with self.lock:
            number = self.version + 1
            name = f"labels-{number:06}.npz"
            write_raster(self.folder / name, labels, strokes)
            rows = class_list.to_json(classes)
            return self._commit({"op": "raster", "title": title, "file": name, "classes": rows})

    def undo(self, uuid: str = "") -> Outcome:
        """Undo the last change; a request that was carried out already changes nothing."""
        with self.lock:
            if uuid in self._seen:
                return Outcome(self.version, NOTHING)
            if not self._undo:
                raise RefusedError("there is nothing to undo", 409)
            return self._commit({"op": "undo", "id": uuid})

    def redo(self, uuid: str = "") -> Outcome:
        with self.lock:
            if uuid in self._seen:
                return Outcome(self.version, NOTHING)
            if not self._redo:
                raise RefusedError("there is nothing to redo", 409)
            return self._commit({"op": "redo", "id": uuid})

    def close(self) -> None:
        with self.lock:
            self.journal.close()

    # ---- entries of the journal --------------------------------------------------------------------------------------

    def _commit_classes(self, action: str, classes: Classes) -> Outcome:
        rows = class_list.to_json(classes)
        return self._commit({"op": "classes", "title": class_list.TITLES[action], "classes": rows})

    def _commit(self, entry: Entry) -> Outcome:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.journal.append({**entry, "time": now})
        return self._apply(entry)

    def _apply(self, entry: Entry) -> Outcome:
        before, (change, undone) = self.classes, _OPERATIONS[entry["op"]](self, entry)
        self.version += 1
        return Outcome(self.version, change, undone, with_classes=self.classes != before)

    def _record(self, title: str, change: Change, before: Classes) -> tuple[Change, bool]:
        if len(change.runs) or before != self.classes:
            self._undo.append(Step(title, change, before, self.classes))
            self._redo.clear()
        return change, False

    def _remember(self, uuid: str) -> None:
        if uuid:
            self._seen[uuid] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)

    def _do_stroke(self, entry: Entry) -> tuple[Change, bool]:
        self._stroke += 1
        self._remember(entry["id"])
        locked = np.zeros(256, dtype=bool)
        locked[[one.id for one in self.classes if one.locked]] = True
        spans = np.asarray(entry["spans"], dtype=np.int64).reshape(-1, 3)
        pixels = expanded(spans, self.raster.shape[1])  # those of the journal are in order
        change = self.raster.paint(pixels, entry["class"], self._stroke, locked)
        return self._record(entry["tool"].capitalize(), change, self.classes)

    def _do_classes(self, entry: Entry) -> tuple[Change, bool]:
        before, self.classes = self.classes, class_list.from_json(entry["classes"])
        return self._record(entry["title"], NOTHING, before)

    def _do_merge(self, entry: Entry) -> tuple[Change, bool]:
        before, number, into = self.classes, entry["class"], entry["into"]
        change = self.raster.merge(number, into)
        self.classes = tuple(one for one in self.classes if one.id != number)
        return self._record(class_list.TITLES["merge" if into else "remove"], change, before)

    def _do_raster(self, entry: Entry) -> tuple[Change, bool]:
        before, self.classes = self.classes, class_list.from_json(entry["classes"])
        change = self.raster.replace(*read_raster(self.folder / entry["file"], self.raster.shape))
        self._stroke = max(self._stroke, int(self.raster.strokes.max(initial=0)))
        return self._record(entry["title"], change, before)

    def _do_undo(self, entry: Entry) -> tuple[Change, bool]:
        self._remember(entry["id"])
        step = self._undo.pop()
        self._redo.append(step)
        self.raster.apply(step.change, undo=True)
        self.classes = step.before
        return step.change, True

    def _do_redo(self, entry: Entry) -> tuple[Change, bool]:
        self._remember(entry["id"])
        step = self._redo.pop()
        self._undo.append(step)
        self.raster.apply(step.change, undo=False)
        self.classes = step.after
        return step.change, False

    def _do_recovered(self, entry: Entry) -> tuple[Change, bool]:
        self.version += entry["versions"]
        return NOTHING, False


_OPERATIONS: dict[str, Callable[[LabelStore, Entry], tuple[Change, bool]]] = {
    "stroke": LabelStore._do_stroke,
    "classes": LabelStore._do_classes,
    "merge": LabelStore._do_merge,
    "raster": LabelStore._do_raster,
    "undo": LabelStore._do_undo,
    "redo": LabelStore._do_redo,
    "recovered": LabelStore._do_recovered,
}


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Labels at one moment."""

    version: int
    labels: npt.NDArray[np.uint8]  # (rows, columns)
    strokes: npt.NDArray[np.int32]  # (rows, columns) number of the stroke, from 1; 0 = unlabelled
    classes: Classes

    @property
    def counts(self) -> dict[int, int]:
        numbers = np.bincount(self.labels.ravel(), minlength=256)
        return {one.id: int(numbers[one.id]) for one in self.classes}

    def describe(self) -> dict[str, Any]:
        return {"version": self.version, "count": sum(self.counts.values())}
