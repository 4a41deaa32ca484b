"""What the server and its worker process send to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

View = tuple[int, int, int, int]  # r0, r1, c0, c1


@dataclass(frozen=True)
class Settings:
    """How to train, as the page and ``hypercaps train`` say it."""

    method: str
    recipe: str | None  # None: the method's
    split: str

    def parameters(self) -> dict[str, Any]:
        """Of :class:`hypercaps.ConvCapsClassifier`."""
        return {"method": self.method, "recipe": self.recipe, "split_by": self.split}


@dataclass(frozen=True)
class TrainTask:
    """Train, map and score; everything is written into ``folder``."""

    id: str
    folder: Path
    labels: Path  # file of the labels
    class_field: str | None
    settings: Settings
    view: View | None
    memory: int  # bytes


@dataclass(frozen=True)
class ExportTask:
    """Write the run folder of ``hypercaps train``."""

    id: str
    out: Path
    labels: Path
    class_field: str | None
    settings: Settings
    command: str
    inputs: dict[str, Any]
    memory: int


@dataclass(frozen=True)
class ExplainQuery:
    """Explain a pixel by the model in a file; answered between the steps of a task."""

    number: int
    model: Path
    row: int
    col: int


@dataclass(frozen=True)
class Cancel:
    """Stop a task."""

    id: str


@dataclass(frozen=True)
class Look:
    """Windows that are mapped next begin in the middle of this view."""

    view: View


Task = TrainTask | ExportTask
Order = Task | ExplainQuery | Cancel | Look


@dataclass(frozen=True)
class Report:
    """What the worker says; ``id`` is that of the task."""

    id: str
    kind: Literal[
        "ready",
        "progress",
        "windows",
        "mapped",
        "unscored",
        "scored",
        "done",
        "failed",
        "cancelled",
        "warning",
        "answer",
    ]
    data: dict[str, Any] = field(default_factory=dict)
