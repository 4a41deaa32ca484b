"""Running studies on synthetic scenes: finished, stopped, killed and continued."""

from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import dask
import numpy as np
import psutil
import pytest

from hypercaps.compute.devices import threads_in_use, use_threads
from hypercaps.errors import DataWarning, OutputError
from hypercaps.study import cluster_runs, runs
from hypercaps.study.folder import StudyFolder
from hypercaps.study.plan import Study
from hypercaps.study.records import FinishedRun, Record
from hypercaps.study.study import StudyCallbacks, run_study
from hypercaps.study.study_file import open_study
from hypercaps.training.checkpoint_file import CheckpointFile
from support.killed import run_killed
from support.processes import worker_processes
from support.scenes import make_cube
from support.study_work import RunOrDie

pytestmark = pytest.mark.xdist_group("processes")

STUDY = """
title = "Made"
scenes = [{ name = "made", cube = "cube.npy", labels = "labels.npy" }]
train_shares = [0.4]
repeats = 2
[methods.rbf-svm]
[methods.convcapsnet]
epochs = 2
batch_size = 16
[methods.3d-cnn]
"""
KEYS = {
    "scene", "method", "recipe", "train_share", "seed", "oa", "aa", "kappa", "per_class", "parameters",
    "train_seconds", "epochs", "error",
}  # fmt: skip


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two methods that work and one that needs more bands than the scene has."""
    cube, labels = make_cube(rows=30, cols=30)
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "labels.npy", labels)
    (tmp_path / "made.toml").write_text(STUDY)
    return open_study(str(tmp_path / "made.toml"))


def results(out: Path) -> list[dict[str, object]]:
    return json.loads((out / "results.json").read_text())


def test_every_run_has_a_record_and_a_failed_run_does_not_stop_the_others(study: Study, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run_study(study, out, command="hypercaps study made.toml")
    assert (result.planned, result.done_before, result.done_now, result.failed, result.left) == (6, 0, 6, 2, 0)
    records = results(out)
    assert len(records) == 6 and all(set(record) >= KEYS for record in records)
    for record in records:
        if record["method"] == "3d-cnn":
            assert "26 bands are too few" in record["error"] and record["oa"] is None
        else:
            assert record["error"] is None and 0 <= record["oa"] <= 100
            assert [row["label"] for row in record["per_class"]] == [1, 2, 3]
            assert record["epochs"] == (1 if record["method"] == "rbf-svm" else 4)  # two of each stage
            assert record["train_seconds"] > 0 and record["parameters"] > 0
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == [record["method"] for record in records]
    page = (out / "results.md").read_text()
    assert "1D-ConvCapsNet" in page and "26 bands are too few" in page and "hypercaps study made.toml" in page
    assert {path.name for path in result.files} >= {"results.json", "results.csv", "results.md", "results.html"}
    # Paired tests need the same test pixels for both methods.
    tests = [np.load(path)["test"] for path in sorted((out / "runs").glob("*seed00*.npz"))]
    assert len(tests) == 2 and np.array_equal(*tests)


def test_finished_runs_are_not_repeated(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    run_study(study.only(methods=["rbf-svm"], repeats=1), out)
    before = {path: path.read_bytes() for path in (out / "runs").iterdir()}
    done: list[Record] = []
    result = run_study(
        study.only(methods=["rbf-svm", "convcapsnet"]), out, callbacks=StudyCallbacks(on_done=done.append)
    )
    assert (result.done_before, result.done_now) == (1, 3)
    assert sorted((r.method, r.seed) for r in done) == [("convcapsnet", 0), ("convcapsnet", 1), ("rbf-svm", 1)]
    assert all(path.read_bytes() == content for path, content in before.items())
    assert len(results(out)) == 4

    def fail(*args: object) -> None:
        raise AssertionError("no run is left")

    monkeypatch.setattr(runs, "attempt_run", fail)
    left = StudyFolder(out).checkpoint(study.settings()[0].key)  # as by a kill after the record was written
    left.write_text("half")
    assert run_study(study.only(methods=["rbf-svm", "convcapsnet"]), out).done_before == 4
    assert not left.exists()


def test_workers_give_the_same_results_to_the_bit(study: Study, tmp_path: Path) -> None:
    part = study.only(methods=["rbf-svm", "convcapsnet"], repeats=1)
    threads = threads_in_use()
    use_threads(max(1, (os.cpu_count() or 1) // 2))  # as many as each of two workers has
    try:
        run_study(part, tmp_path / "one")
    finally:
        use_threads(threads)
    run_study(part, tmp_path / "two", workers=2)
    one, two = results(tmp_path / "one"), results(tmp_path / "two")
    for record in (*one, *two):
        assert record.pop("train_seconds") > 0
    assert one == two
    for path in (tmp_path / "one" / "runs").glob("*.npz"):
        with np.load(path) as ours, np.load(tmp_path / "two" / "runs" / path.name) as theirs:
            assert all(np.array_equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.filterwarnings("ignore:worker .* died")
@pytest.mark.parametrize(("deaths", "failed"), [(1, 0), (9, 1)])
def test_a_killed_worker_costs_at_most_its_run(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, failed: int
) -> None:
    """The run of a killed worker is done again; one that kills several workers fails, and the others go on."""
    (tmp_path / "deaths").mkdir()
    monkeypatch.setattr(cluster_runs, "run_on_worker", RunOrDie("convcapsnet", deaths, tmp_path / "deaths"))
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):
        part = study.only(methods=["convcapsnet", "rbf-svm"], repeats=1)
        result = run_study(part, tmp_path / "out", workers=2)
    assert (result.done_now, result.failed) == (2, failed)
    errors = {(record["method"], record["error"]) for record in results(tmp_path / "out")}
    assert ("rbf-svm", None) in errors and len(errors) == 2
    [error] = [error for method, error in errors if method == "convcapsnet"]
    assert (error is None) == (failed == 0) and (error is None or "2 workers died" in error)


def test_a_study_stops_at_its_budget_and_can_be_continued(study: Study, tmp_path: Path) -> None:
    part = study.only(methods=["convcapsnet"], repeats=3)
    out = tmp_path / "out"
    spent = run_study(part, out, budget_minutes=1e-9)
    assert spent.done_now == 0 and spent.left == 3
    assert "no run" in (out / "results.md").read_text().lower()
    assert run_study(part, out).left == 0


def test_a_run_that_is_cut_short_keeps_its_best_epoch_and_is_repeated_later(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = study.only(methods=["convcapsnet"], repeats=1)
    calls = itertools.count()
    monkeypatch.setattr(runs, "is_over", lambda deadline: next(calls) > 20)  # the time is over in the second epoch
    result = run_study(part, tmp_path / "out", budget_minutes=10)
    monkeypatch.undo()
    [record] = results(tmp_path / "out")
    assert record["cut_short"] and result.left == 1
    assert run_study(part, tmp_path / "out").done_now == 1
    [record] = results(tmp_path / "out")
    assert not record["cut_short"] and record["epochs"] == 4


def history(out: Path) -> tuple[tuple[float | None, float | None], ...]:
    [record] = StudyFolder(out).records()
    assert isinstance(record, FinishedRun)
    return record.history


def test_a_killed_study_continues_its_run_and_has_the_same_result(study: Study, tmp_path: Path) -> None:
    """It is continued by a worker process."""
    part, out = study.only(methods=["convcapsnet"], repeats=1), tmp_path / "out"
    options = ["--methods", "convcapsnet", "--repeats", 1, "--workers", 1]
    run_killed(0.7, "study", tmp_path / "made.toml", "--out", out, *options)
    assert len(list((out / "runs").glob("*.checkpoint.safetensors"))) == 1 and not list((out / "runs").glob("*.json"))
    starts, shares = [], []
    watch = StudyCallbacks(on_start=starts.append, on_progress=lambda setting, now: shares.append(now.done))
    assert run_study(part, out, workers=2, callbacks=watch).done_now == 1
    assert starts[0].begun_before == 1 and all(share > 0.6 for share in shares)
    assert {path.suffix for path in (out / "runs").iterdir()} == {".json", ".npz"}
    run_study(part, tmp_path / "whole")
    assert history(out) == history(tmp_path / "whole")
    [path] = (out / "runs").glob("*.npz")
    with np.load(path) as ours, np.load(tmp_path / "whole" / "runs" / path.name) as theirs:
        assert np.array_equal(ours["classes"], theirs["classes"])


def test_a_run_that_is_cut_short_continues_where_it_was(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, out = study.only(methods=["convcapsnet"], repeats=1), tmp_path / "out"
    for limit in (3, 30):  # calls; before the first epoch ends, and later
        calls = itertools.count()
        monkeypatch.setattr(runs, "is_over", lambda deadline, calls=calls, limit=limit: next(calls) > limit)
        assert run_study(part, out, budget_minutes=10).left == 1
    monkeypatch.undo()
    shares: list[float] = []
    run_study(part, out, callbacks=StudyCallbacks(on_progress=lambda setting, now: shares.append(now.done)))
    run_study(part, tmp_path / "whole")
    assert shares[0] > 0.2 and history(out) == history(tmp_path / "whole")


def test_a_checkpoint_of_another_run_fails_the_run_and_stays(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, out = study.only(methods=["convcapsnet"], repeats=1), tmp_path / "out"
    calls = itertools.count()
    monkeypatch.setattr(runs, "is_over", lambda deadline: next(calls) > 5)
    run_study(part, out, budget_minutes=10)
    monkeypatch.undo()
    cube = np.load(tmp_path / "cube.npy")
    np.save(tmp_path / "cube.npy", cube + 1)
    assert run_study(part, out).failed == 1
    assert "is of a training with another scene" in results(out)[0]["error"]
    [checkpoint] = (out / "runs").glob("*.checkpoint.safetensors")
    checkpoint.unlink()
    assert run_study(part, out).failed == 0


def test_a_run_of_another_process_is_left_to_it(study: Study, tmp_path: Path) -> None:
    part, out = study.only(methods=["convcapsnet"]), tmp_path / "out"
    (out / "runs").mkdir(parents=True)
    doing = "another hypercaps is doing run made_convcapsnet.*seed00"
    first = StudyFolder(out).checkpoint(part.settings()[0].key)
    with CheckpointFile(first), pytest.warns(DataWarning, match=doing):
        result = run_study(part, out)
    assert (result.done_now, result.left) == (1, 1)


def test_ctrl_c_writes_the_pages_of_the_finished_runs(study: Study, tmp_path: Path) -> None:
    def stop(record: Record) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "out", callbacks=StudyCallbacks(on_done=stop))
    assert len(results(tmp_path / "out")) == 1


def test_scenes_that_cannot_be_opened_are_listed(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_MIRROR", "http://127.0.0.1:9")  # no server there
    part = study.only(methods=["rbf-svm"], scenes=["made", "pavia-university"], repeats=1)
    result = run_study(part, tmp_path / "out")
    assert list(result.missing) == ["pavia-university"]
    assert result.done_now == 1
    for page in ("results.md", "results.html"):
        assert "pavia-university" in (tmp_path / "out" / page).read_text()


def test_a_folder_with_other_files_is_refused(study: Study, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("important")
    with pytest.raises(OutputError, match="holds files that are no study's"):
        run_study(study, tmp_path / "full")
    (tmp_path / "early" / "runs").mkdir(parents=True)  # as left by a study that was killed at once
    assert run_study(study.only(methods=["rbf-svm"], repeats=1), tmp_path / "early").done_now == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        run_study(study, tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="is a link to nothing"):
        run_study(study, tmp_path / "link")


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
def test_a_pipe_in_the_folder_is_not_waited_for(study: Study, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    os.mkfifo(tmp_path / "study.json")
    with pytest.raises(OutputError, match=r"study\.json can't be written: it is a device or a pipe"):
        run_study(study.only(methods=["rbf-svm"], repeats=1), tmp_path)


def test_a_run_with_a_damaged_record_is_repeated(study: Study, tmp_path: Path) -> None:
    part, out = study.only(methods=["rbf-svm"], repeats=1), tmp_path / "out"
    run_study(part, out)
    [path] = (out / "runs").glob("*.json")
    whole = json.loads(path.read_text())
    for damaged in (
        "{}", "[]", '{"scene":', json.dumps(whole | {"oa": "high"}), json.dumps(whole | {"oa": float("nan")}),
        json.dumps(whole | {"per_class": 3}), json.dumps(whole | {"history": [1, 2]}),
    ):  # fmt: skip
        path.write_text(damaged)
        result = run_study(part, out)
        assert (result.done_before, result.done_now) == (0, 1), damaged
        assert len(results(out)) == 1


def test_runs_are_repeated_if_the_data_change(study: Study, tmp_path: Path) -> None:
    part, out = study.only(methods=["rbf-svm"], repeats=1), tmp_path / "out"
    run_study(part, out)
    labels = np.load(tmp_path / "labels.npy")
    np.save(tmp_path / "labels.npy", np.where(labels == 3, 2, labels))
    assert run_study(part, out).done_now == 1
    assert [row["label"] for row in results(out)[0]["per_class"]] == [1, 2]
    cube = np.load(tmp_path / "cube.npy")
    cube[0, 0, 0] += 1
    np.save(tmp_path / "cube.npy", cube)
    assert run_study(part, out).done_now == 1
    assert run_study(part, out).done_now == 0


def test_a_failed_run_is_tried_again(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, out = study.only(methods=["rbf-svm"], repeats=1), tmp_path / "out"

    def too_much(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(runs, "_train_and_score", too_much)
    assert run_study(part, out).failed == 1
    assert results(out)[0]["error"] == "not enough memory"
    monkeypatch.undo()
    starts = []
    assert run_study(part, out, callbacks=StudyCallbacks(on_start=starts.append)).failed == 0
    assert starts[0].failed_before == 1 and results(out)[0]["error"] is None


def test_a_shorter_budget_does_not_replace_a_longer_training(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, out = study.only(methods=["convcapsnet"], repeats=1), tmp_path / "out"
    for limit in (20, 3):  # calls; the second ends before the first epoch does
        calls = itertools.count()
        monkeypatch.setattr(runs, "is_over", lambda deadline, calls=calls, limit=limit: next(calls) > limit)
        assert run_study(part, out, budget_minutes=10).left == 1
        assert results(out)[0]["epochs"] == 1 and results(out)[0]["error"] is None


def test_several_studies_share_a_folder(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_MIRROR", "http://127.0.0.1:9")
    out = tmp_path / "out"
    run_study(study.only(methods=["rbf-svm"], scenes=["pavia-university"], repeats=1), out, command="hypercaps one")
    run_study(study.only(methods=["rbf-svm"], repeats=1), out, command="hypercaps two")
    page = (out / "results.md").read_text()
    assert "hypercaps one" in page and "hypercaps two" in page and "pavia-university" in page
    assert "1 finished of 2 planned" in page


def test_workers_end_when_their_study_is_killed(tmp_path: Path, study: Study) -> None:
    """No process is left behind that continues to compute."""
    study_file = tmp_path / "made.toml"
    study_file.write_text(STUDY.replace("epochs = 2", "epochs = 100000").replace("[methods.rbf-svm]\n", ""))
    command = [sys.executable, "-m", "hypercaps", "study", str(study_file), "--out", str(tmp_path / "out")]
    parent = subprocess.Popen([*command, "--methods", "convcapsnet", "--workers", "2"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while len(workers := worker_processes(parent.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert len(workers) == 2
    finally:
        parent.kill()
        parent.wait()
    gone, alive = psutil.wait_procs(workers, timeout=60)
    for process in alive:
        process.kill()
    assert len(gone) == 2 and not alive


FEW = """
scenes = [{ name = "made", cube = "cube.npy", labels = "labels.npy" }]
train_shares = [0.3]
splits = ["random", "blocks"]
block = 10
guard = 2
per_class = [3, 400]
repeats = 2
[methods.rbf-svm]
"""


def test_a_study_of_few_labels_by_both_splits(tmp_path: Path) -> None:
    cube, labels = make_cube(rows=60, cols=60)
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "labels.npy", labels)
    (tmp_path / "few.toml").write_text(FEW)
    out = tmp_path / "out"
    result = run_study(open_study(str(tmp_path / "few.toml")), out)
    assert (result.planned, result.failed, result.left) == (8, 0, 0)
    records = {(r["split"], r["labels_per_class"], r["seed"]): r for r in results(out)}
    assert records["random", 3, 0]["n_train"] == records["blocks", 3, 0]["n_train"] == 9
    half = sum(int((labels == k).sum()) // 2 for k in (1, 2, 3))
    assert records["random", 400, 0]["n_train"] == half  # at most half of the pixels of a class
    assert records["blocks", 3, 1]["n_test"] == records["blocks", 400, 1]["n_test"]
    for (split, _, _), record in records.items():
        assert (record["block"], record["guard"]) == ((10, 2) if split == "blocks" else (None, None))
        assert record["leakage"] == 0.0  # rbf-svm uses single pixels
    page = (out / "results.md").read_text()
    assert "Learning curve: made, OA by the number of labels per class" in page
    assert "3 labels per class, blocks of 10 for training" in page and "3 labels per class for training" in page
    assert "At most half of the pixels of a class" in page and "Blocks of 10 x 10 pixels belong entirely" in page
    assert {path.name for path in out.glob("maps-*.png")} == {
        f"maps-made-{n}each{by}.png" for n in (3, 400) for by in ("", "-blocks10")
    }
