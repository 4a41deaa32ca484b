"""The command line: what it writes and prints, and how it refuses bad input."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
import scipy.io
from click.testing import Result
from typer.testing import CliRunner

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.cli import app
from hypercaps.inference.model_file import read_model, write_model
from support.scenes import QUICK, make_cube

QUICK_OPTIONS = ["--train", str(QUICK["train"]), "--epochs", str(QUICK["epochs"]), "--batch-size", "16"]
MAPS = {"map.tif", "map.tif.aux.xml", "map.qml", "confidence.tif", "familiarity.tif", "map.png"}
REPORT = {"report.html", "scene.png", "labels.png", "classes.json"}
RUN_FILES = {
    "model.safetensors", "metrics.json", "history.csv", "split.npz", "curves.png", "reliability.png", *MAPS, *REPORT,
}  # fmt: skip


def hypercaps(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A cube and its labels in one .mat each."""
    cube, labels = make_cube()
    scipy.io.savemat(tmp_path / "cube.mat", {"cube": cube})
    scipy.io.savemat(tmp_path / "gt.mat", {"gt": labels.astype(float)})
    return tmp_path / "cube.mat", tmp_path / "gt.mat"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path, Result]:
    """One run of the whole main job on files: cube, labels, the run's folder, and what was said."""
    folder = tmp_path_factory.mktemp("run")
    cube, labels = make_cube()
    np.save(folder / "cube.npy", cube)
    scipy.io.savemat(folder / "gt.mat", {"gt": labels})
    result = hypercaps(
        "train", folder / "cube.npy", folder / "gt.mat", "--out", folder / "new" / "out", *QUICK_OPTIONS, "--seed", 3
    )
    assert result.exit_code == 0, result.output
    return folder / "cube.npy", folder / "gt.mat", folder / "new" / "out", result


def test_train_writes_the_run_and_nothing_else(run: tuple[Path, Path, Path, Result]) -> None:
    *_, out, result = run
    assert {path.name for path in out.iterdir()} == RUN_FILES
    assert "OA" in result.output and "map.png" in result.output and "of the test pixels" in result.output


def test_metrics_have_the_documented_keys(run: tuple[Path, Path, Path, Result]) -> None:
    metrics = json.loads((run[2] / "metrics.json").read_text())
    assert {
        "oa", "aa", "kappa", "per_class", "confusion", "n_train", "n_val", "n_test", "leakage", "parameters",
        "train_seconds", "best_epoch", "epochs", "seed", "method", "recipe", "scene",
    } <= set(metrics)  # fmt: skip
    assert 95 < metrics["oa"] <= 100 and metrics["kappa"] > 90
    assert [set(row) for row in metrics["per_class"]] == [
        {"label", "name", "accuracy", "test", "interval", "users_interval", "units"}
    ] * 3
    assert sum(map(sum, metrics["confusion"])) == metrics["n_test"]
    assert 0 <= metrics["leakage"] <= 1
    assert metrics["calibration"] in ("temperature", "isotonic") and len(metrics["reliability"]["after"]) == 15
    assert 0 <= metrics["ece_after"] <= 1 and 0 <= metrics["ece_before"] <= 1 and metrics["coverage_90"] > 0.85
    assert [row["threshold"] for row in metrics["rejection"]] == [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
    assert (metrics["seed"], metrics["method"], metrics["recipe"]) == (3, "convcapsnet", "best")
    assert metrics["epochs"] == metrics["best_epoch"] == 8 + 6 and metrics["scene"] == "cube"


def test_history_has_a_line_for_each_epoch(run: tuple[Path, Path, Path, Result]) -> None:
    with (run[2] / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "loss", "val_oa", "seconds", "stage"]
    assert [int(row["epoch"]) for row in rows] == list(range(1, 15))
    assert [int(row["stage"]) for row in rows] == [1] * 8 + [2] * 6
    assert max(float(row["val_oa"]) for row in rows) > 95


def test_the_maps_are_rasters_with_colours(run: tuple[Path, Path, Path, Result]) -> None:
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning):
        raster = rasterio.open(run[2] / "map.tif")
    with raster:
        assert (raster.height, raster.width, raster.count, raster.nodata) == (36, 36, 1, 0)
        colors = raster.colormap(1)
        assert raster.dtypes == ("uint8",) and len({colors[label][:3] for label in (1, 2, 3)}) == 3
        classes = raster.read(1)
    assert set(np.unique(classes)) == {1, 2, 3}
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning):
        raster = rasterio.open(run[2] / "confidence.tif")
    with raster:
        assert raster.dtypes == ("float32",) and np.isnan(raster.nodata)
        confidence = raster.read(1)
    assert (confidence > 0).all() and (confidence < 1).all()


@pytest.mark.parametrize("name", ["map.png", "curves.png", "reliability.png"])
def test_the_pictures_are_pictures(run: tuple[Path, Path, Path, Result], name: str) -> None:
    from matplotlib.image import imread

    picture = imread(run[2] / name)
    assert min(picture.shape[:2]) > 200 and picture[..., :3].std() > 0.05


def test_the_split_file_repeats_the_run(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, out, _ = run
    again = hypercaps(
        "train", cube, labels, "--out", tmp_path / "again", *QUICK_OPTIONS[2:], "--seed", 3, "--no-map", "--split-file",
        out / "split.npz",
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    assert {path.name for path in (tmp_path / "again").iterdir()} == RUN_FILES - MAPS
    first, second = (json.loads((folder / "metrics.json").read_text()) for folder in (out, tmp_path / "again"))
    assert first["confusion"] == second["confusion"] and (first["split"], second["split"]) == ("random", "file")
    with np.load(out / "split.npz") as one, np.load(tmp_path / "again" / "split.npz") as two:
        assert set(one.files) == {"train", "val", "test"}
        for key in one.files:
            np.testing.assert_array_equal(one[key], two[key])


def test_map_repeats_the_runs_map(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, _, out, _ = run
    result = hypercaps(
        "map", out / "model.safetensors", cube, "--out", tmp_path / "m.tif", "--confidence", tmp_path / "c.tif"
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "m.tif").read_bytes() == (out / "map.tif").read_bytes()
    assert (tmp_path / "c.tif").read_bytes() == (out / "confidence.tif").read_bytes()
    asked = ["--familiarity", tmp_path / "f.tif", "--unknown", 0.2]
    assert hypercaps("map", out, cube, "--out", tmp_path / "u.tif", *asked).exit_code == 0
    assert (tmp_path / "f.tif").read_bytes() == (out / "familiarity.tif").read_bytes()
    with (
        pytest.warns(rasterio.errors.NotGeoreferencedWarning),
        rasterio.open(tmp_path / "u.tif") as raster,
        rasterio.open(tmp_path / "f.tif") as familiarity,
    ):
        np.testing.assert_array_equal(raster.read(1) == 5, familiarity.read(1) < np.float32(0.2))
    assert hypercaps("map", out / "model.safetensors", cube, "--out", tmp_path / "m.png").exit_code == 0
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_an_older_model_has_no_familiarity(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, _, out, _ = run
    write_model(tmp_path / "old.safetensors", replace(read_model(out / "model.safetensors"), familiarity=None))
    plain = ["map", tmp_path / "old.safetensors", cube, "--out", tmp_path / "m.tif"]
    for option, value in (("--unknown", 0.05), ("--familiarity", tmp_path / "f.tif")):
        refused(hypercaps(*plain, option, value), f"{option} needs to know", "train it again", nothing_at=plain[-1])
    assert hypercaps(*plain).exit_code == 0 and not (tmp_path / "f.tif").exists()


def test_a_run_folder_stands_for_its_model(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, out, _ = run
    new = tmp_path / "new" / "maps" / "m.tif"  # in folders that don't exist
    assert hypercaps("map", out, cube, "--out", new).exit_code == 0
    assert new.read_bytes() == (out / "map.tif").read_bytes()
    assert json.loads(hypercaps("evaluate", out, cube, labels, "--json", "-").stdout)["oa"] > 95
    assert json.loads(hypercaps("info", out, "--json").stdout)["kind"] == "model"
    refused(hypercaps("map", tmp_path / "new", cube, "--out", tmp_path / "m.tif"), "give the folder of a finished run")


def test_a_failed_map_leaves_no_folder(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    np.save(tmp_path / "nothing.npy", np.full((9, 9, 26), np.nan, np.float32))
    failed = hypercaps("map", run[2], tmp_path / "nothing.npy", "--out", tmp_path / "new" / "maps" / "m.tif")
    refused(failed, "no valid pixel", nothing_at=tmp_path / "new")


def test_a_folder_of_tiles_gets_the_pattern_to_type(tmp_path: Path) -> None:
    for name in ("a.tif", "b.tif", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    refused(hypercaps("info", tmp_path), "is a folder", f", or '{tmp_path}/*.tif' in quotes for the tiles")


def test_evaluate_finds_the_test_set_of_its_own_run(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, out, _ = run
    metrics = json.loads((out / "metrics.json").read_text())
    model = out / "model.safetensors"
    for options in ([], ["--split-file", out / "split.npz"]):
        result = hypercaps("evaluate", model, cube, labels, *options, "--json", tmp_path / "scores.json")
        assert result.exit_code == 0, result.output
        scores = json.loads((tmp_path / "scores.json").read_text())
        for key in ("oa", "aa", "kappa", "confusion", "per_class", "n_train", "n_val", "n_test", "leakage", "split"):
            assert scores[key] == metrics[key], key
    shown = hypercaps("evaluate", model, cube, labels, "--json", "-")
    assert json.loads(shown.stdout)["oa"] == metrics["oa"]


def test_evaluate_on_other_labels_takes_all_of_them(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, _, out, _ = run
    np.save(tmp_path / "other.npy", make_cube(seed=8)[1])
    result = hypercaps(
        "evaluate", out / "model.safetensors", cube, tmp_path / "other.npy", "--json", tmp_path / "s.json"
    )
    assert result.exit_code == 0, result.output
    scores = json.loads((tmp_path / "s.json").read_text())
    assert scores["n_test"] == (make_cube(seed=8)[1] > 0).sum()
    assert scores["n_train"] is None and scores["leakage"] is None  # nobody knows what the model saw near them


def test_a_model_of_a_split_file_is_never_tested_on_its_training_pixels(
    run: tuple[Path, Path, Path, Result], tmp_path: Path
) -> None:
    cube, labels, out, _ = run
    trained = hypercaps(
        "train", cube, labels, "--out", tmp_path / "run", "--epochs", 1, "--no-map", "--split-file", out / "split.npz"
    )
    assert trained.exit_code == 0, trained.output
    refused = hypercaps("evaluate", tmp_path / "run" / "model.safetensors", cube, labels)
    assert refused.exit_code == 2 and "--split-file" in refused.stderr


def test_a_split_that_tests_on_training_pixels_is_refused(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, out, _ = run
    with np.load(out / "split.npz") as own:
        sets = dict(own)
    np.savez(tmp_path / "mixed.npz", train=sets["test"], val=sets["val"], test=sets["train"])
    model = out / "model.safetensors"
    refused(
        hypercaps("evaluate", model, cube, labels, "--split-file", tmp_path / "mixed.npz"), "trained or validated on"
    )
    np.savez(tmp_path / "part.npz", train=sets["train"], val=[], test=sets["test"][:50])
    result = hypercaps("evaluate", model, cube, labels, "--split-file", tmp_path / "part.npz", "--json", "-")
    assert json.loads(result.stdout)["n_test"] == 50


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
def test_evaluate_finds_its_test_set_where_labels_lie_on_invalid_pixels(tmp_path: Path) -> None:
    cube, labels = make_cube()
    cube[4, :, 1] = np.nan
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "gt.npy", labels)
    files = (tmp_path / "cube.npy", tmp_path / "gt.npy")
    trained = hypercaps("train", *files, "--out", tmp_path / "out", "--split", "random", "--epochs", 1, "--no-map")
    assert trained.exit_code == 0, trained.output
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    hypercaps("evaluate", tmp_path / "out" / "model.safetensors", *files, "--json", tmp_path / "s.json")
    scores = json.loads((tmp_path / "s.json").read_text())
    assert (scores["n_test"], scores["oa"]) == (metrics["n_test"], metrics["oa"])


def test_info_describes_scenes_labels_models_and_names(run: tuple[Path, Path, Path, Result]) -> None:
    cube, labels, out, _ = run
    for what, kind, key, value in (
        (cube, "scene", "bands", 26),
        (labels, "labels", "labelled", int((make_cube()[1] > 0).sum())),
        (out / "model.safetensors", "model", "method", "convcapsnet"),
        ("salinas", "public scene", "bands", 224),
        ("indian-pines", "public scene", "at_hand", True),
    ):
        about = json.loads(hypercaps("info", what, "--json").stdout)
        assert about["kind"] == kind and about[key] == value
        assert hypercaps("info", what).exit_code == 0


def test_info_recognises_a_model_by_its_content(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    shutil.copy(run[2] / "model.safetensors", tmp_path / "renamed")
    assert json.loads(hypercaps("info", tmp_path / "renamed", "--json").stdout)["kind"] == "model"
    (tmp_path / "words.txt").write_text("neither")
    refused(hypercaps("info", tmp_path / "words.txt"), "not supported")


def test_scenes_are_listed() -> None:
    listed = json.loads(hypercaps("scenes", "--json").stdout)
    assert [scene["name"] for scene in listed] == [
        "indian-pines", "indian-pines-220", "pavia-university", "salinas", "salinas-corrected", "salinas-a",
        "pavia-centre", "ksc", "botswana",
    ]  # fmt: skip
    assert "pavia-university" in hypercaps("scenes").output
    downloaded = hypercaps("scenes", "download", "indian-pines")  # carried along: nothing to fetch
    assert downloaded.exit_code == 0 and "Indian_pines_corrected.npy" in downloaded.output


def test_version() -> None:
    assert hypercaps("--version").output.startswith("hypercaps ")


# What bad input gets: one sentence, exit code 2, no traceback, nothing written.


def refused(result: Result, *said: str, nothing_at: Path | None = None) -> None:
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("Error: "), result.stderr
    assert "Traceback" not in result.output
    for words in said:
        assert words in result.stderr, result.stderr
    if nothing_at is not None:
        assert not nothing_at.exists()


@pytest.mark.parametrize("option", ["--coverage", "--reject", "--unknown"])
@pytest.mark.parametrize("value", ["0", "1", "-0.1", "90", "nan"])
def test_a_value_that_is_no_share_is_refused(option: str, value: str, files: tuple[Path, Path], tmp_path: Path) -> None:
    said = (f"{option} is ", "a share between 0 and 1, such as 0.", "is expected")
    refused(hypercaps("train", *files, "--out", tmp_path / "r", option, value), *said, nothing_at=tmp_path / "r")
    out = tmp_path / "m.tif"
    refused(hypercaps("map", tmp_path / "any", files[0], "--out", out, option, value), *said, nothing_at=out)


@pytest.mark.parametrize("option", ["--coverage", "--reject"])
def test_reject_and_coverage_need_a_calibration_and_a_map(
    option: str, files: tuple[Path, Path], tmp_path: Path
) -> None:
    train = ["train", *files, "--out", tmp_path / "r", "--epochs", 1, "--val", 0, option, 0.9]
    refused(hypercaps(*train), f"{option} needs validation pixels", "--val 0.1", nothing_at=tmp_path / "r")
    refused(hypercaps(*train, "--no-map"), f"{option} is about the map", nothing_at=tmp_path / "r")
    assert hypercaps(*train[:-2], "--no-map").exit_code == 0
    assert json.loads((tmp_path / "r" / "metrics.json").read_text())["calibration"] is None
    assert (tmp_path / "r" / "reliability.png").exists()
    mapping = ["map", tmp_path / "r" / "model.safetensors", files[0], "--out", tmp_path / "m.tif", option, 0.9]
    refused(hypercaps(*mapping), f"not calibrated and {option} needs that", nothing_at=tmp_path / "m.tif")


def test_unsure_pixels_and_sets_of_classes(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, out, _ = run
    asked = ["--coverage", 0.95, "--reject", 0.99]
    model = out / "model.safetensors"
    result = hypercaps("map", model, cube, "--out", tmp_path / "m.tif", "--confidence", tmp_path / "c.tif", *asked)
    assert result.exit_code == 0 and "m_sets.tif" in result.output
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning), rasterio.open(tmp_path / "m_sets.tif") as raster:
        assert raster.read(1).min() >= 1 and raster.nodata == 0 and raster.tags()["HYPERCAPS_COVERAGE"] == "0.95"
    with (
        pytest.warns(rasterio.errors.NotGeoreferencedWarning),
        rasterio.open(tmp_path / "m.tif") as raster,
        rasterio.open(tmp_path / "c.tif") as confidence,
    ):
        np.testing.assert_array_equal(raster.read(1) == 4, confidence.read(1) < np.float32(0.99))
    taken = hypercaps("map", model, cube, "--out", tmp_path / "m.tif", "--confidence", tmp_path / "m_sets.tif", *asked)
    refused(taken, "m_sets.tif is asked for twice")
    again = hypercaps("train", cube, labels, "--out", tmp_path / "r", *QUICK_OPTIONS, "--seed", 3, *asked)
    assert again.exit_code == 0 and "sets.tif" in again.output
    for one, two in (("m.tif", "map.tif"), ("m_sets.tif", "sets.tif"), ("c.tif", "confidence.tif")):
        assert (tmp_path / one).read_bytes() == (tmp_path / "r" / two).read_bytes()


def test_a_wrong_path(tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(hypercaps("train", tmp_path / "no.mat", "gt.mat", "--out", out), "there is no file", nothing_at=out)
    refused(hypercaps("train", "indian-pine", "--out", out), "indian-pines", nothing_at=out)
    refused(hypercaps("train", tmp_path, "gt.mat", "--out", out), "is a folder", nothing_at=out)


def test_a_wrong_key(files: tuple[Path, Path], tmp_path: Path) -> None:
    cube, labels = files
    out = tmp_path / "out"
    refused(
        hypercaps("train", f"{cube}:cuba", labels, "--out", out),
        "no array 'cuba'",
        "cube (36 x 36 x 26)",
        nothing_at=out,
    )
    good = hypercaps("info", f"{cube}:cube", "--json")
    assert json.loads(good.stdout)["bands"] == 26


def test_options_that_exclude_each_other(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    for options in (["--per-class", 5, "--train", 0.2], ["--split-file", "x", "--val", 0.1]):
        refused(hypercaps("train", *files, "--out", out, *options), "both given", nothing_at=out)


def test_missing_labels(files: tuple[Path, Path], tmp_path: Path) -> None:
    refused(
        hypercaps("train", files[0], "--out", tmp_path / "out"), "no labels were given", nothing_at=tmp_path / "out"
    )


def test_a_2d_array_for_a_scene(files: tuple[Path, Path], tmp_path: Path) -> None:
    _, labels = files
    failed = hypercaps("train", labels, labels, "--out", tmp_path / "out")
    refused(failed, "no 3-D array", "as labels do", nothing_at=tmp_path / "out")
    refused(hypercaps("train", f"{labels}:gt", labels, "--out", tmp_path / "out"), "2-D", nothing_at=tmp_path / "out")


def save_labels(path: Path, labels: np.ndarray) -> Path:
    np.save(path, labels)
    return path


def test_labels_of_another_shape(files: tuple[Path, Path], tmp_path: Path) -> None:
    labels = save_labels(tmp_path / "l.npy", np.ones((5, 6), int))
    refused(
        hypercaps("train", files[0], labels, "--out", tmp_path / "out"), "5 x 6", "36 x 36", nothing_at=tmp_path / "out"
    )


def test_labels_with_no_class(files: tuple[Path, Path], tmp_path: Path) -> None:
    labels = save_labels(tmp_path / "l.npy", np.zeros((36, 36), int))
    refused(hypercaps("train", files[0], labels, "--out", tmp_path / "out"), "no class", nothing_at=tmp_path / "out")


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
@pytest.mark.parametrize("options", [("--split", "random"), ("--per-class", 20)])
def test_a_class_with_too_few_pixels(options: tuple[object, ...], files: tuple[Path, Path], tmp_path: Path) -> None:
    array = make_cube()[1]
    array[array == 2] = 0
    array[0, :3] = 2
    labels = save_labels(tmp_path / "l.npy", array)
    result = hypercaps("train", files[0], labels, "--out", tmp_path / "out", "--method", "lda", "--no-map", *options)
    assert result.exit_code == 0, result.output
    trained = 1 if "--split" in options else 2  # all but the one to test
    assert f"{trained} of class 2 (3 labelled)" in " ".join(result.stderr.split()), result.stderr


def test_n_per_class_larger_than_a_class(files: tuple[Path, Path], tmp_path: Path) -> None:
    refused(
        hypercaps("train", *files, "--out", tmp_path / "out", "--per-class", 5000), "5000 to train", "ask for at most",
        nothing_at=tmp_path / "out",
    )  # fmt: skip


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
def test_nan_and_infinity_are_masked_with_a_count(tmp_path: Path, files: tuple[Path, Path]) -> None:
    cube = make_cube()[0]
    cube[2, 3, 4], cube[30, 30, 0] = np.nan, np.inf
    np.save(tmp_path / "holes.npy", cube)
    result = hypercaps("train", tmp_path / "holes.npy", files[1], "--out", tmp_path / "out", *QUICK_OPTIONS)
    assert result.exit_code == 0, result.output
    assert "2 of 1296 pixels" in result.stderr and result.stderr.startswith("Warning: ")
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning), rasterio.open(tmp_path / "out" / "map.tif") as raster:
        classes = raster.read(1)
    assert classes[2, 3] == classes[30, 30] == 0 and (classes > 0).sum() == 36 * 36 - 2


def test_nothing_but_nan(tmp_path: Path, files: tuple[Path, Path]) -> None:
    np.save(tmp_path / "nan.npy", np.full((36, 36, 26), np.nan))
    out = tmp_path / "out"
    refused(hypercaps("train", tmp_path / "nan.npy", files[1], "--out", out), "NaN", "finite", nothing_at=out)


def test_a_constant_cube(tmp_path: Path, files: tuple[Path, Path]) -> None:
    np.save(tmp_path / "flat.npy", np.full((36, 36, 26), 7, np.uint16))
    out = tmp_path / "out"
    train = (
        "train",
        tmp_path / "flat.npy",
        files[1],
        "--out",
        out,
        "--quiet",
    )  # found while methods are compared
    refused(hypercaps(*train), "constant", nothing_at=out)


def test_a_truncated_mat(tmp_path: Path, files: tuple[Path, Path]) -> None:
    cube, labels = files
    cube.write_bytes(cube.read_bytes()[:-1000])
    out = tmp_path / "out"
    refused(hypercaps("train", cube, labels, "--out", out), "truncated", "bytes", nothing_at=out)


def test_too_few_bands(tmp_path: Path, files: tuple[Path, Path]) -> None:
    np.save(tmp_path / "rgb.npy", make_cube(bands=3)[0])
    out = tmp_path / "out"
    train = ("train", tmp_path / "rgb.npy", files[1], "--out", out, "--method", "capsnet")
    refused(hypercaps(*train), "at least 17", "such as convcapsnet or lda", nothing_at=out)


def test_unknown_methods_and_recipes(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(hypercaps("train", *files, "--out", out, "--method", "cnn"), "convcapsnet", nothing_at=out)
    refused(hypercaps("train", *files, "--out", out, "--recipe", "pasta"), "it has best, paper", nothing_at=out)
    refused(hypercaps("train", *files, "--out", out, "--patch", 6), "odd", nothing_at=out)
    refused(hypercaps("train", *files, "--out", out, "--epochs", 0), "epochs is 0", nothing_at=out)


def test_a_model_for_other_bands(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    *_, out, _ = run
    np.save(tmp_path / "other.npy", make_cube(bands=30)[0])
    model, target = out / "model.safetensors", tmp_path / "m.tif"
    refused(hypercaps("map", model, tmp_path / "other.npy", "--out", target), "26 bands", "has 30", nothing_at=target)
    refused(hypercaps("evaluate", model, tmp_path / "other.npy", run[1]), "26 bands")


def test_a_file_that_is_no_model(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    target = tmp_path / "m.tif"
    refused(hypercaps("map", run[1], run[0], "--out", target), "not a whole model file", nothing_at=target)
    refused(hypercaps("map", tmp_path / "x", run[0], "--out", target), "there is no model file", nothing_at=target)


def test_impossible_outputs(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, _, out, _ = run
    model = out / "model.safetensors"
    refused(hypercaps("map", model, cube, "--out", tmp_path / "m.doc"), "must end in")
    (tmp_path / "file").write_text("no folder")
    refused(hypercaps("map", model, cube, "--out", tmp_path / "file" / "m.tif"), "there is no folder")
    refused(
        hypercaps("map", model, cube, "--out", tmp_path / "m.tif", "--confidence", tmp_path / "m.tif"), "of its own"
    )


def test_results_never_replace_inputs(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels = make_cube()
    np.savez(tmp_path / "both.npz", cube=cube, other=cube)
    np.save(tmp_path / "gt.npy", labels)
    shutil.copy(run[2] / "split.npz", tmp_path / "split.npz")
    scene, truth, split = f"{tmp_path / 'both.npz'}:cube", tmp_path / "gt.npy", tmp_path / "split.npz"
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    model = run[2] / "model.safetensors"
    for target in (tmp_path / "both.npz", truth, split, model):
        refused(
            hypercaps("evaluate", model, scene, truth, "--split-file", split, "--json", target), "a name of its own"
        )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_results_never_replace_the_wavelengths(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, out, _ = run
    model, waves = out / "model.safetensors", tmp_path / "w.tif"  # a map's name must end so
    waves.write_text("\n".join(str(400 + 10 * band) for band in range(26)))
    picture, points = tmp_path / "w.png", tmp_path / "w.csv"
    for other in (picture, points):
        other.write_bytes(waves.read_bytes())
    for command, option, target in (
        (("evaluate", model, cube, labels), "--json", waves),
        (("explain", model, cube, "--at", "3,3"), "--json", waves),
        (("explain", model, cube, "--at", "3,3"), "--out", picture),
        (("suggest", model, cube), "--out", points),
        (("map", model, cube), "--out", waves),
        (("map", model, cube, "--out", tmp_path / "m.tif"), "--confidence", waves),
    ):
        before = target.read_bytes()
        refused(hypercaps(*command, "--wavelengths", target, option, target), "is an input: give the result a name")
        assert target.read_bytes() == before
    assert not (tmp_path / "m.tif").exists()


def test_results_never_replace_files_that_belong_to_an_input(
    run: tuple[Path, Path, Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = run[2] / "model.safetensors"
    cube, labels = make_cube()
    cube.tofile(tmp_path / "cube.img")
    (tmp_path / "cube.hdr").write_text(
        "ENVI\nsamples = 36\nlines = 36\nbands = 26\ndata type = 4\ninterleave = bip\nbyte order = 0\n"
    )
    (tmp_path / "tiles.txt").write_text("cube.img\n")
    np.save(tmp_path / "gt.npy", labels)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for scene, target in (
        (tmp_path / "cube.img", "cube.hdr"),
        (tmp_path / "cube.hdr", "cube.img"),
        (f"@{tmp_path / 'tiles.txt'}", "tiles.txt"),
        (f"@{tmp_path / 'tiles.txt'}", "cube.hdr"),
    ):
        result = hypercaps("evaluate", model, scene, tmp_path / "gt.npy", "--json", tmp_path / target)
        refused(result, "is an input: give the result a name")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PaviaU.mat").write_text("a public scene")
    monkeypatch.setenv("HYPERCAPS_DATA", str(tmp_path / "data"))
    public = hypercaps("evaluate", model, "pavia-university", "--json", tmp_path / "data" / "PaviaU.mat")
    refused(public, "is an input: give the result a name")


def test_a_forced_run_never_replaces_its_inputs(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, first, _ = run
    out = tmp_path / "out"
    shutil.copytree(first, out)
    before = {path: path.read_bytes() for path in out.iterdir()}
    train = ("train", cube, labels, "--out", out, "--force", "--epochs", 1)
    refused(hypercaps(*train, "--mask", out / "map.tif"), "map.tif is an input and would be replaced", "another folder")
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    split = out / "split.npz"  # its own run's may be used again: it is written as it was
    assert hypercaps(*train, "--split-file", split, "--no-map").exit_code == 0
    with np.load(split) as kept, np.load(first / "split.npz") as original:
        assert all(np.array_equal(kept[name], original[name]) for name in ("train", "val", "test"))


def test_map_and_confidence_are_both_written_or_neither(
    run: tuple[Path, Path, Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def full_at_the_third(descriptor: int) -> None:  # after the window itself and the map
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full_at_the_third)
    target = tmp_path / "maps"
    target.mkdir()
    model = run[2] / "model.safetensors"
    result = hypercaps("map", model, run[0], "--out", target / "m.tif", "--confidence", target / "c.tif")
    refused(result, "c.tif can't be written", "disk is full")
    assert list(target.iterdir()) == []


def test_an_existing_run_is_left_alone_without_force(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "metrics.json").write_text("mine")
    (out / "notes.txt").write_text("keep")
    refused(hypercaps("train", *files, "--out", out), "already holds a run", "--force")
    assert {path.name for path in out.iterdir()} == {"metrics.json", "notes.txt"}
    assert (out / "metrics.json").read_text() == "mine"
    forced = hypercaps("train", *files, "--out", out, "--force", "--split", "random", "--epochs", 1, "--no-map")
    assert forced.exit_code == 0, forced.output
    assert json.loads((out / "metrics.json").read_text())["epochs"] == 2  # one of each stage
    assert (out / "notes.txt").read_text() == "keep"


def test_a_full_disk(files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
    refused(hypercaps("train", *files, "--out", tmp_path / "a" / "b"), "disk is full", nothing_at=tmp_path / "a")


def test_a_disk_that_fills_up_while_writing(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = hypercaps("train", *files, "--out", tmp_path / "a" / "b", "--method", "lda")
    assert result.exit_code == 2 and "disk is full" in result.stderr
    assert not (tmp_path / "a").exists()


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    for args in (["--debug", "info", "nothing"], ["info", "nothing", "--debug"]):
        result = hypercaps(*args)
        assert result.exception is not None and type(result.exception).__name__ == "SceneError"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_keeps_the_best_model_so_far(number: int, files: tuple[Path, Path], tmp_path: Path) -> None:
    """A real signal in a real process, after the first epochs."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "hypercaps", "train", *map(str, files), "--out", str(out), "--split", "random"]
    command += ["--epochs", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:  # without a terminal, the first epoch is a line
            if "epoch 1/" in line:
                break
        time.sleep(0.5)
        process.send_signal(number)
        said, wrong = process.communicate(timeout=120)
    assert process.returncode == 130, wrong
    assert "Interrupted" in wrong and "best model so far" in wrong and "OA" in said
    assert {path.name for path in out.iterdir()} == RUN_FILES
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["interrupted"] is True and metrics["best_epoch"] <= metrics["epochs"] < 100_000


def test_ctrl_c_while_mapping_gives_up_only_the_map(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ConvCapsClassifier, "map_windows", stop)
    result = hypercaps("train", *files, "--out", tmp_path / "out", "--split", "random", "--epochs", 1)
    assert result.exit_code == 130 and "the run has no map" in result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == RUN_FILES - MAPS


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("hypercaps")
    done = subprocess.run([command, "info", "nothing-like-this"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and done.stderr.startswith("Error: ") and "Traceback" not in done.stderr


def test_python_and_command_line_agree(run: tuple[Path, Path, Path, Result]) -> None:
    from hypercaps import load_model, open_labels, open_scene

    cube, labels, out, _ = run
    fitted = ConvCapsClassifier(**QUICK, seed=3).fit(open_scene(cube), open_labels(labels))
    assert fitted.scores_.oa == json.loads((out / "metrics.json").read_text())["oa"]
    np.testing.assert_array_equal(
        load_model(out / "model.safetensors").predict(open_scene(cube)), fitted.predict(open_scene(cube))
    )


def test_a_mask_restricts_the_map(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, _, out, _ = run
    inside = np.zeros((36, 36), dtype=np.uint8)
    inside[4:20, 10:30] = 1
    np.save(tmp_path / "mask.npy", inside)
    done = hypercaps(
        "map", out / "model.safetensors", cube, "--out", tmp_path / "m.tif", "--mask", tmp_path / "mask.npy"
    )
    assert done.exit_code == 0, done.output
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(tmp_path / "m.tif") as part, rasterio.open(out / "map.tif") as whole:
            np.testing.assert_array_equal(part.read(1), np.where(inside, whole.read(1), 0))
    np.save(tmp_path / "empty.npy", 0 * inside)
    target = tmp_path / "n.tif"
    refused(
        hypercaps("map", out / "model.safetensors", cube, "--out", target, "--mask", tmp_path / "empty.npy"),
        "inside the mask", nothing_at=target,
    )  # fmt: skip


def test_train_refuses_the_removed_option_devices(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "indian-pines", "--out", str(tmp_path / "run"), "--devices", "2"])
    assert result.exit_code == 2 and not (tmp_path / "run").exists()
    assert "--devices was removed: train on one GPU with --device" in " ".join(result.output.split())
