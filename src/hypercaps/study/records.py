"""What a study keeps about each run: one JSON object, read into a typed record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from hypercaps.data.json_records import from_json
from hypercaps.inference.metrics import ClassScore


@dataclass(frozen=True)
class RecipeChanges:
    """What a run changes in its method's recipe; None or empty: nothing."""

    epochs: int | None = None
    batch_size: int | None = None
    structure: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run's setting and environment, before it starts.

    The field names are the keys of the JSON file. Fields with a default may be missing there: older versions did not
    write them.
    """

    scene: str
    method: str
    recipe: str
    train_share: float
    seed: int
    split: str = "random"
    block: int | None = None
    guard: int | None = None
    labels_per_class: int | None = None
    recipe_epochs: int | None = None  # None: the recipe has no fixed number of epochs
    changed: RecipeChanges = field(default_factory=RecipeChanges)
    val_share: float | None = None
    machine: str | None = None
    threads: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    data: str | None = None  # fingerprint of scene and labels; None: they could not be opened
    cut_short: bool = False  # stopped by the time budget
    key: str = ""  # name of the run's files, not written into them

    def failed(self, error: str, *, cut_short: bool = False) -> FailedRun:
        return FailedRun(**(vars(self) | {"error": error, "cut_short": cut_short}))


@dataclass(frozen=True, kw_only=True)
class FinishedRun(RunRecord):
    """A run with a result; accuracies are in percent."""

    oa: float
    aa: float
    kappa: float
    per_class: tuple[ClassScore, ...]
    parameters: int
    train_seconds: float
    epochs: int
    best_epoch: int | None = None
    batch_size: int | None = None
    n_train: int | None = None
    n_val: int | None = None
    n_test: int | None = None
    leakage: float | None = None
    bands: int | None = None
    history: tuple[tuple[float | None, float | None], ...] = ()  # training loss and validation OA of each epoch

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"per_class": [score.to_json() for score in self.per_class], "error": None}


@dataclass(frozen=True, kw_only=True)
class FailedRun(RunRecord):
    """A run without a result."""

    error: str

    def to_json(self) -> dict[str, object]:
        """Has the keys of a finished run too, with null as their value."""
        return {each.name: None for each in fields(FinishedRun)} | asdict(self)


Record = FinishedRun | FailedRun


def read_record(document: object, key: str = "") -> Record:
    """The record in a JSON object; raises ValueError if a value is missing or has another type."""
    if not isinstance(document, dict):
        raise ValueError(f"{document!r} is not an object")
    document = document | {"key": key or document.get("key", "")}
    kind: type[Record] = FinishedRun if document.get("error") is None else FailedRun
    return from_json(kind, document)
