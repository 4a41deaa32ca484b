"""What a study keeps about each run: one JSON object, read into a typed record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from hypercaps.inference.metrics import ClassScore

T = TypeVar("T")


@dataclass(frozen=True)
class RecipeChanges:
    """What a run changes in its method's recipe; None or empty: nothing."""

    epochs: int | None = None
    batch_size: int | None = None
    structure: Mapping[str, Any] = field(default_factory=dict)


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"error": None}


@dataclass(frozen=True, kw_only=True)
class FailedRun(RunRecord):
    """A run without a result."""

    error: str

    def to_json(self) -> dict[str, Any]:
        """Has the keys of a finished run too, with null as their value."""
        results = {each.name: None for each in fields(FinishedRun)}
        return results | asdict(self)


Record = FinishedRun | FailedRun


def read_record(document: Any, key: str = "") -> Record:
    """The record in a JSON object; raises ValueError if a value is missing or has another type."""
    if not isinstance(document, dict):
        raise ValueError(f"{document!r} is not an object")
    document = document | {"key": key or document.get("key", "")}
    if document.get("error") is None:
        return from_json(FinishedRun, document)
    return from_json(FailedRun, document)


def from_json(kind: type[T], value: Any) -> T:
    """Build a dataclass from a JSON value; unknown keys are ignored, wrong types raise ValueError."""
    return cast(T, _convert(value, kind))


def _convert(value: Any, kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:  # only "or None" is used
        optional = next(argument for argument in arguments if argument is not NoneType)
        return None if value is None else _convert(value, optional)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        types = get_type_hints(kind)
        values = {f.name: _convert(value[f.name], types[f.name]) for f in fields(kind) if _is_given(f, value)}
        try:
            return kind(**values)
        except TypeError as error:  # a required key is missing
            raise ValueError(str(error)) from error
    if origin is tuple and isinstance(value, list):
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_convert(each, kind) for each, kind in zip(value, kinds, strict=True))
    if origin is Mapping and isinstance(value, dict):
        return {name: _convert(each, arguments[1]) for name, each in value.items()}
    if kind is Any or (_is_number(value, kind) if kind in (int, float) else isinstance(value, origin or kind)):
        return value
    raise ValueError(f"{value!r} is not of type {kind}")


def _is_given(each: Field[Any], document: Mapping[str, Any]) -> bool:
    """Whether a key is in the document; null stands for the default where there is one."""
    required = each.default is MISSING and each.default_factory is MISSING
    return each.name in document and (required or document[each.name] is not None)


def _is_number(value: Any, kind: type) -> bool:
    accepted = isinstance(value, int) or (kind is float and isinstance(value, float) and math.isfinite(value))
    return accepted and not isinstance(value, bool)
