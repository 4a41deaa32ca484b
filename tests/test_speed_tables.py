"""What `make bench` found is written into docs/speed.md and README.md, at places that both have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from support.benchmark_scripts import ROOT, benchmark_script


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    with benchmark_script("speed_tables") as module:
        yield module


def results(tables: ModuleType, *, is_quick: bool = False) -> object:
    figures = [tables.Figure(name, 1234.5) for name in tables.ROWS]
    figures[0] = tables.Figure("map_over_limit", 2.346, 2.6)
    figures[3] = tables.Figure("map_vs_plain", 13.94, 7.0, at_least=True)
    figures[2] = tables.Figure("sgemm_gflops", 133.2)
    stages = [tables.DemoStage("imports", 1.0, 1.5), tables.DemoStage("training", 12.25, 20.0)]
    machine = {"threads": 2, "cores": 4, "cpu": "Some CPU", "compiled_kernels": "avx2", "system": "Linux",
               "python": "3.11.7", "torch": "2.13.0"}  # fmt: skip
    return tables.Results(figures, stages, machine, is_quick)


@pytest.mark.parametrize(("page", "places"), [("README.md", 1), ("docs/speed.md", 2)])
def test_the_pages_have_places_for_the_tables(page: str, places: int, tables: ModuleType) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    filled = tables.fill(text, tables.TABLES, results(tables))
    assert sum(make(results(tables)) in filled for make in tables.TABLES.values()) == places
    assert tables.fill(filled, tables.TABLES, results(tables)) == filled
    assert filled.partition("<!--")[0] == text.partition("<!--")[0]


def test_a_row_has_its_meaning_its_target_and_three_digits(tables: ModuleType) -> None:
    text = tables.figures_table(results(tables))
    assert "2 threads on 4 cores of Some CPU (133 GFLOP/s), avx2 kernels; Linux, Python 3.11.7, torch 2.13.0" in text
    assert "| `map_over_limit` | mapping over the limit | ≤ 2.6 | 2.35 |" in text
    assert "| `map_vs_plain` | mapping against the plain implementation at batch 256 | ≥ 7 | 13.9 |" in text
    assert "| `map_pixels_per_second` | pixels per second, mapping |  | 1,234 |" in text
    assert "| **sum** | 13.25 | 21.50 |" in tables.stages_table(results(tables).stages)


def test_results_are_kept_and_those_of_a_quick_run_are_not_published(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results.json")
    found = results(tables, is_quick=True)
    found.write()
    assert tables.Results.read() == found
    with pytest.raises(SystemExit, match="quick"):
        tables.main()
