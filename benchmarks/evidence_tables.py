"""Write the tables of README.md and docs/evidence.md from docs/results/evidence.jsonl, the runs of evidence.py.

    python benchmarks/evidence_tables.py

Draws that ``auto`` was not run on are left out for the other methods too.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from page_tables import fill, table

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "docs" / "results" / "evidence.jsonl"
LABELS = {
    **{f"enmap new k={k}": f"EnMAP, {k} training tile{'s' if k > 1 else ''}, new tiles" for k in (1, 3, 6, 9)},
    **{f"enmap {n} per class": f"EnMAP, {n} random labels per class" for n in (5, 10, 20, 50)},
    "indian-pines blocks50": "Indian Pines, half of the blocks, other blocks",
    "indian-pines random10": "Indian Pines, 10 random labels per class",
    "pavia random10": "Pavia University's block, 10 per class, random",
    "pavia blocks10": "the same, from 40 % of the blocks, other blocks",
    "salinas-a random10": "Salinas-A, 10 per class, random",
    "salinas-a blocks10": "the same, from 40 % of the blocks, other blocks",
}
DESIGNS = {
    "points": "30 random points per class",
    "polygons": "6 random polygons of up to 5 × 5 pixels per class",
    "fields": "half of each class's fields",
}
SCENES = {"indian-pines": "Indian Pines", "pavia": "Pavia University's block", "salinas-a": "Salinas-A"}


@dataclass(frozen=True)
class Group:
    """All runs of one row."""

    name: str
    runs: list[dict[str, Any]]

    @cached_property
    def auto(self) -> dict[int, dict[str, Any]]:
        """The runs of ``auto`` by draw."""
        return {run["draw"]: run for run in self.runs if run["method"] == "auto"}

    def accuracy(self, method: str) -> str:
        found = [run["truth"] for run in self.runs if run["method"] == method and run["draw"] in self.auto]
        average = statistics.mean if self.name.startswith("enmap") else statistics.median
        return f"{average(found):.1f}" if found else "–"

    @property
    def network(self) -> str:
        return self.accuracy("network-1" if self.name.startswith("enmap") else "network")

    def regret(self) -> float:
        """Mean over the draws of the best method's accuracy less that of ``auto``."""
        best = {draw: max(run["truth"] for run in self.runs if run["draw"] == draw) for draw in self.auto}
        return float(statistics.mean(best[draw] - run["truth"] for draw, run in self.auto.items()))


def calibration_error(groups: list[Group]) -> float:
    """Expected calibration error of ``auto``, all pixels of all draws together."""
    count, sure, right = np.sum([run["reliability"] for group in groups for run in group.auto.values()], axis=0)
    return float(np.abs(sure - right).sum() / count.sum())


def read(path: Path = RUNS) -> dict[str, Group]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        groups.setdefault(run["group"], []).append(run)
    return {name: Group(name, runs) for name, runs in groups.items()}


def short_table(groups: dict[str, Group]) -> str:
    rows = [
        [
            text, *(groups[name].accuracy(method) for method in ("lda", "logistic")), groups[name].network,
            f"**{groups[name].accuracy('auto')}**", str(len(groups[name].auto)),
        ]
        for name, text in LABELS.items()
    ]  # fmt: skip
    return table("| labels | LDA | logistic regression | network | `auto`, the default | draws |", rows)


def accuracy_table(groups: dict[str, Group]) -> str:
    rows = [
        [
            text, *(groups[name].accuracy(method) for method in ("lda", "logistic", "rbf-svm", "random-forest")),
            groups[name].network, f"**{groups[name].accuracy('auto')}**", f"{groups[name].regret():.2f}",
            f"{calibration_error([groups[name]]):.3f}", str(len(groups[name].auto)),
        ]
        for name, text in LABELS.items()
    ]  # fmt: skip
    methods = "LDA | logistic | SVM | forest | network | `auto`"
    head = f"| labels, test ground | {methods} | regret | calibration error | draws |"
    regret = statistics.mean(groups[name].regret() for name in LABELS)
    new, part = ([groups[f"enmap {kind} k={k}"] for k in (1, 3, 6, 9)] for kind in ("new", "part"))
    parts = ", ".join(group.accuracy("auto") for group in part)
    return f"""{table(head, rows)}

Mean regret over the rows: {regret:.2f}. Calibration error over all rows of new EnMAP tiles:
{calibration_error(new):.3f}; where the test tiles were part of the training scene as unlabelled ground:
{calibration_error(part):.3f} (OA then {parts} for 1, 3, 6 and 9 training tiles)."""


def score_table(groups: dict[str, Group]) -> str:
    rows = []
    for design, labels in DESIGNS.items():
        for scene, title in SCENES.items():
            if (group := groups.get(f"score {scene} {design}")) is None:
                continue
            runs = list(group.auto.values())
            bias = [run["oa"] - run["truth"] for run in runs]
            tested = [_bias_of_tested(run) for run in runs]
            held = sum(run["oa_interval"][0] <= run["truth"] <= run["oa_interval"][1] for run in runs)
            truth = statistics.mean(run["truth"] for run in runs)
            numbers = f"{truth:.1f}", f"{statistics.mean(bias):+.1f}", f"{statistics.pstdev(bias):.1f}"
            known = [value for value in tested if value is not None]
            of_tested = f"{statistics.mean(known):+.1f}" if len(known) == len(runs) else "–"
            rows.append([f"{title}, {labels}", *numbers, of_tested, f"{held} of {len(runs)}"])
    biases = "reported − truth, mean | its spread | of the tested classes"
    return table(f"| scene, labels | truth | {biases} | interval holds the truth |", rows)


def _bias_of_tested(run: dict[str, Any]) -> float | None:
    """Reported accuracy less the truth of the classes that were tested; None: not measured."""
    truth = run.get("tested_truth", None if run["untested"] else run["truth"])
    return None if truth is None else float(run["oa"] - truth)


TABLES = {"short table": short_table, "accuracy table": accuracy_table, "score table": score_table}


if __name__ == "__main__":
    found = read()
    for page in (ROOT / "README.md", ROOT / "docs" / "evidence.md"):
        page.write_text(fill(page.read_text(encoding="utf-8"), TABLES, found), encoding="utf-8")
