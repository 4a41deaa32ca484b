"""What is no file is never opened as one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import HypercapsError
from hypercaps.io.open import open_labels, open_mask, open_scene, open_split

GROUND = np.ones((4, 5), dtype=np.int16)
OPENERS: list[Callable[[Path], object]] = [
    open_scene,
    open_labels,
    lambda path: open_mask(path, Scene.from_array(np.zeros((4, 5, 3)))),
    lambda path: open_split(path, Labels.from_array(GROUND)),
]


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("opener", OPENERS, ids=["scene", "labels", "mask", "split"])
@pytest.mark.parametrize("name", ["pipe", "pipe.npy", "pipe.mat", "pipe.csv"])
def test_pipes_are_refused_and_not_waited_for(opener: Callable[[Path], object], name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(HypercapsError, match="is a pipe or a device: save its content as a file first"):
        opener(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_devices_are_refused() -> None:
    with pytest.raises(HypercapsError, match="/dev/zero is a pipe or a device"):
        open_scene("/dev/zero")


def test_what_to_do_with_a_vrt_is_said(tmp_path: Path) -> None:
    (tmp_path / "scene.vrt").write_text('<VRTDataset rasterXSize="4" rasterYSize="5"></VRTDataset>')
    with pytest.raises(HypercapsError, match=r"is a VRT, .* name these, 'tiles/\*.tif' in quotes, or make a GeoTIFF"):
        open_scene(tmp_path / "scene.vrt")
