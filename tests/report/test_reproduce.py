"""The Python code of a report runs as it is printed, and the words of the report are those of the method."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.cli import app
from hypercaps.pipeline.train import train_run
from support.html_page import Page
from support.scenes import make_cube
from support.vectors import write_scene_and_labels


def printed_code(report: Path) -> str:
    return unescape(re.findall(r"(?s)<pre>(.*?)</pre>", report.read_text(encoding="utf-8"))[-1])


def run_printed(report: Path) -> ConvCapsClassifier:
    names: dict[str, Any] = {}
    exec(compile(printed_code(report), "report", "exec"), names)
    classifier = names["classifier"]
    assert isinstance(classifier, ConvCapsClassifier)
    return classifier


def trained(*options: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["train", *map(str, options), "--out", "run", "--force", "--no-map"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(Path("run/metrics.json").read_text())
    return found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_code_trains_the_same_model(folder: Path) -> None:
    write_scene_and_labels(folder)
    polygons = ("scene.tif", "fields.gpkg", "--class-field", "kind", "--method", "lda")
    metrics = trained(*polygons, "--split", "random", "--seed", 3)
    again = run_printed(folder / "run" / "report.html")
    assert again.scores_.to_json()["confusion"] == metrics["confusion"]
    Path("run/split.npz").rename("split.npz")
    metrics = trained(*polygons, "--split-file", "split.npz")
    again = run_printed(folder / "run" / "report.html")
    assert again.scores_.to_json()["confusion"] == metrics["confusion"] and again.split_.kind == "file"


def test_the_code_of_a_comparison_runs_too(folder: Path) -> None:
    cube, labels = make_cube()
    np.save("it's a cube.npy", cube)
    np.save("gt.npy", labels)
    metrics = trained("it's a cube.npy", "gt.npy", "--candidates", "lda,logistic", "--folds", 2)
    assert run_printed(folder / "run" / "report.html").scores_.oa == pytest.approx(metrics["oa"])


def test_the_code_of_a_training_from_python_makes_its_classifier(folder: Path) -> None:
    cube, labels = make_cube()
    scene, truth = Scene.from_array(cube), Labels.from_array(labels)
    classifier = ConvCapsClassifier(method="lda", seed=4, train=0.3)
    train_run(classifier, scene, truth, folder / "run")
    assert run_printed(folder / "run" / "report.html").get_params() == classifier.get_params()


def test_an_svm_is_a_model_without_epochs_and_a_network_has_those_of_the_run(folder: Path) -> None:
    cube, labels = make_cube()
    np.save("cube.npy", cube)
    np.save("gt.npy", labels)
    trained("cube.npy", "gt.npy", "--method", "rbf-svm", "--split", "random")
    text = Page((folder / "run" / "report.html").read_text()).text
    assert "the model assigns to it" in text and "roducer's accuracy" in text and "ser's accuracy" in text
    assert not re.search("(?i)network|epoch|weights", text)
    metrics = trained("cube.npy", "gt.npy", "--epochs", 2, "--split", "random")
    text = Page((folder / "run" / "report.html").read_text()).text
    assert metrics["epochs"] == 4 and "4 epochs (2 of a first network and 2 of a second one); the weights are" in text
