"""Where the commands write: files are replaced, streams are written to, and everything else is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from hypercaps import ConvCapsClassifier
from hypercaps.io.open import open_labels
from support.command import hypercaps_on_wide_terminal as hypercaps
from support.scenes import make_cube
from support.vectors import write_scene_and_labels

_COMMAND = (sys.executable, "-m", "hypercaps")


def refused(result: Result, *said: str) -> None:
    assert result.exit_code == 2 and all(text in result.output for text in said), result.output
    assert "Traceback" not in result.output


@pytest.fixture
def folder(trained: ConvCapsClassifier, tmp_path: Path) -> Path:
    """A model, a scene and its labels."""
    cube, labels = make_cube()
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "labels.npy", labels)
    (tmp_path / "waves.txt").write_text("\n".join(str(400 + 10 * band) for band in range(26)))
    trained.save(tmp_path / "model.safetensors")
    return tmp_path


def given(folder: Path) -> tuple[object, ...]:
    return ("--wavelengths", folder / "waves.txt", folder / "model.safetensors", folder / "cube.npy")


def evaluate(folder: Path, *options: object) -> tuple[object, ...]:
    return ("evaluate", *given(folder), folder / "labels.npy", *options)


def explain(folder: Path, *options: object) -> tuple[object, ...]:
    return ("explain", *given(folder), "--at", "3,3", *options)


@pytest.mark.parametrize("command", [evaluate, explain])
def test_json_to_the_standard_output_by_any_name(command: object, folder: Path) -> None:
    assert callable(command)
    before = os.lstat("/dev/stdout")
    printed = [hypercaps(*command(folder, "--json", name)) for name in ("-", "/dev/stdout")]
    assert json.loads(printed[0].stdout) == json.loads(printed[1].stdout)
    assert os.path.samestat(os.lstat("/dev/stdout"), before)


def test_json_to_the_standard_output_in_a_file(folder: Path) -> None:
    with (folder / "out.json").open("w") as out:
        command = [*_COMMAND, *map(str, evaluate(folder, "--json", "/dev/stdout"))]
        subprocess.run(command, stdout=out, check=True, timeout=200)
    assert "oa" in json.loads((folder / "out.json").read_text())


@pytest.mark.parametrize("command", [evaluate, explain])
def test_json_to_a_pipe(command: object, folder: Path) -> None:
    assert callable(command)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    assert hypercaps(*command(folder, "--json", pipe)).exit_code == 0
    reader.join(60)
    assert isinstance(json.loads(received[0]), dict) and pipe.is_fifo()


def test_a_device_that_takes_nothing(folder: Path) -> None:
    refused(hypercaps(*evaluate(folder, "--json", "/dev/full")), "/dev/full can't be written: the disk is full")


def test_suggest_creates_the_folder_of_its_points(folder: Path) -> None:
    points = folder / "round" / "1" / "points.csv"
    assert hypercaps("suggest", *given(folder), "--out", points).exit_code == 0
    assert points.read_text().startswith("rank,class")


def test_links_and_pipes_are_not_replaced(folder: Path) -> None:
    for name in ("map.tif", "map.png", "points.csv", "m.qml", "n.tif.partial"):
        (folder / name).symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.tif")
    before = {path: path.lstat() for path in folder.iterdir()}
    for name in ("map.tif", "map.png", "pipe.tif", "m.tif", "n.tif"):
        refused(hypercaps("map", *given(folder), "--out", folder / name), "can't be written: it is a")
    refused(hypercaps("map", *given(folder), "--out", folder / "n.tif", "--resume"), "n.tif.partial", "it is a link")
    refused(hypercaps("suggest", *given(folder), "--out", folder / "points.csv"), "it is a link")
    refused(hypercaps(*explain(folder, "--out", folder / "map.png")), "it is a link")
    refused(hypercaps(*evaluate(folder, "--json", folder / "map.tif")), "it is a link")
    assert {path: path.lstat() for path in folder.iterdir()} == before


def test_a_run_does_not_replace_a_link(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "metrics.json").symlink_to(folder / "nowhere")
    train = ("train", folder / "cube.npy", folder / "labels.npy", "--method", "lda", "--out", folder / "run")
    refused(hypercaps(*train), "already holds a run")
    refused(hypercaps(*train, "--force"), "metrics.json can't be written: it is a link")
    assert (folder / "run" / "metrics.json").is_symlink()


def test_a_map_beside_its_scene_under_the_same_name(folder: Path) -> None:
    for _ in range(2):  # an earlier map is replaced
        result = hypercaps("map", *given(folder), "--out", folder / "cube.tif")
        assert result.exit_code == 0, result.output
        assert all((folder / name).exists() for name in ("cube.npy", "cube.tif", "cube.qml", "cube.tif.aux.xml"))


def test_a_style_of_the_user_is_not_replaced(folder: Path) -> None:
    style = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n<qgis version='3.34'/>\n"
    for name in ("cube", "map"):  # beside the scene, and beside the map alone
        (folder / f"{name}.qml").write_text(style)
        refused(hypercaps("map", *given(folder), "--out", folder / f"{name}.tif"), f"{name}.qml is a style that")
        assert (folder / f"{name}.qml").read_text() == style and not (folder / f"{name}.tif").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text there")
def test_names_that_are_no_text(folder: Path) -> None:
    """Inputs may have them where no library needs the name; outputs are refused before any work."""
    cube, odd = folder / "\udcffcube.npy", "odd\udcff"
    (folder / "cube.npy").rename(cube)
    train = ("train", cube, folder / "labels.npy", "--method", "lda")
    refused(hypercaps(*train, "--out", folder / odd), "can't be written: its name is not valid text")
    refused(hypercaps("map", folder / "model.safetensors", cube, "--out", folder / f"{odd}.tif"), "not valid text")
    refused(hypercaps("suggest", folder / "model.safetensors", cube, "--out", folder / f"{odd}.csv"), "not valid text")
    result = hypercaps(*train, "--out", folder / "run")
    assert result.exit_code == 0, result.output
    assert open_labels(folder / "run" / "map.tif").shape == np.load(cube).shape[:2]
    write_scene_and_labels(folder)
    for name in ("scene.tif", "fields.gpkg"):
        (folder / name).rename(folder / f"{odd}{name}")
        refused(hypercaps("info", folder / f"{odd}{name}"), "has a name that is not valid text")
