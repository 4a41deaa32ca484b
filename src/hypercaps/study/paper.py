"""The paper's result tables (paper.toml), for comparison with ours."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from hypercaps.data.json_records import from_json


@dataclass(frozen=True)
class PaperResult:
    """The paper's figures for one method and share of labels; accuracies in percent, None where not given."""

    method: str
    train_share: float
    oa: float
    tables: tuple[str, ...]  # of the paper that hold the figures
    aa: float | None = None
    kappa: float | None = None
    per_class: tuple[float, ...] | None = None
    seconds: float | None = None
    parameters: int | None = None


@dataclass(frozen=True)
class PaperScene:
    """A scene as used in the paper; our scene of the same name may have other bands."""

    title: str
    bands: int
    classes: tuple[tuple[int, str], ...]
    notes: tuple[str, ...]
    our_scenes: tuple[str, ...]
    results: tuple[PaperResult, ...]  # the small training sets last


@dataclass(frozen=True)
class PaperSource:
    """The paper and its protocol."""

    title: str
    authors: tuple[str, ...]
    hardware: str
    protocol: str
    repeats: int
    train_share: float
    validation_share: float


@cache
def _document() -> tuple[PaperSource, tuple[PaperScene, ...]]:
    document = tomllib.loads((files("hypercaps.study") / "paper.toml").read_text(encoding="utf-8"))
    source, scenes = from_json(PaperSource, document["source"]), []
    for table in document["scenes"].values():
        setting = {"train_share": source.train_share}
        results = [setting | row | {"method": method} for method, row in table["results"].items()]
        scenes.append(from_json(PaperScene, table | {"results": results + table["small"]}))
    return source, tuple(scenes)


def paper_source() -> PaperSource:
    return _document()[0]


def paper_scenes() -> tuple[PaperScene, ...]:
    return _document()[1]


def paper_scene(scene: str) -> PaperScene | None:
    """The paper's scene for one of our scenes; None if the paper does not use it."""
    return next((each for each in paper_scenes() if scene in each.our_scenes), None)


def paper_results(scene: str) -> tuple[PaperResult, ...]:
    """Every result for one of our scenes, the small training sets last; empty if the paper does not use it."""
    paper = paper_scene(scene)
    return () if paper is None else paper.results


def paper_result(scene: str, method: str, train_share: float) -> PaperResult | None:
    # isclose, because shares may be computed: 1 - 0.9 must find the figure for 0.1.
    matches = (r for r in paper_results(scene) if r.method == method and math.isclose(r.train_share, train_share))
    return next(matches, None)
