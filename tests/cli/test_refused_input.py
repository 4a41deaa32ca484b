"""Input and options that commands refuse in one sentence, before anything is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
from click.testing import Result
from typer.testing import CliRunner

from hypercaps.cli import app
from support.command import hypercaps, refused
from support.scenes import QUICK_OPTIONS, make_cube


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
    asked = " ".join(hypercaps("train", files[0], "--out", tmp_path / "out").output.split())
    assert "name a file of class numbers, polygons or points after it" in asked


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


def test_train_refuses_the_removed_option_devices(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "indian-pines", "--out", str(tmp_path / "run"), "--devices", "2"])
    assert result.exit_code == 2 and not (tmp_path / "run").exists()
    assert "--devices was removed: train on one GPU with --device" in " ".join(result.output.split())
