"""A scene in files can be sent to another process, which opens the files itself."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio

from hypercaps import open_scene
from hypercaps.errors import SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import read_scene
from hypercaps.io.options import OpenOptions
from support.rasters import CUBE, GRID, write

BESIDE = rasterio.Affine(30, 0, GRID.c + 30 * CUBE.shape[1], 0, -30, GRID.f)
IN_CHILD = (
    "import pickle, sys\n"
    "scene = pickle.load(open('scene.pickle', 'rb'))\n"
    "print(scene.read().values.sum(), scene.crs is not None, scene.wavelengths)\n"
)


def test_another_process_opens_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "scene.tif", crs="EPSG:32633", transform=GRID)
    (tmp_path / "waves.txt").write_text("500\n600\n700\n800\n")
    monkeypatch.chdir(tmp_path)
    scene = open_scene("scene.tif", wavelengths="waves.txt")  # relative names
    sent = pickle.dumps(scene)
    assert len(sent) < CUBE.size  # names, not pixels
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "scene.pickle").write_bytes(sent)
    done = subprocess.run([sys.executable, "-c", IN_CHILD], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[:2] == [str(np.float32(CUBE.sum())), "True"], done.stderr
    assert done.stdout.split("[")[1].split("]")[0].split() == ["500.", "600.", "700.", "800."]


@pytest.mark.parametrize("named", ["tiles/*.tif", ["tiles/a.tif", "tiles/b.tif"], "cube.npy", "indian-pines"])
def test_whatever_open_scene_takes(named: str | list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiles").mkdir()
    write(tmp_path / "tiles" / "a.tif", crs="EPSG:32633", transform=GRID)
    write(tmp_path / "tiles" / "b.tif", crs="EPSG:32633", transform=BESIDE)
    np.save("cube.npy", CUBE)
    scene = open_scene(named)
    again = pickle.loads(pickle.dumps(scene))
    assert (again.shape, again.name, again.tiles) == (scene.shape, scene.name, scene.tiles)
    np.testing.assert_array_equal(again.read().values, scene.read().values)


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "cube.npy", CUBE)
    sent = pickle.dumps(open_scene(tmp_path / "cube.npy"))
    np.save(tmp_path / "cube.npy", CUBE[1:])
    with pytest.raises(SceneError, match="has changed since the scene was opened: it had"):
        pickle.loads(sent)


def test_a_scene_that_was_not_opened_by_its_name_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "cube.npy", CUBE)
    scene = read_scene(detect_file(tmp_path / "cube.npy"), OpenOptions())
    with pytest.raises(SceneError, match="can't be sent to another process: open it there"):
        pickle.dumps(scene)


def test_damage_is_one_sentence_for_some_bands_too(tmp_path: Path) -> None:
    path = write(tmp_path / "scene.tif", crs="EPSG:32633", transform=GRID)
    scene = open_scene(path)
    path.write_bytes(path.read_bytes()[:2000])
    for read in (lambda: scene.read(), lambda: scene.read_bands([1], slice(0, 40), slice(0, 50))):
        with pytest.raises(SceneError, match="truncated"):
            read()
