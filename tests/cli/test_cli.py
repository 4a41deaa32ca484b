"""The command line: what it writes and prints."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from click.testing import Result

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.inference.model_file import read_model, write_model
from support.command import MAPS, RUN_FILES, hypercaps, refused
from support.scenes import QUICK, QUICK_OPTIONS, make_cube


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


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    for args in (["--debug", "info", "nothing"], ["info", "nothing", "--debug"]):
        result = hypercaps(*args)
        assert result.exception is not None and type(result.exception).__name__ == "SceneError"


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
