"""EMIT L2A: a swath with its bands in nm, and the lookup table between it and the ground."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import rasterio
from rasterio.crs import CRS
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.data.grid import Lookup
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.labels.regrid import grid_to_swath
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.readers import hdf5
from support.mutants import outcomes
from support.products import EMIT_BANDS, EMIT_COLS, EMIT_ROWS, emit_cube, emit_tables, write_emit

GOOD = [0, 1, 2, 4, 5, 6, 7]
GROUND = rasterio.Affine(0.5, 0, 20, 0, -0.5, 50)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial in another process takes a third of a second: only tests of damage, and the first, have it."""
    if not request.node.originalname.startswith(("test_damaged", "test_numbers")):
        monkeypatch.setattr(hdf5, "_is_survived", lambda path: True)


def opened(path: Path) -> Scene:
    with pytest.warns(DataWarning, match=r"left out: 4 \(marked bad"):
        return open_scene(path)


@pytest.fixture
def emit(tmp_path: Path) -> Path:
    return write_emit(tmp_path / "EMIT_L2A_RFL_001.nc")


def test_numbers_bands_and_georeference(emit: Path) -> None:
    scene = opened(emit)
    assert (scene.shape, scene.dtype, scene.name) == ((EMIT_ROWS, EMIT_COLS, 7), np.float32, "EMIT_L2A_RFL_001")
    np.testing.assert_allclose(scene.wavelengths, np.linspace(400, 2400, EMIT_BANDS)[GOOD], rtol=1e-6)
    np.testing.assert_array_equal(scene.fwhm, [8.5] * 7)
    assert scene.crs is None and scene.transform is None and scene.block == (5, 4)
    pixels = scene.read()
    np.testing.assert_array_equal(pixels.valid, emit_cube()[:, :, 0] != -9999)
    np.testing.assert_array_equal(pixels.values[pixels.valid], emit_cube()[:, :, GOOD][pixels.valid])
    for rows, cols in ((slice(1, 7), slice(3, 5)), (slice(11, 12), slice(0, 10))):
        np.testing.assert_array_equal(scene.read(rows, cols).values, pixels.values[rows, cols])


def test_the_ground_table_counts_from_zero_and_fills_gaps(emit: Path) -> None:
    lookup = opened(emit).lookup
    assert lookup is not None and lookup.shape == (14, 13) and lookup.transform == tuple(GROUND)[:6]
    assert CRS.from_wkt(lookup.crs) == CRS.from_epsg(4326)
    x, y = emit_tables()
    np.testing.assert_array_equal(lookup.cols, np.abs(x) - 1)
    np.testing.assert_array_equal(lookup.rows, np.abs(y) - 1)
    assert (lookup.rows[5, 12], lookup.cols[5, 12]) == (11, 3)  # stored as negative: filled from a neighbour
    assert (lookup.rows[0] == -1).all() and (lookup.cols[0] == -1).all()


@pytest.mark.parametrize("fill", [np.float32(-1), None])
def test_minus_9999_is_missing_whatever_the_fill_value(fill: Any, tmp_path: Path) -> None:
    cube = emit_cube()
    cube[5, 5] = -1
    valid = opened(write_emit(tmp_path / "a.nc", cube, fill=fill)).read().valid
    assert not valid[0, 0] and valid[5, 5] == (fill is None)


def test_other_cubes_of_the_same_layout(tmp_path: Path) -> None:
    """Radiance (L1B) has no list of good bands; a second cube must be named."""
    path = write_emit(tmp_path / "a.nc", good_wavelengths=None)
    assert open_scene(path).bands == EMIT_BANDS
    with h5py.File(path, "r+") as file:
        file["second"] = emit_cube() * 2
    with pytest.raises(SceneError, match="several arrays"):
        open_scene(path)
    assert open_scene(f"{path}:second").read().values[5, 5, 0] == 2 * emit_cube()[5, 5, 0]


def test_info(tmp_path: Path) -> None:
    emit = write_emit(tmp_path / "a.nc", good_wavelengths=None)
    about = json.loads(CliRunner().invoke(app, ["info", str(emit), "--json"]).stdout)
    assert (about["kind"], about["rows"], about["bands"], about["crs"]) == ("scene", 12, 8, "EPSG:4326")
    assert (about["map_rows"], about["map_cols"], about["pixel_size"]) == (14, 13, [0.5, 0.5])
    assert [str(array) for array in detect_file(emit).arrays] == ["reflectance (12 x 10 x 8)"]


@pytest.mark.parametrize("name", ["glt_x", "spatial_ref", "geotransform"])
def test_without_a_part_of_the_table_it_is_not_georeferenced(name: str, tmp_path: Path) -> None:
    path = write_emit(tmp_path / "a.nc", good_wavelengths=None, **{name: None})
    with pytest.warns(DataWarning, match=f"no usable .*{name}.*can't be put on the ground"):
        scene = open_scene(path)
    assert scene.lookup is None and scene.shape[:2] == (12, 10)


def beyond(axis: str) -> dict[str, np.ndarray]:
    x, y = emit_tables()
    (x if axis == "x" else y)[3, 3] = 13 if axis == "y" else 11
    return {"glt_x": x, "glt_y": y}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (beyond("x"), "points outside of its swath of 12 x 10"),
        (beyond("y"), "points outside of its swath"),
        ({"glt_x": np.ones((3, 3), dtype=np.int32)}, "ground tables of"),
        ({"glt_y": np.ones((14, 13))}, "whole numbers"),
        ({"wavelengths": np.full(EMIT_BANDS, np.nan)}, "finite number for each of 8 bands"),
        ({"wavelengths": np.zeros(EMIT_BANDS)}, "not above 0"),
        ({"fwhm": np.ones(3)}, "finite number for each"),
        ({"glt_x": np.ones((3000, 3000), np.int8), "glt_y": np.ones((3000, 3000), np.int8)}, "ground tables"),
    ],
)
def test_unusable_products(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SceneError, match=sentence):
        open_scene(write_emit(tmp_path / "a.nc", **changes))


# Between the ground and the swath


def table(rows: list[list[int]], cols: list[list[int]]) -> Lookup:
    return Lookup(np.array(rows, dtype=np.int32), np.array(cols, dtype=np.int32), "EPSG:4326", (1, 0, 0, 0, -1, 0))


def test_the_class_of_most_ground_pixels_is_taken_and_ties_are_none() -> None:
    lookup = table([[0, 0, 0, 0, -1], [1, 1, 1, 0, 0]], [[0, 0, 0, 1, -1], [1, 1, 0, 1, 0]])
    ground = np.array([[7, 7, 3, 2, 9], [4, 5, 6, 0, 3]], dtype=np.int16)
    # (0, 0) gets 7, 7, 3, 3: a tie; (0, 1) gets 2 and an unlabelled one; (1, 1) gets 4, 5: a tie; (1, 0) gets 6.
    np.testing.assert_array_equal(grid_to_swath(ground, lookup, (2, 3)), [[0, 2, 0], [6, 0, 0]])
    ground[1, 4] = 7
    assert grid_to_swath(ground, lookup, (2, 3))[0, 0] == 7
    assert not grid_to_swath(np.zeros_like(ground), lookup, (2, 3)).any()


def test_majority_against_counting_one_by_one() -> None:
    rng = np.random.default_rng(1)
    shape, ground = (6, 7), rng.integers(0, 4, (40, 30)).astype(np.int16) * 8191
    rows, cols = rng.integers(-1, 6, ground.shape), rng.integers(-1, 7, ground.shape)
    cols[rows < 0] = -1
    rows[cols < 0] = -1
    got = grid_to_swath(ground, table(rows.tolist(), cols.tolist()), shape)
    for r in range(6):
        for c in range(7):
            labels = [int(v) for v in ground[(rows == r) & (cols == c)] if v]
            counts = sorted(((labels.count(v), v) for v in set(labels)), reverse=True)
            tie = len(counts) > 1 and counts[0][0] == counts[1][0]
            assert got[r, c] == (0 if tie or not counts else counts[0][1])


def test_a_table_that_does_not_fit_is_refused() -> None:
    lookup = table([[0, 1, -1]], [[2, 0, -1]])
    with pytest.raises(SceneError, match="does not fit"):
        grid_to_swath(np.ones((2, 3), dtype=np.int16), lookup, (2, 3))
    for shape in ((1, 3), (2, 2)):
        with pytest.raises(SceneError, match="does not fit"):
            grid_to_swath(np.ones((1, 3), dtype=np.int16), lookup, shape)


def write_labels(path: Path, array: np.ndarray, crs: str, transform: rasterio.Affine) -> Path:
    profile = {"height": array.shape[0], "width": array.shape[1], "count": 1, "dtype": "uint8"}
    with rasterio.open(path, "w", driver="GTiff", crs=crs, transform=transform, **profile) as raster:
        raster.write(array.astype(np.uint8), 1)
    return path


def test_georeferenced_labels_land_in_the_swath(emit: Path, tmp_path: Path) -> None:
    scene = opened(emit)
    ground = (np.arange(14 * 13).reshape(14, 13) % 3 + 1).astype(np.uint8)
    path = write_labels(tmp_path / "gt.tif", ground, "EPSG:4326", GROUND)
    with pytest.warns(DataWarning, match="on a map grid, not in the swath"):
        labels = open_labels(path, scene=scene)
    expected = ground[2:12, 0:12].T.copy()  # the table turns the swath by a quarter
    expected[11, 3] = ground[7 - 2, 11] if ground[5, 11] == ground[5, 12] else 0  # seen twice
    np.testing.assert_array_equal(labels.array, expected)
    labels.check_fits(scene)
    # The same through another grid and another coordinate system: halves in place of pixels.
    halves = np.repeat([1, 2], 200)[None].repeat(300, axis=0)
    fine = rasterio.Affine(6.5 / 400, 0, 20, 0, -7 / 300, 50)
    with pytest.warns(DataWarning, match="on a map grid, not in the swath"):
        labels = open_labels(write_labels(tmp_path / "fine.tif", halves, "EPSG:4258", fine), scene=scene)
    assert (labels.array[:6] == 1).all() and (labels.array[8:, :3] == 2).all()
    far = write_labels(tmp_path / "far.tif", ground, "EPSG:4326", rasterio.Affine(0.5, 0, 90, 0, -0.5, 50))
    with pytest.raises(LabelsError, match="lies in scene"):
        open_labels(far, scene=scene)


def test_labels_without_a_place_must_have_the_swaths_size(emit: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "gt.npy", np.ones((12, 10), dtype=np.int16))
    assert open_labels(tmp_path / "gt.npy", scene=opened(emit)).shape == (12, 10)


# Damage


@pytest.mark.parametrize(("libver", "count"), [("latest", 220), (None, 80)])
def test_damaged_products(libver: Any, count: int, tmp_path: Path) -> None:
    """The newer layout has checksums for its structure, and the cube has them in both.

    In the older one a flipped bit of an attribute or of a table without checksum can't be detected; there the test is
    only that nothing crashes.
    """
    found = outcomes(write_emit(tmp_path / "sound.nc", libver=libver), count, seed=2)
    assert found.count("refused") > count / 4 and found.count("same") > 10
    if libver == "latest":
        assert set(found) <= {"refused", "same", "told"}
