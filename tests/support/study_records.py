"""Records of runs for the tables of a study, as read from JSON."""

from __future__ import annotations

from typing import Any

from hypercaps.study.document import Table
from hypercaps.study.groups import Column, group_runs
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.records import Record, read_record


def record(method: str = "convcapsnet", oa: float = 99.0, *, seed: int = 0, classes: int = 16, **others: Any) -> Record:
    changed = {"epochs": None, "batch_size": None, "structure": {}} | others.pop("changed", {})
    document = {
        "scene": "indian-pines",
        "method": method,
        "recipe": "paper",
        "train_share": 0.2,
        "seed": seed,
        "oa": oa,
        "aa": oa - 1,
        "kappa": oa - 2,
        "per_class": [
            {"label": i, "name": f"class {i}", "accuracy": oa + i / 100, "test": 9} for i in range(1, classes + 1)
        ],
        "parameters": 1000,
        "train_seconds": 60.0,
        "epochs": 50,
        "error": None,
        "recipe_epochs": 50,
        "changed": changed,
        "val_share": 0.1,
        "cut_short": False,
    }
    return read_record(document | others)


def failed(method: str, error: str, seed: int = 0) -> Record:
    document = {
        "scene": "salinas", "method": method, "recipe": "paper", "train_share": 0.05, "seed": seed, "oa": None,
        "aa": None, "kappa": None, "per_class": None, "parameters": None, "train_seconds": None, "epochs": None,
        "error": error,
    }  # fmt: skip
    return read_record(document)


def cells(table: Table, row: str) -> dict[str, str]:
    """A row by the text of its first cell."""
    [match] = [r for r in table.rows if r[0] == row]
    assert all(len(r) == len(table.head) for r in table.rows)
    return dict(zip(table.head, match, strict=True))


def first_group(records: list[Record]) -> tuple[str, LabelBudget, list[Column]]:
    ((scene, budget), columns) = next(iter(group_runs(records).items()))
    return scene, budget, columns
