"""``hypercaps train`` on a user's own labels: folds and auto, their figures, and how bad input is refused."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from click.testing import Result

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.loading import load_model
from support.command import hypercaps
from support.html_page import Page
from support.scenes import make_fields

FAST = ["--candidates", "lda,logistic"]


def first_line(result: Result) -> str:
    return result.stdout.splitlines()[0]


def metrics_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


def save(folder: Path, labels: np.ndarray, name: str = "labels.npy") -> Path:
    np.save(folder / name, labels)
    return folder / name


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("fields")
    cube, labels = make_fields(noise=150.0)
    np.save(folder / "cube.npy", cube)
    return folder / "cube.npy", save(folder, labels)


@pytest.fixture(scope="module")
def run(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("out") / "run"
    result = hypercaps("train", *files, "--out", out, *FAST)
    assert result.exit_code == 0, result.output
    return out, result


@pytest.fixture(scope="module")
def unscored(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("unscored") / "run"
    result = hypercaps("train", *files, "--out", out, "--split", "none", "--method", "lda")
    assert result.exit_code == 0, result.output
    return out, result


# ---- defaults --------------------------------------------------------------------------------------------------------


class StoppedError(Exception):
    """In place of a training."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ConvCapsClassifier]:
    """The classifiers that would be trained."""
    found: list[ConvCapsClassifier] = []

    def train_run(classifier: ConvCapsClassifier, *args: object) -> NoReturn:
        found.append(classifier)
        raise StoppedError

    monkeypatch.setattr("hypercaps.pipeline.train.train_run", train_run)
    return found


@pytest.mark.parametrize(
    ("options", "split", "method", "line"),
    [
        ([], "folds", "auto", "Method auto, spatial folds for the score, and all labels for the final model (your own"),
        (FAST, "folds", "auto", "Method auto, spatial folds"),
        (["--budget", 3], "folds", "auto", "Method auto, spatial folds"),
        (["--folds", 3], "folds", "auto", "Method auto, spatial folds"),
        (
            ["--method", "lda"],
            "folds",
            "lda",
            "Method lda, spatial folds for the score, and all labels for the final m",
        ),
        (["--epochs", 2], "folds", "convcapsnet", "Method convcapsnet, spatial folds"),
        (["--train", 0.3], "random", "auto", "Method auto, a random split (your own labels)."),
        (["--val", 0.2], "random", "auto", "Method auto, a random split"),
        (["--per-class", 9], "random", "auto", "Method auto, a random split"),
        (["--split", "random"], "random", "auto", "Method auto, a random split (your own labels; --split given)."),
        (["--split", "none"], "none", "auto", "Method auto, all labels train, nothing is scored (your own labels;"),
        (["--split", "blocks"], "blocks", "auto", "Method auto, a split by blocks (your own labels; --split given)."),
        (["--both"], "random", "convcapsnet", "Method convcapsnet, a random split"),
    ],
)
def test_defaults_for_own_labels(
    options: list[object],
    split: str,
    method: str,
    line: str,
    files: tuple[Path, Path],
    tmp_path: Path,
    asked: list[ConvCapsClassifier],
) -> None:
    result = hypercaps("train", *files, "--out", tmp_path / "run", *options)
    assert isinstance(result.exception, StoppedError), result.output
    assert first_line(result).startswith(line)
    (classifier,) = asked
    assert (classifier.split_by, classifier.method) == (split, method)


def test_options_reach_the_classifier(
    files: tuple[Path, Path], tmp_path: Path, asked: list[ConvCapsClassifier]
) -> None:
    hypercaps("train", *files, "--out", tmp_path / "r", "--folds", 4, "--block", 9, "--budget", 2.5, *FAST, "--seed", 6)
    given = asked[0].get_params()
    assert {key: given[key] for key in ("folds", "block", "budget", "candidates", "seed")} == {
        "folds": 4, "block": 9, "budget": 2.5, "candidates": ["lda", "logistic"], "seed": 6,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "split", "method", "line"),
    [
        (
            [],
            "random",
            "convcapsnet",
            "Method convcapsnet, a random split (labels of a public scene, as in the paper).",
        ),
        (["--split", "folds"], "folds", "convcapsnet", "Method convcapsnet, spatial folds"),
        (["--method", "auto"], "random", "auto", "Method auto, a random split (labels of a public scene, as in the"),
    ],
)
def test_defaults_for_a_public_scene(
    options: list[object], split: str, method: str, line: str, tmp_path: Path, asked: list[ConvCapsClassifier]
) -> None:
    result = hypercaps("train", "indian-pines", "--out", tmp_path / "run", *options)
    assert isinstance(result.exception, StoppedError), result.output
    assert first_line(result).startswith(line)
    assert (asked[0].split_by, asked[0].method) == (split, method)


def test_own_labels_on_a_public_scene_are_own_labels(tmp_path: Path, asked: list[ConvCapsClassifier]) -> None:
    labels = np.zeros((145, 145), dtype=np.int16)
    labels[5:9, 5:9], labels[40:44, 40:44] = 1, 2
    result = hypercaps("train", "indian-pines", save(tmp_path, labels), "--out", tmp_path / "run")
    assert "(your own labels)" in first_line(result)
    assert (asked[0].split_by, asked[0].method) == ("folds", "auto")


# ---- a run with folds ------------------------------------------------------------------------------------------------


def test_metrics_of_folds(run: tuple[Path, Result], files: tuple[Path, Path]) -> None:
    metrics = metrics_of(run[0])
    labelled = int((np.load(files[1]) > 0).sum())
    assert (metrics["split"], metrics["folds"], metrics["units"], metrics["n_units"]) == ("folds", 5, "areas", 16)
    assert metrics["n_train"] == metrics["n_test"] == labelled and metrics["n_val"] == 0 and metrics["untested"] == []
    confusion = np.array(metrics["confusion"])
    assert confusion.sum() == labelled and metrics["oa"] == pytest.approx(100 * np.trace(confusion) / confusion.sum())
    assert 60 < metrics["oa"] < 99.5
    for key in ("oa", "aa", "kappa"):
        low, high = metrics[f"{key}_interval"]
        assert low < metrics[key] < high
    for row in metrics["per_class"]:
        assert row["interval"][0] <= row["accuracy"] <= row["interval"][1] and 5 <= row["units"] <= 6
    assert "Held-out labels lie" in metrics["distances"]


def test_the_comparison_is_in_the_metrics(run: tuple[Path, Result]) -> None:
    metrics = metrics_of(run[0])
    rows = {row["name"]: row for row in metrics["candidates"]}
    assert list(rows) == ["lda", "logistic"]
    for name, row in rows.items():
        assert row["method"] == name and row["folds"] == 5 and row["seconds"] > 0
        assert row["oa_interval"][0] < row["oa"] < row["oa_interval"][1]
        assert row["outcome"] in ("chosen", "compared") or row["outcome"].startswith("weight 0.")
    shown = {key: rows["lda"][key] for key in ("oa", "seconds", "oa_interval")}
    assert metrics["baseline"] == {"method": "lda"} | shown
    assert metrics["params"] == {"method": "auto", "split_by": "folds", "candidates": ["lda", "logistic"]}


def test_areas_and_doubtful_labels_are_in_the_metrics(run: tuple[Path, Result], files: tuple[Path, Path]) -> None:
    metrics = metrics_of(run[0])
    assert [row["label"] for row in metrics["areas"]] == [1, 2, 3]
    assert sum(row["mapped"] for row in metrics["areas"]) == 40 * 40
    assert sum(row["area"] for row in metrics["areas"]) == pytest.approx(40 * 40)
    assert all(row["low"] <= row["area"] <= row["high"] and row["unit"] == "pixels" for row in metrics["areas"])
    with (run[0] / "doubtful.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert 0 < metrics["doubtful"] == sum(float(row["doubt"]) >= 0.5 for row in rows) < len(rows)
    # Every label that its out-of-fold prediction contradicts is listed.
    confusion = np.array(metrics["confusion"])
    assert len(rows) >= confusion.sum() - np.trace(confusion)
    with np.load(run[0] / "split.npz") as split:
        assert set(split.files) == {"train", "val", "test", "pixels", "fold", "unit"}
        np.testing.assert_array_equal(split["pixels"], np.flatnonzero(np.load(files[1])))
        assert sorted(set(split["fold"].tolist())) == [0, 1, 2, 3, 4]


def test_terminal_and_report_show_the_comparison(run: tuple[Path, Result]) -> None:
    out, result = run
    metrics = metrics_of(out)
    page = Page((out / "report.html").read_text())
    assert {row[0] for row in page.tables["Candidate"]} == {"lda", "logistic"}
    for text in (result.output, page.text):
        assert f"{metrics['oa']:.1f} %" in text and "out-of-fold pixels" in text
        assert f"{metrics['oa_interval'][0]:.1f} to {metrics['oa_interval'][1]:.1f}" in text


def test_python_gives_the_same(run: tuple[Path, Result], files: tuple[Path, Path]) -> None:
    scene, labels = Scene.from_array(np.load(files[0])), Labels.from_array(np.load(files[1]))
    fitted = ConvCapsClassifier(split_by="folds", method="auto", candidates=["lda", "logistic"]).fit(scene, labels)
    assert fitted.scores_.confusion.tolist() == metrics_of(run[0])["confusion"]
    loaded = load_model(run[0] / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(scene), fitted.predict_proba(scene))


def test_evaluate_on_the_same_labels_gives_the_stored_score(
    run: tuple[Path, Result], files: tuple[Path, Path], tmp_path: Path
) -> None:
    metrics, model = metrics_of(run[0]), run[0] / "model.safetensors"
    result = hypercaps("evaluate", model, *files, "--json", tmp_path / "s.json")
    assert result.exit_code == 0, result.output
    assert "trained on all of these labels" in result.stderr and "out-of-fold scores" in result.stderr
    scores = json.loads((tmp_path / "s.json").read_text())
    same = (
        "oa", "aa", "kappa", "oa_interval", "aa_interval", "kappa_interval", "confusion", "per_class", "n_train",
        "n_test", "split", "folds", "units", "n_units", "untested", "distances", "leakage", "baseline", "method",
        "ece_after", "coverage_90",
    )  # fmt: skip
    metrics["baseline"]["seconds"] = 0.0  # the model file has no times, so that the same command gives the same bytes
    assert {key: scores[key] for key in same} == {key: metrics[key] for key in same}
    printed = json.loads(hypercaps("evaluate", model, *files, "--json", "-").stdout)
    assert printed == scores


def test_evaluate_on_other_labels_scores_the_model(
    run: tuple[Path, Result], files: tuple[Path, Path], tmp_path: Path
) -> None:
    labels = np.load(files[1])
    labels[:20] = 0
    result = hypercaps("evaluate", run[0] / "model.safetensors", files[0], save(tmp_path, labels), "--json", "-")
    assert result.exit_code == 0, result.output
    assert "trained on all of these labels" not in result.stderr
    scores = json.loads(result.stdout)
    predicted = load_model(run[0] / "model.safetensors").predict(Scene.from_array(np.load(files[0])))
    assert scores["n_test"] == (labels > 0).sum() and scores["n_train"] is None and scores["split"] is None
    assert scores["oa"] == pytest.approx(100 * (predicted == labels)[labels > 0].mean())


# ---- no split --------------------------------------------------------------------------------------------------------


def test_a_run_without_a_score(unscored: tuple[Path, Result], files: tuple[Path, Path]) -> None:
    out, result = unscored
    metrics = metrics_of(out)
    labelled = int((np.load(files[1]) > 0).sum())
    assert metrics["oa"] is metrics["aa"] is metrics["kappa"] is metrics["oa_interval"] is None
    assert metrics["split"] == "none" and metrics["n_train"] == labelled and metrics["n_test"] == 0
    assert metrics["areas"] == metrics["candidates"] == metrics["confusion"] == [] and metrics["baseline"] is None
    said = f"Nothing was scored: all {labelled} labels were used for training (--split none)."
    assert said in result.output and said in Page((out / "report.html").read_text()).text
    assert (out / "map.tif").exists() and not (out / "reliability.png").exists()


def test_labels_that_all_trained_are_refused_for_an_evaluation(
    unscored: tuple[Path, Result], files: tuple[Path, Path], tmp_path: Path
) -> None:
    model = unscored[0] / "model.safetensors"
    refused(hypercaps("evaluate", model, *files), "trained on all of these labels", "none is left to test it")
    labels = np.load(files[1])
    labels[:20] = 0
    assert hypercaps("evaluate", model, files[0], save(tmp_path, labels)).exit_code == 0


# ---- bad input: one sentence, exit code 2, nothing written -----------------------------------------------------------


def refused(result: Result, *said: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("Error: "), result.stderr
    assert "Traceback" not in result.output
    for words in said:
        assert re.search(words, result.stderr), result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--folds", 1], ["the number of folds is 1: a whole number of 2 or more"]),
        (["--folds", 0], ["the number of folds is 0: a whole number of 2 or more"]),
        (["--folds", -3], ["the number of folds is -3: a whole number of 2 or more"]),
        (["--folds", 17], ["17 folds can't be made of the 16 areas", "from 2 to 16"]),
        (["--split", "folds", "--split-file", "x.npz"], ["--split-file and --split were both given"]),
        (["--split", "file"], ["there is no split 'file'"]),
        (["--folds", 3, "--split-file", "x.npz"], ["--split-file and --folds were both given"]),
        (["--split", "random", "--folds", 4], ["--folds has no meaning without --split folds"]),
        (["--train", 0.3, "--folds", 4], ["--folds has no meaning without --split folds"]),
        (["--split", "folds", "--train", 0.2], ["--train has no meaning with --split folds"]),
        (["--split", "folds", "--val", 0.2], ["--val has no meaning with --split folds"]),
        (["--split", "folds", "--per-class", 5], ["--per-class has no meaning with --split folds"]),
        (["--split", "folds", "--both"], ["--both has no meaning with --split folds"]),
        (["--split", "none", "--train", 0.2], ["--train has no meaning with --split none"]),
        (["--split", "fold"], ["no split 'fold'", "folds or none is expected"]),
        (["--candidates", "lda,logistik"], ["no candidate 'logistik'", r"did you mean logistic\?"]),
        (["--candidates", ","], ["no candidate is named"]),
        (["--candidates", "lda", "--method", "lda"], ["candidates has a meaning with method auto only"]),
        (["--budget", 1, "--method", "lda"], ["--budget has no meaning with --split folds and a named method"]),
        (["--budget", 0.00001, *FAST], ["too short for one candidate on 5 folds", "allow more .budget, in minutes."]),
        (["--budget", -1], ["the budget is -1.0", "above 0"]),
        (["--budget", 0], ["the budget is 0.0", "above 0"]),
        (["--budget", "nan"], ["the budget is nan", "above 0"]),
        (["--budget", "inf", *FAST], ["the budget is inf", "a number of minutes above 0"]),
        (["--patch", 5, "--method", "auto"], ["method auto chooses the patch itself"]),
        (["--epochs", 5, "--method", "auto"], ["method auto chooses the epochs itself"]),
        (["--batch-size", 5, *FAST], ["method auto chooses the batch size itself"]),
        (["--method", "lda", "--whitening", "dumped"], ["no whitening 'dumped'", "plain, damped, robust"]),
        (["--method", "random-forest", "--whitening", "damped"], ["does not whiten"]),
    ],
)
def test_bad_options(options: list[object], said: list[str], files: tuple[Path, Path], tmp_path: Path) -> None:
    refused(hypercaps("train", *files, "--out", tmp_path / "out", "--quiet", *options), *said)
    assert not (tmp_path / "out").exists()


def one_class() -> np.ndarray:
    return np.minimum(make_fields()[1], 1)


def one_area_each() -> np.ndarray:
    labels = np.zeros((40, 40), dtype=np.int16)
    labels[10:12, 10:12], labels[30:32, 30:32] = 1, 2
    return labels


def in_one_block() -> np.ndarray:
    """Two classes, mixed too finely for areas."""
    labels = np.zeros((40, 40), dtype=np.int16)
    labels[8:12, 8:12] = np.indices((4, 4)).sum(axis=0) % 2 + 1
    return labels


def one_pixel() -> np.ndarray:
    labels = np.zeros((40, 40), dtype=np.int16)
    labels[3, 5] = 1
    return labels


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (one_class, ["'labels' hold one class only", "two or more are needed"]),
        (one_area_each, ["every class of 'labels' has one area only", "--split none"]),
        (in_one_block, ["all labels of 'labels' lie in one block", "--split none"]),
        (one_pixel, ["'labels' lie in one point"]),
    ],
)
@pytest.mark.parametrize("method", ["auto", "lda"])
def test_labels_that_can_not_be_held_out(
    labels: Any, said: list[str], method: str, files: tuple[Path, Path], tmp_path: Path
) -> None:
    given = save(tmp_path, labels())
    refused(hypercaps("train", files[0], given, "--out", tmp_path / "out", "--quiet", "--method", method), *said)
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
def test_a_class_with_one_pixel_is_trained_not_tested_and_said(files: tuple[Path, Path], tmp_path: Path) -> None:
    labels = np.load(files[1])
    labels[8, 8] = 4
    result = hypercaps("train", files[0], save(tmp_path, labels), "--out", tmp_path / "out", *FAST)
    assert result.exit_code == 0, result.output
    assert "Warning: class 4 can't be tested" in result.stderr
    metrics = metrics_of(tmp_path / "out")
    assert metrics["untested"] == ["class 4"] and metrics["n_train"] == metrics["n_test"] + 1
    assert metrics["per_class"][3]["accuracy"] is None and metrics["per_class"][3]["test"] == 0
    assert "not tested" in result.stdout and "class 4" in Page((tmp_path / "out" / "report.html").read_text()).text
    assert load_model(tmp_path / "out" / "model.safetensors").classes_.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("bands", [1, 12])
def test_a_scene_with_few_bands(bands: int, tmp_path: Path) -> None:
    """The network adapts to short spectra; a method that can't do that names one that can."""
    cube, labels = make_fields(bands=12)
    np.save(tmp_path / "cube.npy", cube[..., 3 : 3 + bands] if bands == 1 else cube)
    files = tmp_path / "cube.npy", save(tmp_path, labels)
    options = "--no-map", "--method", "convcapsnet", "--recipe", "augmented", "--epochs", 4, "--split", "random"
    result = hypercaps("train", *files, "--out", tmp_path / "network", *options)
    assert result.exit_code == 0, result.output
    assert metrics_of(tmp_path / "network")["oa"] > (50 if bands == 1 else 90)
    found = hypercaps("train", *files, "--out", tmp_path / "auto", "--candidates", "lda,convcapsnet-1,convcapsnet-7")
    assert found.exit_code == 0 and metrics_of(tmp_path / "auto")["oa"] > 80, found.output
    other = hypercaps("train", *files, "--out", tmp_path / "other", "--method", "capsnet")
    refused(other, "at least 17 are needed", "such as convcapsnet or lda")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("options", [["--epochs", 1], ["--batch-size", 16, "--recipe", "augmented", "--epochs", 1]])
def test_options_of_a_network_are_not_those_of_the_lda_beside_it(options: list[object], tmp_path: Path) -> None:
    cube, labels = make_fields(24, 24, bands=26, side=4, gap=4)
    np.save(tmp_path / "cube.npy", cube)
    files = tmp_path / "cube.npy", save(tmp_path, labels)
    result = hypercaps("train", *files, "--out", tmp_path / "out", "--no-map", "--folds", 2, *options)
    assert result.exit_code == 0, result.output
    metrics = metrics_of(tmp_path / "out")
    assert metrics["method"] == "convcapsnet" and metrics["baseline"]["method"] == "lda"
    assert metrics["n_train"] == (labels > 0).sum()


def test_stored_scores_are_of_the_training_scene_alone(tmp_path: Path) -> None:
    cube, labels = make_fields()
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "other.npy", np.roll(cube, cube.shape[1] // 3, axis=1))  # other ground under the same labels
    truth, out = save(tmp_path, labels), tmp_path / "run"
    run = hypercaps("train", tmp_path / "cube.npy", truth, "--out", out, "--method", "lda", "--no-map")
    assert run.exit_code == 0, run.output
    figures = []
    for scene in ("cube.npy", "other.npy"):
        result = hypercaps("evaluate", out / "model.safetensors", tmp_path / scene, truth, "--json", "-")
        assert result.exit_code == 0, result.output
        figures.append(json.loads(result.stdout))
    assert figures[0]["split"] == "folds" and figures[1]["split"] is None
    assert figures[1]["oa"] < figures[0]["oa"]
