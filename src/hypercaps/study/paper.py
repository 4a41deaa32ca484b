"""The paper's results tables (paper.toml), to set ours beside."""

from __future__ import annotations

import math
import tomllib
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class PaperResult:
    """What the paper gives for one method at one share of labels; accuracies in percent, None where it is silent."""

    method: str
    train_share: float
    oa: float
    aa: float | None
    kappa: float | None
    per_class: tuple[float, ...] | None
    seconds: float | None
    parameters: int | None
    tables: tuple[str, ...]


@dataclass(frozen=True)
class PaperScene:
    """A scene as the paper had it; its bands may differ from those of our scene of that name."""

    title: str
    bands: int
    classes: tuple[tuple[int, str], ...]
    notes: tuple[str, ...]


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads((files("hypercaps.study") / "paper.toml").read_text(encoding="utf-8"))


def _entry(scene: str) -> dict[str, Any] | None:
    entries: dict[str, dict[str, Any]] = _document()["scenes"]
    return next((entry for entry in entries.values() if scene in entry["our_scenes"]), None)


def _result(method: str, train_share: float, row: dict[str, Any]) -> PaperResult:
    return PaperResult(
        method=method,
        train_share=train_share,
        oa=row["oa"],
        aa=row.get("aa"),
        kappa=row.get("kappa"),
        per_class=tuple(row["per_class"]) if "per_class" in row else None,
        seconds=row.get("seconds"),
        parameters=row.get("parameters"),
        tables=tuple(row["tables"]),
    )


@cache
def paper_results(scene: str) -> tuple[PaperResult, ...]:
    """Every result for one of our scenes, the small training sets last; empty if the paper has not that scene."""
    entry = _entry(scene)
    if entry is None:
        return ()
    share = _document()["source"]["train_share"]
    main = [_result(method, share, row) for method, row in entry["results"].items()]
    return (*main, *(_result(row["method"], row["train_share"], row) for row in entry["small"]))


def paper_result(scene: str, method: str, train_share: float) -> PaperResult | None:
    # Shares are computed as often as typed: 1 - 0.9 is to find the figure for 0.1.
    found = (r for r in paper_results(scene) if r.method == method and math.isclose(r.train_share, train_share))
    return next(found, None)


def paper_scene(scene: str) -> PaperScene | None:
    entry = _entry(scene)
    if entry is None:
        return None
    classes = tuple((number, name) for number, name in entry["classes"])
    return PaperScene(entry["title"], entry["bands"], classes, tuple(entry["notes"]))


def paper_source() -> dict[str, Any]:
    """Title, authors, hardware and protocol: a copy, so that a caller cannot change the cached document."""
    return deepcopy(_document()["source"])
