"""Coarse pictures of a scene without overviews: which pixels they show, and how much of the file is read for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hypercaps import open_scene
from hypercaps.data.scene import Scene
from hypercaps.workbench.class_list import ClassRecord
from hypercaps.workbench.class_spectra import ClassSpectra
from hypercaps.workbench.label_store import Snapshot
from hypercaps.workbench.pixel_reader import PixelReader
from hypercaps.workbench.thinned import ThinnedReader
from support.rasters import write

ROWS, COLS, BANDS = 700, 1100, 6
CUBE = np.random.default_rng(0).integers(0, 30_000, (ROWS, COLS, BANDS)).astype(np.int16)
TILED = {"tiled": True, "blockxsize": 128, "blockysize": 128}


@pytest.fixture(scope="module", params=["npy", "strips", "blocks"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("thinned")
    if request.param == "npy":
        np.save(folder / "scene.npy", CUBE)
        return open_scene(folder / "scene.npy")
    layout = TILED if request.param == "blocks" else {}
    return open_scene(write(folder / "scene.tif", CUBE, "int16", **layout))


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_tile_has_the_first_pixel_of_each_square(scene: Scene, level: int) -> None:
    step, bands = 1 << level, [5, 0, 2]
    thin = CUBE[::step, ::step, bands]
    reader = ThinnedReader(scene)
    for y in range(-(-thin.shape[0] // 256)):
        for x in range(-(-thin.shape[1] // 256)):
            values, valid = reader.tile(bands, level, x, y)
            assert (values == thin[y * 256 : (y + 1) * 256, x * 256 : (x + 1) * 256]).all() and valid.all()


class CountingArray(np.ndarray):
    """An array that notes the rows and columns of each window that is read."""

    read: list[tuple[int, int]]

    def __getitem__(self, key: Any) -> Any:
        found = np.asarray(self).__getitem__(key)
        self.read.append(found.shape[:2])
        return found


def test_rows_between_are_not_read_and_neighbours_share_what_is() -> None:
    array = CUBE.view(CountingArray)
    read = array.read = []
    reader = ThinnedReader(Scene.from_array(array))
    reader.tile([0, 1, 2], 3, 0, 0)
    assert read == [(1, COLS)] * -(-ROWS // 8)
    read.clear()
    for x in range(3):
        reader.tile([0, 1, 2], 1, x, 0)
    assert read == [(1, COLS)] * 256  # once for all three


def test_of_a_scene_in_rows_few_pixels_are_read_for_a_stroke_and_none_twice_for_means() -> None:
    array = CUBE.view(CountingArray)
    read = array.read = []
    reader = PixelReader(Scene.from_array(array))
    stroke = np.array([300 * COLS + 400, 300 * COLS + 401, 302 * COLS + 405])
    assert reader.are_valid(stroke).all()
    assert read == [(3, 6)]
    means, labels = ClassSpectra(reader), np.zeros((ROWS, COLS), dtype=np.uint8)
    water = ClassRecord(1, "water", "#0000ff", "1")
    labels.flat[stroke] = 1
    first = means.of(Snapshot(1, labels, labels.astype(np.int32), (water,)))
    assert np.allclose(first["1"]["mean"], CUBE.reshape(-1, BANDS)[stroke].mean(axis=0))
    read.clear()
    labels[600, 900] = 1
    second = means.of(Snapshot(2, labels, labels.astype(np.int32), (water,)))
    assert read == [(1, 1)] and second["1"]["count"] == 4
    assert np.allclose(second["1"]["std"], CUBE[labels > 0].std(axis=0))
