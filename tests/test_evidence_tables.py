"""The tables of README.md and docs/evidence.md are those of the runs in docs/results/evidence.jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from support.benchmark_scripts import ROOT, benchmark_script


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    with benchmark_script("evidence_tables") as module:
        yield module


@pytest.mark.parametrize(("page", "places"), [("README.md", 1), ("docs/evidence.md", 2)])
def test_the_pages_show_the_runs(page: str, places: int, tables: ModuleType) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert sum(f"<!-- end of {name} -->" in text for name in tables.TABLES) == places
    assert tables.fill(text, tables.TABLES, tables.read()) == text, "run python benchmarks/evidence_tables.py"


def test_regret_is_that_of_the_draws_of_auto(tables: ModuleType) -> None:
    runs = [
        {"draw": draw, "method": method, "truth": truth}
        for draw, method, truth in (
            (1, "auto", 80.0),
            (1, "lda", 82.0),
            (2, "auto", 90.0),
            (2, "lda", 70.0),
            (3, "lda", 1.0),
        )
    ]
    group = tables.Group("enmap", runs)
    assert group.regret() == 1.0 and group.accuracy("lda") == "76.0" and group.accuracy("logistic") == "–"


def test_the_bias_of_tested_classes_is_left_open_where_it_was_not_measured(tables: ModuleType) -> None:
    def row(**second: object) -> str:
        run = {"draw": 1, "method": "auto", "oa": 99.0, "oa_interval": (90.0, 100.0), "truth": 98.0, "untested": 0}
        runs = [run, run | {"draw": 2, "truth": 79.0, "untested": 1} | second]
        table: str = tables.score_table({"score pavia fields": tables.Group("score pavia fields", runs)})
        return table.splitlines()[-1]

    assert "| 88.5 | +10.5 | 9.5 | – | 1 of 2 |" in row()
    assert "| 88.5 | +10.5 | 9.5 | +0.5 | 1 of 2 |" in row(tested_truth=99.0)
