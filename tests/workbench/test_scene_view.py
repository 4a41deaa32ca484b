"""Pictures and spectra of scenes, also of those that are larger than one tile."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio
from matplotlib.image import imread

from hypercaps import open_scene
from hypercaps.workbench.overviews import block_means
from hypercaps.workbench.scene_view import SceneView
from support.workbench import served

ROWS, COLS, BANDS = 700, 1100, 5


def ramp() -> np.ndarray:
    """A scene whose first band is the row and whose second is the column."""
    cube = np.random.default_rng(0).integers(0, 1000, (ROWS, COLS, BANDS)).astype(np.int16)
    cube[:, :, 0], cube[:, :, 1] = np.arange(ROWS)[:, None], np.arange(COLS)
    return cube


@pytest.fixture(scope="module", params=["npy", "tiled"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view")
    if request.param == "npy":
        np.save(folder / "scene.npy", ramp())
        return folder / "scene.npy"
    grid = {"crs": "EPSG:32633", "transform": rasterio.Affine(20, 0, 4e5, 0, -20, 5e6)}
    layout = {"tiled": True, "blockxsize": 128, "blockysize": 128, "compress": "deflate", "interleave": "pixel"}
    with rasterio.open(
        folder / "scene.tif", "w", driver="GTiff", height=ROWS, width=COLS, count=BANDS, dtype="int16", **grid, **layout
    ) as raster:
        raster.write(np.moveaxis(ramp(), 2, 0))
    return folder / "scene.tif"


@pytest.fixture
def view(path: Path, tmp_path: Path) -> Iterator[SceneView]:
    view = SceneView(open_scene(path), tmp_path, lambda done: None)
    yield view
    view.overviews.close()


def drawn(content: bytes) -> np.ndarray:
    """(256, 256, 4) red, green, blue and opacity, 0 to 1."""
    return np.asarray(imread(io.BytesIO(content)))


def test_a_tile_shows_its_part_of_the_scene(view: SceneView) -> None:
    picture = drawn(view.picture("0-1-2", "0-100", 0, 1, 2))
    rows, cols = np.arange(512, 700), np.arange(256, 512)
    assert np.allclose(picture[:188, :, 0], (rows / (ROWS - 1))[:, None], atol=0.02)
    assert np.allclose(picture[:188, :, 1], cols / (COLS - 1), atol=0.02)
    assert (picture[:188, :, 3] == 1).all() and (picture[188:, :, 3] == 0).all()


def test_coarse_levels_show_the_same_with_and_without_overviews(view: SceneView) -> None:
    assert view.levels == 4
    before = drawn(view.picture("0-1-1", "0-100", 3, 0, 0))
    assert not view.is_final(3)
    view.overviews.start()
    end = time.monotonic() + 60
    while view.overviews.done < 1 and time.monotonic() < end:
        time.sleep(0.02)
    after = drawn(view.picture("0-1-1", "0-100", 3, 0, 0))
    assert view.is_final(3)
    height, width = -(-ROWS // 8), -(-COLS // 8)
    expected = (np.arange(height) * 8 + 3.5) / ROWS
    for picture in (before, after):
        assert (picture[:height, :width, 3] == 1).all() and (picture[height:, :, 3] == 0).all()
        assert np.allclose(picture[: height - 1, 10, 0], expected[:-1], atol=0.02)
    again = SceneView(view.scene, view.overviews._folder, lambda done: None)
    assert again.overviews.done == 1.0  # made once
    assert again.picture("0-1-1", "0-100", 3, 0, 0) == view.picture("0-1-1", "0-100", 3, 0, 0)


def test_beyond_the_scene_tiles_are_transparent(view: SceneView) -> None:
    assert not drawn(view.picture("false", "auto", 0, 9, 9)).any()


def test_only_windows_of_a_file_are_read(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = open_scene(path)
    read: list[int] = []
    original = scene.reader
    monkeypatch.setitem(
        scene.__dict__,
        "reader",
        lambda rows, cols: read.append((rows.stop - rows.start) * (cols.stop - cols.start)) or original(rows, cols),
    )
    view = SceneView(scene, tmp_path, lambda done: None)
    view.picture("0-1-2", "auto", 0, 0, 0)
    assert max(read) <= 4 * 256 * 256  # four tiles of a scene that is stored in rows, else one
    read.clear()
    view.reader.pixel(600, 1000)
    assert sum(read) <= 256 * 256


def test_means_of_blocks_leave_out_pixels_without_data() -> None:
    values = np.arange(3 * 5 * 2, dtype=np.float32).reshape(3, 5, 2)
    values[0, 0] = np.nan
    values[2, 4] = np.nan
    small = block_means(values, 2)
    assert small.shape == (2, 3, 2)
    assert np.allclose(small[0, 0], values[[0, 1, 1], [1, 0, 1]].mean(axis=0))
    assert np.isnan(small[1, 2]).all()


def test_requests_for_what_is_not_there_are_refused(path: Path, tmp_path: Path) -> None:
    with served(path, tmp_path / "project") as running:
        page = running.page()
        for tile in ("0-1-9", "0-1", "nothing", "0-1-2-3"):
            assert page.get(f"/api/tiles/scene/{tile}/auto/0/0/0").status_code == 404, tile
        for stretch in ("98-2", "2", "a-b", "2-200"):
            assert page.get(f"/api/tiles/scene/false/{stretch}/0/0/0").status_code == 400, stretch
        assert page.get("/api/tiles/scene/false/auto/9/0/0").status_code == 404
        assert page.get("/api/tiles/scene/false/auto/x/0/0").status_code == 400
        assert page.get("/api/spectrum?row=-1&col=0").status_code == 404
        answer = page.get("/api/spectrum?row=699&col=1099")
        assert answer.headers["x-valid"] == "1"
        assert np.frombuffer(answer.content, "<f4")[:2].tolist() == [699, 1099]
        tile = page.get("/api/tiles/scene/pca/2-98/1/0/0")
        assert tile.headers["content-type"] == "image/png" and "immutable" in tile.headers["cache-control"]
        state = page.state()["scene"]
        assert (state["rows"], state["cols"], state["bands"], state["levels"]) == (ROWS, COLS, BANDS, 4)
