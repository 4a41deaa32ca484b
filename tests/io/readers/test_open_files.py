"""Files that stay open while several windows are read."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import rasterio

from hypercaps import open_scene
from hypercaps.data.scene import Scene
from hypercaps.io.readers.open_files import keep_open
from support.rasters import CUBE, write


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return open_scene(write(tmp_path / "scene.tif"))


@pytest.fixture
def datasets(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[rasterio.DatasetReader]:
    """What rasterio opens, once the scene is known."""
    found: list[rasterio.DatasetReader] = []
    original = rasterio.open

    def noting(name: str, **how: str) -> rasterio.DatasetReader:
        found.append(original(name, **how))
        return found[-1]

    monkeypatch.setattr(rasterio, "open", noting)
    return found


def test_a_thread_opens_a_file_once_within_a_block(scene: Scene, datasets: list[rasterio.DatasetReader]) -> None:
    with keep_open(), keep_open():
        rows = [scene.read(slice(row, row + 1)).values[0] for row in range(5)]
        other = threading.Thread(target=scene.read)
        other.start()
        other.join()
    assert len(datasets) == 2  # once by each thread
    assert (np.stack(rows) == CUBE[:5]).all()
    scene.read()
    scene.read()
    assert len(datasets) == 4


def test_files_are_closed_at_the_end_also_after_an_error(scene: Scene, datasets: list[rasterio.DatasetReader]) -> None:
    with pytest.raises(RuntimeError), keep_open():
        scene.read()
        assert not datasets[0].closed
        raise RuntimeError
    assert [one.closed for one in datasets] == [True]
