"""docs/results: records of finished runs that a fresh clone continues from, and pages made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hypercaps.study.folder import Classified, StudyFolder
from hypercaps.study.records import FinishedRun
from support.benchmark_scripts import ROOT, benchmark_script

PUBLISHED = StudyFolder(ROOT / "docs" / "results")


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with benchmark_script("publish_results") as module:
        yield module


@pytest.fixture
def run() -> FinishedRun:
    """A published run of Indian Pines at 20 %."""
    found = next(
        r for r in PUBLISHED.records() if (r.scene, r.method, r.train_share) == ("indian-pines", "rbf-svm", 0.2)
    )
    assert isinstance(found, FinishedRun)
    return found


def make(folder: Path, *records: FinishedRun) -> StudyFolder:
    (folder / "runs").mkdir(parents=True)
    study = StudyFolder(folder)
    for record in records:
        study.keep(record)
    return study


def pixels() -> Classified:
    labels = np.array([[1, 2], [1, 0]], np.int16)
    return Classified(labels, labels, np.array([0, 1]), np.array([1, 2]))


def test_the_published_records_are_runs_of_the_studies_with_all_epochs(script: ModuleType) -> None:
    records = PUBLISHED.records()
    assert records and {record.key for record in records} <= script.planned().keys()
    assert len(records) == len(list((PUBLISHED.out / "runs").iterdir()))  # none is damaged
    for record in records:
        assert isinstance(record, FinishedRun) and not record.cut_short and record.changed.epochs is None
        assert record.recipe_epochs in (None, record.epochs) and record.data


def test_make_results_does_the_same_studies(script: ModuleType) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in script.STUDIES:
        assert (
            f"hypercaps study benchmarks/studies/{name}.toml --out studies/results --workers {script.AT_ONCE}"
            in makefile
        )


def test_a_fresh_clone_continues_from_the_published_records(
    script: ModuleType, run: FinishedRun, tmp_path: Path
) -> None:
    published = make(tmp_path / "results", run)
    lines = script.start(tmp_path / "work", published.out)
    assert StudyFolder(tmp_path / "work").record(run.key) == run
    left = len(script.planned()) - 1
    assert lines[0] == f"1 finished runs are taken from results/runs; {left} of all studies are left."
    assert any("No estimate for" in line and "indian-pines 3d-cnn 20 %" in line for line in lines)
    assert script.start(tmp_path / "work", published.out)[0].startswith("0 finished runs")


def test_an_own_run_is_kept_and_one_that_was_cut_short_is_replaced(
    script: ModuleType, run: FinishedRun, tmp_path: Path
) -> None:
    published = make(tmp_path / "results", run)
    for own, expected in ((replace(run, oa=1.0), 1.0), (replace(run, oa=1.0, cut_short=True), run.oa)):
        work = tmp_path / f"cut {own.cut_short}"
        make(work, own)
        script.start(work, published.out)
        kept = StudyFolder(work).record(run.key)
        assert isinstance(kept, FinishedRun) and kept.oa == expected


def test_publishing_keeps_finished_runs_and_writes_the_pages(
    script: ModuleType, run: FinishedRun, tmp_path: Path
) -> None:
    other = next(key for key in script.planned() if key.startswith("indian-pines_rbf-svm") and key != run.key)
    published = make(tmp_path / "results", replace(run, key=other, oa=50.0), replace(run, key="of-no-study"))
    make(tmp_path / "work", run).keep(replace(run, key="cut", cut_short=True))
    script.publish(tmp_path / "work", published.out)
    assert {record.key for record in published.records()} == {run.key, other}
    page = (published.out / "results.md").read_text()
    assert "make results" in page and f"2 finished of {len(script.planned())} planned" in page
    assert len(json.loads((published.out / "results.json").read_text())) == 2
    assert not list(published.out.glob("*.npz")) and not list(published.out.glob("maps-*"))


def test_a_map_is_redrawn_if_the_pixels_of_all_methods_are_there(
    script: ModuleType, run: FinishedRun, tmp_path: Path
) -> None:
    mlp = next(key for key in script.planned() if key.startswith("indian-pines_mlp_tuned_20pct"))
    published = make(tmp_path / "results", run, replace(run, key=mlp, method="mlp", recipe="tuned"))
    picture = published.out / "maps-indian-pines-20pct.png"
    picture.write_bytes(b"earlier")
    work = make(tmp_path / "work")
    for key, redrawn in ((run.key, False), (mlp, True)):
        record = published.record(key)
        assert isinstance(record, FinishedRun)
        work.keep(record, pixels())
        script.publish(work.out, published.out)
        assert (picture.read_bytes() != b"earlier") == redrawn
        assert picture.name in (published.out / "results.md").read_text()
