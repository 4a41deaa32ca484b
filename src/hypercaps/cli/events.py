"""``--progress json``: progress, messages, errors and the result of a command, one JSON object per line on stderr.

docs/progress.md describes the objects. Without the option nothing here writes anything.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from hypercaps.data.text import printable

if TYPE_CHECKING:
    from hypercaps.inference.run_metrics import RunMetrics

MODES = ("auto", "json")
_EVERY = 0.25  # seconds between two objects about the same stage

_enabled = False  # for the whole process: warnings and errors do not know the command they come from


def enable_if_requested(arguments: Sequence[str]) -> None:
    """Enable events if the command line has ``--progress json``.

    This reads the arguments before they are parsed, so that an unknown option is reported in JSON as well.
    """
    global _enabled
    _enabled = "--progress=json" in arguments or ("--progress", "json") in pairwise(arguments)


def are_enabled() -> bool:
    return _enabled


def write_event(event: str, **fields: object) -> None:
    """Write one object as a line, if ``--progress json`` was given."""
    if _enabled:
        sys.stderr.write(json.dumps({"event": event, **fields}, allow_nan=False) + "\n")
        sys.stderr.flush()


def write_message(level: str, text: object) -> None:
    write_event("message", level=level, text=printable(str(text)))


def write_result(files: Mapping[str, Path | None], scores: Mapping[str, object] | None = None) -> None:
    """Write the result: absolute paths of the written files by kind, without those that do not exist."""
    written = {name: str(path.absolute()) for name, path in files.items() if path is not None and path.exists()}
    write_event("result", files=written, **({} if scores is None else {"scores": scores}))


def scores_of(metrics: RunMetrics) -> dict[str, float | None]:
    """OA, AA and kappa for the result; None where nothing was scored."""
    return {"oa": metrics.oa, "aa": metrics.aa, "kappa": metrics.kappa}


class MessageStream(io.StringIO):
    """A text stream for a console that writes each line as a message."""

    _line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in filter(str.strip, lines):
            write_message("info", line.strip())
        return len(text)


class StageEvents:
    """Progress of consecutive stages: the first and the last object of each, and a few per second in between."""

    def __init__(self) -> None:
        self._stage: str | None = None
        self._next = 0.0

    def update(self, stage: str, done: float, total: float, seconds_left: float | None = None, text: str = "") -> None:
        now = time.monotonic()
        if stage == self._stage and now < self._next and done < total:
            return
        self._stage, self._next = stage, now + _EVERY
        left = None if seconds_left is None else round(seconds_left, 1)
        write_event("progress", stage=stage, done=done, total=total, seconds_left=left, text=printable(text))
