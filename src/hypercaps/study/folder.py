"""The files of a study: a record (JSON) and the classified pixels (.npz) of each run, and study.json.

A run that is not finished may have a checkpoint beside its record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.json_records import from_json
from hypercaps.io.writers.atomic import write_bytes, write_json, write_npz
from hypercaps.study.records import Record, read_record


class Classified(NamedTuple):
    """The labelled pixels of a scene as classified by a run."""

    classes: npt.NDArray[np.integer[Any]]  # (rows, columns): predicted labels of all labelled pixels, 0 elsewhere
    labels: npt.NDArray[np.integer[Any]]  # (rows, columns): the ground truth
    test: npt.NDArray[np.integer[Any]]  # flat indices of the test pixels
    truth: npt.NDArray[np.integer[Any]]  # labels of the test pixels

    def is_valid(self) -> bool:
        return (
            self.classes.ndim == 2
            and self.classes.shape == self.labels.shape
            and self.test.ndim == 1
            and self.test.shape == self.truth.shape
            and all(array.dtype.kind in "iu" for array in self)
            and (self.test.size == 0 or 0 <= self.test.min() <= self.test.max() < self.classes.size)
        )


@dataclass(frozen=True)
class StudyLog:
    """study.json: what all calls that share the folder have planned."""

    title: str = ""
    about: str = ""
    commands: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()  # keys of runs
    missing: Mapping[str, str] = field(default_factory=dict)  # scenes that could not be opened, with the reason


class StudyFolder:
    """The files of a study; a damaged file counts as missing."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def records(self) -> list[Record]:
        """The records of all runs, by file name."""
        keys = sorted(path.stem for path in (self.out / "runs").glob("*.json"))
        return [record for key in keys if (record := self.record(key)) is not None]

    def record(self, key: str) -> Record | None:
        try:
            return read_record(_read_json(self.out / "runs" / f"{key}.json"), key)
        except (OSError, ValueError):
            return None

    def keep(self, record: Record, classified: Classified | None = None) -> None:
        """Write a run's files; the record last, because it marks the run as done."""
        if classified is not None:
            write_npz(self.out / "runs" / f"{record.key}.npz", **classified._asdict())
        document = {name: value for name, value in record.to_json().items() if name != "key"}
        # A line for each field: an indented history would have four lines for each epoch.
        lines = (f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in document.items())
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        write_bytes(self.out / "runs" / f"{record.key}.json", text.encode())

    def checkpoint(self, key: str) -> Path:
        """The checkpoint of a run that is not finished; absolute, because workers have another working directory."""
        return self.out.absolute() / "runs" / f"{key}.checkpoint.safetensors"

    def classified(self, key: str) -> Classified | None:
        path = self.out / "runs" / f"{key}.npz"
        try:
            # numpy would leave a damaged file open
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                pixels = Classified(*(arrays[name] for name in Classified._fields))
        except Exception:  # a damaged archive can fail in many ways
            return None
        return pixels if pixels.is_valid() else None

    def log(self) -> StudyLog:
        """study.json; empty if it is missing or damaged."""
        try:
            return from_json(StudyLog, _read_json(self.out / "study.json"))
        except (OSError, ValueError):
            return StudyLog()

    def add_call(self, call: StudyLog, scenes: list[str]) -> None:
        """Add a call of the study to study.json; ``scenes`` are those it tried to open."""
        before = self.log()
        missing = {name: reason for name, reason in before.missing.items() if name not in scenes}
        commands = dict.fromkeys((*before.commands, *call.commands))
        planned = sorted({*before.planned, *call.planned})
        log = StudyLog(call.title, call.about, tuple(commands), tuple(planned), missing | dict(call.missing))
        write_json(self.out / "study.json", asdict(log))


def _read_json(path: Path) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")  # NaN and infinities, which could not be written again

    if not path.is_file():  # opening a pipe would wait until somebody writes to it
        raise FileNotFoundError(path)
    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
