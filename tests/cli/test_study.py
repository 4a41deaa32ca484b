"""``hypercaps methods`` and ``hypercaps study``, and the paper's other methods, from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from hypercaps.compute.devices import threads_in_use, use_threads
from hypercaps.models.registry import METHODS
from support.command import hypercaps
from support.scenes import make_cube


def refused(*args: object) -> str:
    """The message of a command that must fail."""
    result = hypercaps(*args)
    assert result.exit_code == 2 and "Traceback" not in result.output, result.output
    return " ".join(result.output.split())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a cube, its labels and a study of them."""
    cube, labels = make_cube()
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "labels.npy", labels)
    (tmp_path / "mine.toml").write_text(
        'scenes = [{ name = "mine", cube = "cube.npy", labels = "labels.npy" }]\ntrain_shares = [0.3]\n'
        "[methods.rbf-svm]\n[methods.convcapsnet]\nepochs = 1\n"
    )
    return tmp_path


def test_methods_as_json() -> None:
    listed = json.loads(hypercaps("methods", "--bands", 220, "--classes", 16, "--json").output)
    assert [method["name"] for method in listed] == list(METHODS)
    by_name = {method["name"]: method for method in listed}
    assert by_name["convcapsnet"]["parameters"] == 409_168 and by_name["capsnet"]["parameters"] == 7_387_904
    assert by_name["rbf-svm"]["parameters"] is None  # depends on the number of support vectors
    assert {name: method["patch"] for name, method in by_name.items()} == {
        "convcapsnet": 7, "rbf-svm": 1, "rbf-svm-window": 7, "mlp": 1, "se-2d-cnn": 9, "3d-cnn": 27, "c-cnn": 7,
        "capsnet": 7, "lda": 1, "logistic": 1, "random-forest": 1,
    }  # fmt: skip
    for method in listed:
        assert method["recipe"] in method["recipes"]
        assert "paper" in method["recipes"] or method["name"] in ("rbf-svm-window", "lda", "logistic", "random-forest")
    assert all(method["parameters"] is None for method in json.loads(hypercaps("methods", "--json").output))


def test_methods_as_text() -> None:
    text = hypercaps("methods", "--bands", 60, "--classes", 4).output
    for method in METHODS.values():
        assert method.name in text
    assert "60 bands are too few for three windows of 32" in " ".join(text.split())  # of 3d-cnn; the others are listed
    assert "give both" in refused("methods", "--bands", 60)


@pytest.mark.parametrize("name", ["rbf-svm", "c-cnn", "lda", "random-forest"])
def test_a_run_of_another_method(files: Path, name: str) -> None:
    options = ["--epochs", 2] if METHODS[name].recipe().has_epochs else []
    result = hypercaps(
        "train", files / "cube.npy", files / "labels.npy", "--out", files / "run", "--method", name, *options
    )
    assert result.exit_code == 0, result.output
    metrics = json.loads((files / "run" / "metrics.json").read_text())
    assert metrics["method"] == name and metrics["recipe"] == METHODS[name].default_recipe and metrics["oa"] > 50
    model = files / "run" / "model.safetensors"
    assert hypercaps("map", model, files / "cube.npy", "--out", files / "map.tif").exit_code == 0
    assert (files / "map.tif").read_bytes() == (files / "run" / "map.tif").read_bytes()
    again = hypercaps("evaluate", model, files / "cube.npy", files / "labels.npy", "--json", "-")
    assert json.loads(again.stdout)["oa"] == metrics["oa"]
    assert name in hypercaps("info", model).output


def test_unsuitable_options_and_scenes_of_a_method_are_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*options: object) -> str:
        message = refused("train", files / "cube.npy", files / "labels.npy", "--out", files / "run", *options)
        assert not (files / "run").exists()
        return message

    assert "there is no method 'svm': known are convcapsnet, rbf-svm, rbf-svm-window, mlp" in train("--method", "svm")
    assert "26 bands are too few for three windows of 32: at least 94" in train("--method", "3d-cnn")
    assert "looks at single pixels" in train("--method", "mlp", "--patch", 3)
    assert "rbf-svm is solved at once" in train("--method", "rbf-svm", "--epochs", 3)
    small = np.load(files / "cube.npy")[:8, :, :], np.load(files / "labels.npy")[:8]
    for name, array in zip(("cube.npy", "labels.npy"), small, strict=True):
        np.save(files / name, array)
    assert "looks at patches of 9 x 9 pixels but scene 'cube' has 8 x 36" in train("--method", "se-2d-cnn")
    monkeypatch.setattr("hypercaps.training.memory.available_memory", lambda: 10**6)
    assert "of memory are free: give a smaller batch size" in train("--method", "mlp")


def test_a_study_can_be_continued(files: Path) -> None:
    out = files / "out"
    first = hypercaps("study", files / "mine.toml", "--out", out, "--methods", "rbf-svm")
    assert first.exit_code == 0 and "1 runs" in first.output and "results.html" in first.output
    second = hypercaps("study", files / "mine.toml", "--out", out, "--repeats", 2)
    assert second.exit_code == 0, second.output
    assert "4 runs, 1 of them done before" in second.output and "4/4 mine," in second.output
    estimate = " for 1 run, by the times of earlier runs.\nNo estimate for 2 runs, because none like them is finished: "
    assert f"{estimate}mine convcapsnet 30 % (2)." in second.output
    records = json.loads((out / "results.json").read_text())
    assert sorted((r["method"], r["seed"]) for r in records) == [
        ("convcapsnet", 0), ("convcapsnet", 1), ("rbf-svm", 0), ("rbf-svm", 1),
    ]  # fmt: skip
    assert {"results.csv", "results.md", "results.html", "study.json", "runs"} <= {p.name for p in out.iterdir()}


def test_one_worker_leaves_a_core_free(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    before = threads_in_use()
    study = ["study", files / "mine.toml", "--methods", "rbf-svm"]
    try:
        for options, threads in (([], before), (["--workers", 1], 3)):
            out = files / f"{threads} threads"
            assert hypercaps(*study, "--out", out, *options).exit_code == 0
            assert [record["threads"] for record in json.loads((out / "results.json").read_text())] == [threads]
    finally:
        use_threads(before)


def test_missing_scenes_are_listed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_MIRROR", "http://127.0.0.1:9")  # no server there
    out = files / "out"
    result = hypercaps("study", "paper-small", "--out", out, "--scenes", "salinas-a", "--repeats", 1)
    assert result.exit_code == 2 and "Traceback" not in result.output, result.output
    assert "Error: no run could be done: no scene of the study could be opened (salinas-a)" in result.stderr
    assert "Missing salinas-a" in result.output and "Missing scenes: salinas-a" in result.output
    assert json.loads((out / "results.json").read_text()) == []
    assert "salinas-a" in (out / "results.md").read_text()


def test_the_exit_code_of_a_study_without_any_result(files: Path) -> None:
    study, out = files / "mine.toml", files / "out"
    study.write_text(study.read_text().replace("[methods.convcapsnet]\nepochs = 1\n", "[methods.3d-cnn]\n"))
    failed = hypercaps("study", study, "--out", out, "--methods", "3d-cnn")  # the scene has too few bands for it
    assert failed.exit_code == 1 and "Traceback" not in failed.output, failed.output
    assert failed.stderr.endswith("\nError: no run succeeded: all 1 that were tried failed\n")
    assert "Failed runs: 1" in failed.output
    assert hypercaps("study", study, "--out", out, "--budget", 1e-9).exit_code == 0  # all runs are left for later
    assert hypercaps("study", study, "--out", out).exit_code == 0  # one of two has a result
    scenes = '{ name = "mine", cube = "cube.npy", labels = "labels.npy" }'
    study.write_text(
        study.read_text().replace(scenes, f'{scenes}, {{ name = "gone", cube = "a.npy", labels = "b.npy" }}')
    )
    assert hypercaps("study", study, "--out", out).exit_code == 0
    missing = hypercaps("study", study, "--out", out, "--scenes", "gone")
    assert missing.exit_code == 2 and "could be opened (gone)" in missing.stderr
    quiet = hypercaps("study", study, "--out", out, "--scenes", "gone", "--quiet")
    assert quiet.exit_code == 2 and "Missing gone: there is no file" in quiet.stderr
    failed = hypercaps("study", study, "--out", files / "new", "--methods", "3d-cnn", "--scenes", "mine", "--quiet")
    assert failed.exit_code == 1 and "failed" in failed.stderr.partition("Error:")[0]
    partly = hypercaps("study", study, "--out", files / "other", "--methods", "3d-cnn")
    assert partly.exit_code == 1 and "Missing scenes: gone" in partly.output


def test_an_invalid_study_is_refused_in_one_sentence(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = files / "out"
    assert "give a TOML file, or one of few-labels, paper-convergence" in refused("study", "papers", "--out", out)
    message = refused("study", "quick", "--out", out, "--methods", "cnn")
    assert "there is no method 'cnn': known are convcapsnet, rbf-svm" in message
    message = refused("study", "quick", "--out", out, "--scenes", "indian")
    assert "there is no scene 'indian' in the study: give one of indian-pines" in message
    assert "--scenes is empty" in refused("study", "quick", "--out", out, "--scenes", ",")
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'hypercaps[cluster]'" in refused("study", "quick", "--out", out, "--workers", 2)
    assert "leaves no time" in refused("study", "quick", "--out", out, "--budget", 0)
    assert not out.exists()
    assert "holds files that are no study's" in refused("study", files / "mine.toml", "--out", files)
