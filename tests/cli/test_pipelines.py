"""For scripts: results on stdout and progress on stderr, --quiet, --json, and nothing imported that is not needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from hypercaps.cli import app
from support.scenes import make_cube, make_fields

NETWORK = ["--split", "random", "--recipe", "augmented", "--epochs", 2, "--no-map"]
IMPORTED = """
import sys
from typer.testing import CliRunner
from hypercaps.cli import app
assert CliRunner().invoke(app, sys.argv[1:]).exit_code == 0
print("torch" in sys.modules, "matplotlib" in sys.modules)
"""


def hypercaps(*args: object) -> Result:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.chdir(tmp_path)
    cube, labels = make_cube()
    np.save("cube.npy", cube)
    np.save("gt.npy", labels)
    return Path("cube.npy"), Path("gt.npy")


def test_progress_of_a_training_is_on_stderr_and_its_result_on_stdout(files: tuple[Path, Path]) -> None:
    result = hypercaps("train", *files, "--out", "run", *NETWORK)
    assert "training  epoch 1/2" in result.stderr and "training  epoch" not in result.stdout
    assert result.stdout.startswith("Method convcapsnet") and "OA" in result.stdout and "OA" not in result.stderr


def test_the_candidates_of_a_comparison_are_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cube, labels = make_fields()
    np.save("cube.npy", cube)
    np.save("gt.npy", labels)
    result = hypercaps("train", "cube.npy", "gt.npy", "--out", "run", "--candidates", "lda,logistic", "--no-map")
    assert "comparing  lda" in result.stderr and "lda: OA" in result.stderr
    assert "comparing" not in result.stdout and "lda: OA" not in result.stdout


def test_quiet_prints_one_line(files: tuple[Path, Path]) -> None:
    trained = hypercaps("train", *files, "--out", "run", *NETWORK, "--quiet")
    assert trained.stderr == "" and trained.stdout.count("\n") == 1
    assert trained.stdout.startswith("OA ") and "kappa" in trained.stdout and trained.stdout.endswith("   run\n")
    evaluated = hypercaps("evaluate", "run/model.safetensors", *files, "--quiet", "--json", "scores.json")
    assert evaluated.stderr == "" and evaluated.stdout == trained.stdout.replace("   run\n", "\n")
    assert json.loads(Path("scores.json").read_text())["oa"] > 20
    mapped = hypercaps("map", "run/model.safetensors", files[0], "--out", "m.tif", "--confidence", "c.tif", "--quiet")
    assert (mapped.stdout, mapped.stderr) == ("wrote m.tif\n", "") and Path("c.tif").exists()


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
def test_quiet_keeps_warnings_and_errors(files: tuple[Path, Path]) -> None:
    cube = np.load(files[0])
    cube[3, :, 5] = np.nan
    np.save(files[0], cube)
    result = CliRunner().invoke(app, ["train", *map(str, files), "--out", "run", "--method", "lda", "--quiet"])
    assert result.exit_code == 0 and result.stdout.count("\n") == 1
    lines = result.stderr.splitlines()  # of the labels and of the scene, which is read for training and for the map
    assert [line.split()[:2] for line in lines] == [["Warning:", "18"], ["Warning:", "36"]], lines
    again = CliRunner().invoke(app, ["train", *map(str, files), "--out", "run", "--method", "lda", "--quiet"])
    assert again.exit_code == 2 and again.stderr.startswith("Error: run already holds a run")


def test_train_writes_or_prints_its_metrics(files: tuple[Path, Path]) -> None:
    printed = hypercaps("train", *files, "--out", "run", *NETWORK, "--json", "-")
    assert json.loads(printed.stdout) == json.loads(Path("run/metrics.json").read_text())
    assert "training  epoch 1/2" in printed.stderr and "Method convcapsnet" in printed.stderr
    written = hypercaps("train", *files, "--out", "run", "--force", *NETWORK, "--json", "scores.json")
    assert Path("scores.json").read_bytes() == Path("run/metrics.json").read_bytes()
    assert "wrote scores.json" in written.stdout and "OA" in written.stdout


@pytest.mark.parametrize("name", ["cube.npy", "gt.npy", "run/model.safetensors"])
def test_metrics_never_replace_an_input_or_a_file_of_the_run(name: str, files: tuple[Path, Path]) -> None:
    Path("run").mkdir()
    arguments = ["train", *map(str, files), "--out", "run", "--method", "lda", "--json", name]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2 and "give the result a name of its own" in refused.output
    assert list(Path("run").iterdir()) == []


def test_a_map_without_a_picture_does_not_import_matplotlib(files: tuple[Path, Path]) -> None:
    hypercaps("train", *files, "--out", "run", "--method", "lda", "--no-map")
    for out, drawn in (("m.tif", False), ("m.png", True)):
        command = [sys.executable, "-c", IMPORTED, "map", "run/model.safetensors", str(files[0]), "--out", out]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert done.stdout.split() == ["True", str(drawn)]
