"""A new scene beside the training scene: what ``--adapt`` and ``info MODEL SCENE`` do, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from typer.testing import Result

from hypercaps import ConvCapsClassifier
from support.command import hypercaps_on_wide_terminal as hypercaps
from support.scenes import make_cube


@pytest.fixture
def folder(trained: ConvCapsClassifier, tmp_path: Path) -> Path:
    """A model, the same as an older version would have written it, a scene, and one with 50 valid pixels."""
    cube = make_cube()[0]
    np.save(tmp_path / "cube.npy", cube)
    few = np.full_like(cube, np.nan)
    few[:5, :10] = cube[:5, :10]
    np.save(tmp_path / "few.npy", few)
    (tmp_path / "waves.txt").write_text("\n".join(str(400 + 10 * band) for band in range(26)))
    trained.save(tmp_path / "model.safetensors")
    old = ConvCapsClassifier()
    old.model_ = replace(trained.model_, statistics=None, familiarity=None)
    old.save(tmp_path / "old.safetensors")
    return tmp_path


def mapped(folder: Path, model: str, scene: str, *options: object) -> Result:
    files = ("--wavelengths", folder / "waves.txt", folder / model, folder / scene, "--out", folder / "map.tif")
    return hypercaps("map", *files, *options)


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
@pytest.mark.parametrize("how", ["auto", "mean", "standardise"])
@pytest.mark.parametrize(
    ("model", "scene", "why"),
    [("model", "few", "fewer than 100 valid pixels"), ("old", "cube", "too old to have")],
)
def test_an_adaptation_that_cannot_be_made_is_refused(how: str, model: str, scene: str, why: str, folder: Path) -> None:
    before = set(folder.iterdir())
    result = mapped(folder, f"{model}.safetensors", f"{scene}.npy", "--adapt", how)
    assert result.exit_code == 2 and why in result.stderr and f"--adapt {how}" in result.stderr, result.output
    assert set(folder.iterdir()) == before


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
@pytest.mark.parametrize("options", [(), ("--adapt", "none")])
def test_without_an_adaptation_such_scenes_are_mapped(options: tuple[str, ...], folder: Path) -> None:
    assert mapped(folder, "old.safetensors", "cube.npy", *options).exit_code == 0
    assert mapped(folder, "model.safetensors", "few.npy", *options).exit_code == 0


def test_info_compares_a_scene_with_a_model(folder: Path) -> None:
    np.save(folder / "dark.npy", make_cube()[0] * np.float32(0.8))
    waves = ("--wavelengths", folder / "waves.txt")
    dark = hypercaps("info", folder / "model.safetensors", folder / "dark.npy", *waves)
    assert dark.exit_code == 0 and "20% darker" in dark.stdout and "valid" in dark.stdout, dark.output
    few = hypercaps("info", folder / "model.safetensors", folder / "few.npy", *waves)
    assert few.exit_code == 0 and few.stdout.count("not checked") == 2, few.output
    old = hypercaps("info", folder / "old.safetensors", folder / "cube.npy", *waves)
    assert old.exit_code == 2 and "too old to have statistics of its training scene" in old.stderr
    # The model is looked at first: no word about the scene where the first name is none.
    swapped = hypercaps("info", folder / "cube.npy", folder / "model.safetensors", *waves)
    assert swapped.exit_code == 2 and "not a whole model file" in swapped.stderr


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize(
    ("scene", "options", "said", "is_claimed"),
    [
        ("cube", (), "none", True),
        ("dark", (), "20% darker compared with", True),
        ("dark", ("--adapt", "none"), "--adapt auto undoes it", True),
        ("other", (), "other ground or another season", False),
        ("other", ("--adapt", "mean"), "this is other ground", True),
        ("unit", (), "in another unit: they are converted", True),
        ("unit", ("--adapt", "none"), "in another unit: --adapt auto converts them", False),
        ("few", (), "not checked: fewer than 100 valid pixels", None),
    ],
)
def test_maps_and_scores_keep_what_differs(
    scene: str, options: tuple[str, ...], said: str, is_claimed: bool | None, folder: Path
) -> None:
    cube, labels = make_cube()
    ramp = np.linspace(-1, 1, cube.shape[2], dtype=np.float32)
    changed = {"dark": cube * np.float32(0.8), "other": cube + 4 * cube.std(axis=(0, 1)) * ramp, "unit": cube / 10000}
    for name, values in changed.items():
        np.save(folder / f"{name}.npy", values.astype(np.float32))
    labels[np.nonzero(labels)[0][-1]] = 0  # other labels than those of the training: all of them are scored
    np.save(folder / "labels.npy", labels)
    assert mapped(folder, "model.safetensors", f"{scene}.npy", *options).exit_code == 0
    with rasterio.open(folder / "map.tif") as file:
        tags = file.tags()
    assert said in tags["HYPERCAPS_SCENE_SHIFT"]
    assert (tags["HYPERCAPS_CALIBRATION"] == "not valid for this scene") == (is_claimed is False)
    files = folder / "model.safetensors", folder / f"{scene}.npy", folder / "labels.npy"
    result = hypercaps("evaluate", *files, "--wavelengths", folder / "waves.txt", *options, "--json", "-")
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout)
    assert scores["scene_shift"] == tags["HYPERCAPS_SCENE_SHIFT"] and scores["claimed"] is is_claimed
