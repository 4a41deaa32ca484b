"""The lines that ``hypercaps --progress json`` writes to stderr."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """One line: progress, a message, an error or the result."""

    kind: str  # progress, message, error or result
    text: str = ""
    level: str = "info"  # of a message: info or warning
    stage: str = ""  # of progress: training, classifying, ...
    percent: float | None = None  # of progress, within its stage
    files: dict[str, str] = field(default_factory=dict)  # of the result: paths by what they are
    scores: dict[str, Any] = field(default_factory=dict)  # of the result: oa, aa, kappa


def parse_event(line: str) -> Event | None:
    """The event of a line; None for an event that this version does not know.

    A line that is no event comes from a library that hypercaps uses: it is a message.
    """
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "event" not in found:
        return Event("message", line.rstrip())
    kind = found["event"]
    if kind == "progress":
        percent = _percent(found.get("done"), found.get("total"))
        return Event(kind, _progress_text(found), stage=str(found.get("stage", "")), percent=percent)
    if kind == "message":
        return Event(kind, str(found.get("text", "")), level=str(found.get("level", "info")))
    if kind == "error":
        return Event(kind, str(found.get("text", "")))
    if kind == "result":
        return Event(kind, files=dict(found.get("files") or {}), scores=dict(found.get("scores") or {}))
    return None


def _percent(done: Any, total: Any) -> float | None:
    if not isinstance(done, (int, float)) or not isinstance(total, (int, float)) or total <= 0:
        return None
    return min(max(100.0 * done / total, 0.0), 100.0)


def _progress_text(found: dict[str, Any]) -> str:
    """ "training: epoch 3/100  loss 0.2, about 2 min left" """
    parts = [str(found.get("stage", ""))]
    if found.get("text"):
        parts.append(str(found["text"]))
    text = ": ".join(parts)
    left = found.get("seconds_left")
    if not isinstance(left, (int, float)) or left < 1:
        return text
    return f"{text}, about {left:.0f} s left" if left < 100 else f"{text}, about {left / 60:.0f} min left"
