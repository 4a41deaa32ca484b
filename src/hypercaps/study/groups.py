"""Runs grouped for comparison: by scene and label budget, then into columns that differ only in the seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from hypercaps.io import catalog
from hypercaps.models.descriptions import DESCRIPTIONS
from hypercaps.study.label_budget import LabelBudget, percent
from hypercaps.study.paper import paper_source
from hypercaps.study.records import FinishedRun, Record, RunRecord

METHOD_ORDER = ("rbf-svm", "mlp", "se-2d-cnn", "3d-cnn", "c-cnn", "capsnet", "convcapsnet")  # the paper's


class Stat(NamedTuple):
    """A figure over the repeats."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Stat | None:
        present = [value for value in values if value is not None]
        return cls(median(present), min(present), max(present), len(present)) if present else None


@dataclass(frozen=True)
class Column:
    """The runs of one method that differ only in the seed."""

    method: str
    title: str
    recipe: str
    notes: tuple[str, ...]  # differences from the paper's training; may be empty
    records: tuple[FinishedRun, ...]

    @property
    def note(self) -> str:
        return ", ".join(self.notes)

    @property
    def label(self) -> str:
        return f"{self.title} ({self.note})" if self.notes else self.title

    @property
    def short_label(self) -> str:
        """The label without the number of epochs, for tables that have a column for it."""
        notes = ", ".join(note for note in self.notes if note != _epochs_note(self.records[0]))
        return f"{self.title} ({notes})" if notes else self.title

    @property
    def epochs_text(self) -> str:
        """The epochs of the runs, such as "500" or "80 of 500"; empty for a method without epochs."""
        recipe_epochs = self.records[0].recipe_epochs
        done = sorted(self.epochs)
        if not done or (recipe_epochs is None and done == [1]):
            return ""
        text = f"{done[0]:,}" if len(done) == 1 else f"{done[0]:,}–{done[-1]:,}"
        return f"{text} of {recipe_epochs:,}" if recipe_epochs and self.is_shortened else text

    @property
    def trained(self) -> str:
        """How the runs were trained, in words."""
        epochs = self.records[0].recipe_epochs
        words = self.note or (f"{epochs} epochs" if epochs else "")
        return words if self.recipe != "paper" else f"paper recipe, {words}".rstrip(", ")

    @property
    def seconds(self) -> float | None:
        """The shortest training, as in the paper; trainings cut short by the budget do not count."""
        return min((run.train_seconds for run in self._timed if not run.cut_short), default=None)

    @property
    def epoch_seconds(self) -> float | None:
        return min((run.train_seconds / run.epochs for run in self._timed), default=None)

    @property
    def epochs(self) -> set[int]:
        return {run.epochs for run in self._timed}

    @property
    def _timed(self) -> list[FinishedRun]:
        return [run for run in self.records if run.epochs]

    @property
    def is_shortened(self) -> bool:
        """Whether a run was trained for another number of epochs than its recipe has."""
        first = self.records[0]
        return first.changed.epochs not in (None, first.recipe_epochs) or any(run.cut_short for run in self.records)

    @property
    def class_names(self) -> dict[int, str]:
        return {score.label: score.name for run in self.records for score in run.per_class}

    def stat(self, name: str) -> Stat | None:
        """Of a figure of the record, by its name."""
        return Stat.of(getattr(run, name) for run in self.records)

    def class_stat(self, label: int) -> Stat | None:
        scores = (score for run in self.records for score in run.per_class)
        return Stat.of(score.accuracy for score in scores if score.label == label)


Groups = Mapping[tuple[str, LabelBudget], list[Column]]


def group_runs(records: Iterable[Record]) -> dict[tuple[str, LabelBudget], list[Column]]:
    """The columns of each scene and label budget: scenes by name, large shares first, methods in the paper's order."""
    groups: dict[tuple[str, LabelBudget], dict[str, list[FinishedRun]]] = {}
    for run in sorted((record for record in records if isinstance(record, FinishedRun)), key=sort_key):
        setting = json.dumps([run.method, run.recipe, asdict(run.changed), run.val_share, run.guard], sort_keys=True)
        groups.setdefault((run.scene, LabelBudget.of(run)), {}).setdefault(setting, []).append(run)
    return {group: [_column(runs) for runs in columns.values()] for group, columns in groups.items()}


def sort_key(record: RunRecord) -> tuple[Any, ...]:
    """Orders runs by scene, label budget, method (as in the paper), recipe and seed."""
    position = (*METHOD_ORDER, record.method).index(record.method)
    return record.scene, LabelBudget.of(record).order, position, record.method, record.recipe, record.seed


def _column(runs: list[FinishedRun]) -> Column:
    method, recipe = runs[0].method, runs[0].recipe
    return Column(method, method_title(method), recipe, _notes(runs), tuple(runs))


def _epochs_note(run: FinishedRun) -> str:
    """The number of epochs if it is not the recipe's."""
    epochs, recipe_epochs = run.changed.epochs, run.recipe_epochs
    if epochs in (None, recipe_epochs):
        return ""
    return f"{epochs} of {recipe_epochs} epochs" if recipe_epochs else f"{epochs} epochs"


def _notes(runs: list[FinishedRun]) -> tuple[str, ...]:
    """How these runs differ from the paper's training."""
    first = runs[0]
    changed, val_share = first.changed, first.val_share
    notes = [f"{first.recipe} recipe"] if first.recipe != "paper" else []
    if epochs := _epochs_note(first):
        notes.append(epochs)
    if changed.batch_size is not None:
        notes.append(f"batch {changed.batch_size}")
    notes += [f"{name.replace('_', ' ')} {value}" for name, value in changed.structure.items()]
    if val_share is not None and val_share != paper_source().validation_share:
        notes.append(f"{percent(val_share)} for validation")
    if cut_short := sum(run.cut_short for run in runs):
        notes.append(f"{cut_short} of {len(runs)} runs cut short by the budget")
    return tuple(notes)


def method_title(method: str) -> str:
    return DESCRIPTIONS[method].title if method in DESCRIPTIONS else method


def scene_title(scene: str) -> str:
    return catalog.get_scene(scene).title if scene in catalog.names() else scene
