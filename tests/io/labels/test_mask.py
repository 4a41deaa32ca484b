"""Masks: polygons, rasters and arrays on the scene's pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import scipy.io
import shapely
from rasterio.errors import NotGeoreferencedWarning

from hypercaps.data.grid import Affine, Lookup
from hypercaps.data.scene import Scene
from hypercaps.errors import LabelsError
from hypercaps.io.open import open_mask
from support.vectors import GRID, TURNED, scene_on, write

INSIDE = np.zeros((40, 60), dtype=bool)
INSIDE[2:9, 10:14] = True
BOX = shapely.box(10, 2, 14, 9)


def raster(path: Path, array: np.ndarray, grid: Affine | None = GRID, **profile: Any) -> Path:
    array = array.astype(np.uint8) if array.dtype == bool else array
    place = {} if grid is None else {"crs": "EPSG:32633", "transform": rasterio.Affine(*grid)}
    rows, cols = array.shape
    with rasterio.open(
        path, "w", driver="GTiff", width=cols, height=rows, count=1, dtype=array.dtype, **place, **profile
    ) as file:
        file.write(array, 1)
    return path


@pytest.mark.parametrize("grid", [GRID, TURNED])
def test_polygons_lines_and_points(grid: Affine, tmp_path: Path) -> None:
    path = write(tmp_path / "a.gpkg", [BOX, shapely.Point(0.5, 0.5), BOX], {"n": [1, 0, 2]}, grid=grid)
    mask = open_mask(path, scene_on(grid))
    expected = INSIDE.copy()
    expected[0, 0] = True
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, expected)  # the fields do not matter


def test_rasters_on_any_grid(tmp_path: Path) -> None:
    np.testing.assert_array_equal(open_mask(raster(tmp_path / "a.tif", INSIDE), scene_on()), INSIDE)
    coarse = np.zeros((5, 8), dtype=np.float32)
    coarse[1, 2], coarse[2, 2], coarse[3, 3] = 0.5, np.nan, -1
    grid = (20.0, 0.0, GRID[2] + 20, 0.0, -20.0, GRID[5])
    mask = open_mask(raster(tmp_path / "b.tif", coarse, grid, nodata=-1), scene_on())
    assert np.argwhere(mask).tolist() == [[2, 6], [2, 7], [3, 6], [3, 7]]  # neither NaN nor nodata is inside
    far = raster(tmp_path / "c.tif", INSIDE, (10.0, 0.0, GRID[2] + 9000, 0.0, -10.0, GRID[5]))
    with pytest.raises(LabelsError, match="no pixel of scene 's' is inside the mask"):
        open_mask(far, scene_on())


def test_arrays_of_the_scenes_size(tmp_path: Path) -> None:
    scene = scene_on()
    np.save(tmp_path / "a.npy", INSIDE)
    np.save(tmp_path / "b.npy", np.where(INSIDE, 7.5, np.nan))
    scipy.io.savemat(tmp_path / "c.mat", {"mask": INSIDE.astype(float), "more": np.zeros(3)})
    for name in ("a.npy", "b.npy", "c.mat", "c.mat:mask"):
        np.testing.assert_array_equal(open_mask(tmp_path / name, scene), INSIDE)
    np.save(tmp_path / "d.npy", INSIDE[:5])
    with pytest.raises(LabelsError, match=r"5 x 60 pixels but scene 's' has 40 x 60"):
        open_mask(tmp_path / "d.npy", scene)
    with pytest.warns(NotGeoreferencedWarning):
        without_crs = raster(tmp_path / "e.tif", INSIDE, None)
    np.testing.assert_array_equal(open_mask(without_crs, scene_on(None, crs=None)), INSIDE)
    with pytest.raises(LabelsError, match=r"lies in EPSG:32633 but .*e.tif has no coordinate system"):
        open_mask(without_crs, scene)


def test_masks_of_a_swath_scene(tmp_path: Path) -> None:
    """Three grid pixels per swath pixel: the majority decides."""
    rows, cols = np.mgrid[0:40, 0:60]
    lookup = Lookup((39 - rows).astype(np.int32), (cols // 3).astype(np.int32), "EPSG:32633", GRID)
    scene = Scene((40, 20, 2), np.dtype("f4"), scene_on(shape=(40, 20)).reader, name="swath", lookup=lookup)
    expected = np.zeros((40, 20), dtype=bool)
    expected[31:38, 3:5] = True  # columns 10 to 13: two thirds of the fourth pixel, two of the fifth
    path = write(tmp_path / "a.gpkg", [BOX], {"n": [1]})
    np.testing.assert_array_equal(open_mask(path, scene), expected)
    np.testing.assert_array_equal(open_mask(raster(tmp_path / "a.tif", INSIDE), scene), expected)
    np.save(tmp_path / "a.npy", expected)
    np.testing.assert_array_equal(open_mask(tmp_path / "a.npy", scene), expected)


def test_files_that_are_no_masks(tmp_path: Path) -> None:
    scene = scene_on()
    with pytest.raises(LabelsError, match="there is no file"):
        open_mask(tmp_path / "none.tif", scene)
    with pytest.raises(LabelsError, match="public scene"):
        open_mask("indian-pines", scene)
    np.save(tmp_path / "cube.npy", np.ones((40, 60, 2)))
    with pytest.raises(LabelsError, match="no 2-D array"):
        open_mask(tmp_path / "cube.npy", scene)
    np.save(tmp_path / "text.npy", np.full((40, 60), "x"))
    with pytest.raises(LabelsError, match="2-D array of numbers"):
        open_mask(tmp_path / "text.npy", scene)
    np.save(tmp_path / "empty.npy", np.zeros((40, 60)))
    with pytest.raises(LabelsError, match="no pixel of scene"):
        open_mask(tmp_path / "empty.npy", scene)


def test_a_mask_that_does_not_exist_is_not_looked_for_among_public_scenes(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match=r"there is no file '.*nothing\.tif': give the path of the mask$"):
        open_mask(tmp_path / "nothing.tif", scene_on(GRID))
