"""What a study's folder holds: a record (JSON) and the classified pixels (.npz) of each run, and its story."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.io.writers.atomic import write_json, write_npz

Record = dict[str, Any]

# What every record has; figures are None in one that failed.
FIGURES = ("oa", "aa", "kappa", "per_class", "parameters", "train_seconds", "epochs", "error")


class Classified(NamedTuple):
    """The labelled pixels of a scene as a run classified them."""

    classes: npt.NDArray[np.integer[Any]]  # (rows, columns): predicted labels of all labelled pixels, 0 elsewhere
    labels: npt.NDArray[np.integer[Any]]  # (rows, columns): the ground truth
    test: npt.NDArray[np.integer[Any]]  # flat indices of the test pixels
    truth: npt.NDArray[np.integer[Any]]  # their labels


class StudyFolder:
    """The files of a study; what is damaged counts as not there."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def records(self) -> list[Record]:
        """All runs that left a sound record, by name; each knows its own as ``key``."""
        paths = sorted((self.out / "runs").glob("*.json"))
        return [record | {"key": path.stem} for path in paths if (record := _read_record(path)) is not None]

    def record(self, key: str) -> Record | None:
        return _read_record(self.out / "runs" / f"{key}.json")

    def keep(self, key: str, record: Record, classified: Classified | None = None) -> None:
        """Write a run's files; the record last, because it says that the run is done."""
        if classified is not None:
            write_npz(self.out / "runs" / f"{key}.npz", **classified._asdict())
        write_json(self.out / "runs" / f"{key}.json", record)

    def classified(self, key: str) -> Classified | None:
        path = self.out / "runs" / f"{key}.npz"
        try:
            with (
                path.open("rb") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):  # numpy leaves a damaged one open
                found = Classified(*(arrays[name] for name in Classified._fields))
        except Exception:  # a damaged archive can fail in many ways, and all mean the same
            return None
        sound = found.classes.ndim == 2 and found.classes.shape == found.labels.shape
        sound = sound and found.test.ndim == 1 and found.test.shape == found.truth.shape
        sound = sound and all(array.dtype.kind in "iu" for array in found)
        sound = sound and (found.test.size == 0 or 0 <= found.test.min() <= found.test.max() < found.classes.size)
        return found if sound else None

    def about(self) -> dict[str, Any]:
        """The study's title, commands, planned runs and missing scenes, as its calls have left them."""
        story = _read_json(self.out / "study.json") or {}
        kinds = {"title": str, "about": str, "commands": list, "planned": list, "missing": dict}
        return {key: story[key] for key, kind in kinds.items() if isinstance(story.get(key), kind)}

    def note_call(
        self, *, title: str, about: str, command: str, planned: list[str], scenes: list[str], missing: dict[str, str]
    ) -> None:
        """Add what one call of the study wants to what earlier ones wanted: several can share a folder."""
        before = self.about()
        commands = [*before.get("commands", ()), command]
        still_missing = {name: why for name, why in before.get("missing", {}).items() if name not in scenes}
        story = {
            "title": title,
            "about": about,
            "commands": list(dict.fromkeys(commands)),
            "planned": sorted({*before.get("planned", ()), *planned}),
            "missing": still_missing | missing,
        }
        write_json(self.out / "study.json", story)


def succeeded(record: Mapping[str, Any]) -> bool:
    return record.get("error") is None


def _read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if it can't be read."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")  # NaN and infinities, which could not be written again

    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _read_record(path: Path) -> Record | None:
    record = _read_json(path)
    return record if record is not None and _is_sound(record) else None


def _is_sound(record: Record) -> bool:
    """Whether all that the pages read is there and of its kind."""
    sound = all(isinstance(record.get(key), str) for key in ("scene", "method", "recipe"))
    sound = sound and _is_number(record.get("train_share")) and isinstance(record.get("seed"), int)
    sound = sound and isinstance(record.get("changed", {}), dict) and isinstance(record.get("split", ""), str)
    sound = sound and all(isinstance(record.get(key), int | None) for key in ("block", "labels_per_class"))
    if not sound or not succeeded(record):
        return sound and isinstance(record["error"], str)
    sound = all(_is_number(record.get(key)) for key in ("oa", "aa", "kappa", "train_seconds", "epochs", "parameters"))
    classes, history = record.get("per_class"), record.get("history", [])
    sound = sound and isinstance(classes, list) and all(_is_class(entry) for entry in classes)
    return sound and isinstance(history, list) and all(isinstance(h, list) and len(h) == 2 for h in history)


def _is_class(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("label"), int):
        return False
    accuracy = entry.get("accuracy")
    return isinstance(entry.get("name"), str) and (accuracy is None or _is_number(accuracy))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
