"""Tiles of one grid as one scene: where they lie, what wins, what is refused; and how tiles are named."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.data.pixels import ArrayReader
from hypercaps.data.splits import draw_folds, label_units
from hypercaps.data.window import Window
from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.raster import scene_from
from hypercaps.io.readers.geotiff import geotiff_raster
from hypercaps.io.readers.mosaic import mosaic
from support.rasters import CUBE, GRID, TURNED, write
from support.scenes import make_cube

PLACE = {"crs": "EPSG:32633"}


def grid(row: float, col: float, of: rasterio.Affine = GRID) -> rasterio.Affine:
    """The grid of a tile whose first pixel is at this row and column of another."""
    return of @ rasterio.Affine.translation(col, row)


def tile(path: Path, row: int, col: int, cube: np.ndarray, dtype: str = "int16", **more: Any) -> Path:
    return write(path, cube, dtype, transform=grid(row, col, more.pop("of", GRID)), **PLACE, **more)


def quarters(folder: Path, **more: Any) -> Path:
    """CUBE in four tiles, one of them missing."""
    folder.mkdir(exist_ok=True)
    for row, col in ((0, 0), (0, 25), (20, 25)):
        tile(folder / f"{row}_{col}.tif", row, col, CUBE[row : row + 20, col : col + 25], **more)
    return folder


@pytest.mark.parametrize("of", [GRID, TURNED])
def test_tiles_are_one_scene(of: rasterio.Affine, tmp_path: Path) -> None:
    scene = open_scene(quarters(tmp_path / "tiles", of=of) / "*.tif")
    assert (scene.shape, scene.name, scene.transform) == (CUBE.shape, "tiles", tuple(of)[:6])
    assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(32633)
    pixels = scene.read()
    there = np.ones(CUBE.shape[:2], dtype=bool)
    there[20:, :25] = False
    np.testing.assert_array_equal(pixels.valid, there)
    np.testing.assert_array_equal(pixels.values[there], CUBE[there])
    part = scene.read(slice(15, 25), slice(20, 30))
    np.testing.assert_array_equal(part.valid, there[15:25, 20:30])
    np.testing.assert_array_equal(part.values[part.valid], CUBE[15:25, 20:30][part.valid])


def test_ways_to_name_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = quarters(tmp_path / "tiles")
    names = ["0_0.tif", "0_25.tif", "20_25.tif"]
    (tmp_path / "list.txt").write_text("# three tiles\n" + "\n".join(f"tiles/{name}" for name in names) + "\n\n")
    monkeypatch.chdir(folder)
    ways: list[Any] = [
        [folder / name for name in names], tuple(names), "*.tif", str(folder / "*_*.tif"), ",".join(names),
        "0_*.tif, 20_25.tif", "@../list.txt", f"@{tmp_path / 'list.txt'}",
    ]  # fmt: skip
    for way in ways:
        assert open_scene(way).shape == CUBE.shape, way
    # A file that is really called so is a file.
    tile(folder / "a,b[1].tif", 0, 0, CUBE)
    assert open_scene("a,b[1].tif").name == "a,b[1]"
    assert open_scene(["0_0.tif"]).shape == (20, 25, 4)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("none*.tif", r"no file matches 'none\*\.tif'"), ([], "no tile is named"), ("@none.txt", "list of tiles none"),
        ("@empty.txt", "names no tile"), ("@pixels.bin", "not text"), ("0_0.tif,1_1.tif", "no file '1_1.tif'"),
        (["0_0.tif", "gt.npy"], "gt.npy can.t be a tile"), (["0_0.tif", "."], "is a folder"),
    ],
)  # fmt: skip
def test_tiles_that_are_not_there(named: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(quarters(tmp_path))
    Path("empty.txt").write_text("\n# nothing\n")
    Path("pixels.bin").write_bytes(b"\xff\xfe\xfd")
    np.save("gt.npy", CUBE)
    # A list of label files is not one raster of tiles: they add up, of whatever kinds they are.
    as_labels = [] if isinstance(named, list) else [(open_labels, LabelsError)]
    for opening, error in ((open_scene, SceneError), *as_labels):
        with pytest.raises(error, match=sentence):
            opening(named)  # type: ignore[operator]


def test_the_first_valid_pixel_wins(tmp_path: Path) -> None:
    one, two = np.full((4, 4, 3), 1), np.full((4, 4, 3), 2)
    one[1, 3], one[2, 2, 0], two[0, 0] = -1, -1, -1
    tile(tmp_path / "a.tif", 0, 0, one, nodata=-1)
    tile(tmp_path / "b.tif", 0, 2, two, nodata=-1)
    pixels = open_scene(tmp_path / "*.tif").read()
    expected = np.repeat([[1, 1, 1, 1, 2, 2]], 4, axis=0)
    expected[1, 3] = expected[2, 2] = 2  # where the first has nodata in any band
    assert pixels.valid.all()
    np.testing.assert_array_equal(pixels.values, np.repeat(expected[:, :, None], 3, axis=2))


def test_bands_are_left_out_of_the_whole_not_of_tiles(tmp_path: Path) -> None:
    """Band 2 holds nothing in either tile, band 3 in one of them, and one tile holds nothing at all."""
    one, two = CUBE[:5, :5].copy(), CUBE[:5, 5:10].copy()
    one[:, :, [1, 2]] = two[:, :, 1] = -1
    for name, col, cube in (("a", 0, one), ("b", 5, two), ("c", 10, np.full((5, 5, 4), -1))):
        tile(tmp_path / f"{name}.tif", 0, col, cube, nodata=-1)
    with pytest.warns(DataWarning, match=r"of 4 bands, these are left out: 2 \(nodata"):
        scene = open_scene(tmp_path / "*.tif")
    pixels = scene.read()
    assert scene.bands == 3 and not pixels.valid[:, :5].any() and pixels.valid[:, 5:10].all()
    np.testing.assert_array_equal(pixels.values[:, 5:10], two[:, :, [0, 2, 3]])


def test_a_band_that_is_bad_in_one_tile_is_bad(tmp_path: Path) -> None:
    tile(tmp_path / "a.tif", 0, 0, CUBE[:5, :5], tags=[{"bbl": flag} for flag in "1101"])
    tile(tmp_path / "b.tif", 0, 5, CUBE[:5, 5:10], tags=[{"bbl": flag} for flag in "1111"])
    with pytest.warns(DataWarning, match=r"left out: 3 \(marked bad"):
        assert open_scene(tmp_path / "*.tif").bands == 3


def test_types_nodata_and_scales_of_each_tile(tmp_path: Path) -> None:
    small, large = np.full((3, 3, 2), 200), np.full((3, 3, 2), -5000)
    small[0, 0], large[0, 0] = 255, -1
    tile(tmp_path / "a.tif", 0, 0, small, "uint8", nodata=255)
    tile(tmp_path / "b.tif", 0, 3, large, "int16", nodata=-1)
    scene = open_scene(tmp_path / "*.tif")
    assert scene.dtype == np.dtype("int16")
    pixels = scene.read()
    assert np.argwhere(~pixels.valid).tolist() == [[0, 0], [0, 3]]
    assert set(pixels.values[pixels.valid].ravel()) == {200.0, -5000.0}
    tile(tmp_path / "b.tif", 0, 3, large, "int16", nodata=-1, scales=[0.5, 0.5], offsets=[1.0, 2.0])
    scaled = open_scene(tmp_path / "*.tif").read().values
    np.testing.assert_array_equal(scaled[1, [0, 3]], [[200, 200], [-2499, -2498]])


def test_a_window_opens_only_the_tiles_it_touches(tmp_path: Path) -> None:
    scene = open_scene(quarters(tmp_path) / "*.tif")
    (tmp_path / "0_25.tif").unlink()
    np.testing.assert_array_equal(scene.read(slice(0, 20), slice(0, 25)).values, CUBE[:20, :25])
    assert not scene.read(slice(20, 40), slice(0, 25)).valid.any()  # of the gap, nothing is opened
    with pytest.raises(SceneError, match=r"0_25\.tif"):
        scene.read(slice(0, 20), slice(24, 26))


def test_tiles_far_apart_cost_nothing(tmp_path: Path) -> None:
    tile(tmp_path / "a.tif", 0, 0, CUBE[:5, :5])
    tile(tmp_path / "b.tif", 300_000, 300_000, CUBE[:5, :5])
    scene = open_scene(tmp_path / "*.tif")
    assert scene.shape == (300_005, 300_005, 4)
    np.testing.assert_array_equal(scene.read(slice(300_000, None), slice(300_000, None)).values, CUBE[:5, :5])
    write(tmp_path / "gt_a.tif", CUBE[:5, :5, 0], transform=grid(0, 0), **PLACE)
    write(tmp_path / "gt_b.tif", CUBE[:5, :5, 0], transform=grid(300_000, 300_000), **PLACE)
    with pytest.raises(LabelsError, match="spans 300,005 x 300,005 pixels"):
        open_labels(tmp_path / "gt_*.tif")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"transform": grid(0, 5.3)}, "grid"),
        ({"transform": grid(0, 5) @ rasterio.Affine.scale(1.01)}, "grid"),
        ({"transform": grid(0, 5) @ rasterio.Affine.rotation(1)}, "grid"),
        ({"crs": "EPSG:32634"}, "differ in coordinate system"),
        ({"crs": None}, "is not georeferenced"),
        ({"transform": None}, "is not georeferenced"),
        ({"cube": CUBE[:5, :5, :3]}, "3 bands and"),
        ({"tags": None}, "only one of .* has wavelengths"),
        ({"tags": [{"wavelength": str(wave)} for wave in (400, 500, 600, 702)]}, "differ by up to 2 nm"),
    ],
)
def test_tiles_that_are_not_of_one_scene(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    tags = [{"wavelength": str(wave)} for wave in (400, 500, 600, 700)]
    tile(tmp_path / "a.tif", 0, 0, CUBE[:5, :5], tags=tags)
    second = {"cube": CUBE[:5, 5:10], "transform": grid(0, 5), "tags": tags, **PLACE} | change
    if len(second["cube"][0, 0]) == 3:
        second["tags"] = tags[:3]
    write(tmp_path / "b.tif", **{key: value for key, value in second.items() if value is not None})
    with pytest.raises(SceneError, match=sentence):
        open_scene(tmp_path / "*.tif")


def test_a_grid_with_other_last_digits_is_the_same(tmp_path: Path) -> None:
    tile(tmp_path / "a.tif", 0, 0, CUBE[:5, :5])
    write(tmp_path / "b.tif", CUBE[:5, 5:10], transform=grid(0.001, 5.002), **PLACE)
    np.testing.assert_array_equal(open_scene(tmp_path / "*.tif").read().values, CUBE[:5, :10])


def test_label_tiles_on_the_grid_of_the_scene(tmp_path: Path) -> None:
    scene = open_scene(quarters(tmp_path / "tiles") / "*.tif")
    labels = np.arange(40 * 50).reshape(40, 50) % 4
    (tmp_path / "labels").mkdir()
    colors = {1: (10, 20, 30, 255)}
    for row, col in ((0, 0), (0, 20), (20, 25)):  # the second overlaps the first
        part = labels[row : row + 20, col : col + 25].copy()
        if (row, col) == (0, 0):
            part[:, 20:] = 0  # unlabelled, where the second has labels
        path = tmp_path / "labels" / f"{row}_{col}.tif"
        write(path, part, "uint8", transform=grid(row, col), colors=colors, **PLACE)
    found = open_labels(tmp_path / "labels" / "*.tif", scene=scene)
    labels[:20, 45:] = labels[20:, :25] = 0
    np.testing.assert_array_equal(found.array, labels)
    assert found.legend.entries[0].color == (10, 20, 30)


def test_names_that_tiles_disagree_about(tmp_path: Path) -> None:
    for name, col, word in (("a", 0, "Water"), ("b", 5, "Lake")):
        write(tmp_path / f"{name}.tif", np.ones((5, 5)), "uint8", transform=grid(0, col), **PLACE)
        (tmp_path / f"{name}.tif.aux.xml").write_text(
            "<PAMDataset><PAMRasterBand band='1'><CategoryNames><Category/><Category>"
            f"{word}</Category></CategoryNames></PAMRasterBand></PAMDataset>"
        )
    with pytest.warns(DataWarning, match=r"class 1 has another name in some tiles \(Lake\): Water is taken"):
        assert open_labels(tmp_path / "*.tif").legend.entries[0].name == "Water"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_tiling_reads_as_if_painted(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Tiles anywhere, overlapping, with nodata: the same as painting them one over the other, the first on top."""
    folder = tmp_path_factory.mktemp("tiles")
    canvas, known = np.zeros((40, 40, 2), dtype=int), np.zeros((40, 40), dtype=bool)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    rasters, corners = [], []
    for number in range(data.draw(st.integers(1, 4))):
        row, col, rows, cols = (
            data.draw(st.integers(least, most)) for least, most in ((0, 30), (0, 30), (1, 10), (1, 10))
        )
        cube = rng.integers(0, 9, (rows, cols, 2))  # 0 is nodata
        rasters.append(geotiff_raster(tile(folder / f"{number}.tif", row, col, cube, nodata=0)))
        corners.append((row, col, row + rows, col + cols))
        free = ~known[row : row + rows, col : col + cols] & (cube > 0).all(axis=2)
        canvas[row : row + rows, col : col + cols][free] = cube[free]
        known[row : row + rows, col : col + cols] |= free
    if not known.any():
        return
    whole = mosaic(rasters)
    r0, c0, r1, c1 = (pick(corner[at] for corner in corners) for at, pick in enumerate((min, min, max, max)))
    assert whole.raster.shape[:2] == (r1 - r0, c1 - c0)
    inside = np.zeros((40, 40), dtype=bool)
    for a, b, c, d in corners:
        inside[a:c, b:d] = True
    assert whole.covered == pytest.approx(inside.sum() / ((r1 - r0) * (c1 - c0)))
    a, b = data.draw(st.integers(0, r1 - r0 - 1)), data.draw(st.integers(0, c1 - c0 - 1))
    pixels = scene_from(whole.raster, whole.tiles).read(slice(a, a + 9), slice(b, b + 9))
    np.testing.assert_array_equal(pixels.valid, known[r0:r1, c0:c1][a : a + 9, b : b + 9])
    np.testing.assert_array_equal(pixels.values[pixels.valid], canvas[r0:r1, c0:c1][a : a + 9, b : b + 9][pixels.valid])


# The whole way


def run(*args: Any) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_from_tiles_to_a_map(tmp_path: Path) -> None:
    cube, gt = make_cube()
    for name, col in (("left", 0), ("right", 18)):
        part = slice(col, col + 18)
        tile(tmp_path / f"{name}.tif", 0, col, cube[:, part], "float32")
        write(tmp_path / f"{name}_gt.tif", gt[:, part], "int16", transform=grid(0, col), **PLACE)
    labels = tmp_path / "*_gt.tif"
    scene = f"{tmp_path / 'left.tif'},{tmp_path / 'right.tif'}"
    about = json.loads(run("info", scene, "--json"))
    assert (about["kind"], about["tiles"], about["covered"], about["cols"]) == ("scene", 2, 1.0, 36)
    assert json.loads(run("info", labels, "--json"))["kind"] == "labels"
    run("train", scene, labels, "--out", tmp_path / "run", "--method", "rbf-svm")
    with rasterio.open(tmp_path / "run" / "map.tif") as raster:
        assert raster.transform == GRID and raster.shape == (36, 36)
    refused = CliRunner().invoke(
        app, ["map", str(tmp_path / "run" / "model.safetensors"), scene, "--out", str(tmp_path / "left.tif")]
    )
    assert refused.exit_code == 2 and "left.tif" in refused.output  # a result must not replace a tile


def test_enmap_tiles_of_potsdam(real_data: Path) -> None:
    with pytest.warns(DataWarning) as told:
        scene = open_scene(real_data / "enmap_potsdam" / "images" / "*.tif")
    assert [str(one.message) for one in told] == [
        "images: of 224 bands, these are left out: 130-135 (marked bad in the file)",
        "images: the wavelengths decrease in one place; the bands are sorted by wavelength",
    ]
    assert scene.shape == (160, 160, 218) and scene.transform == (30, 0, 364095, 0, -30, 5809965)
    pixels, seen = scene.read(), np.zeros((160, 160), dtype=bool)
    labels = open_labels(real_data / "enmap_potsdam" / "labels" / "*.tif", scene=scene)
    for path in sorted((real_data / "enmap_potsdam" / "images").glob("*.tif")):
        with pytest.warns(DataWarning):
            one = open_scene(path)
        col, row = (int(number) for number in path.stem.split("_")[-2:])
        here = (slice(row, row + 32), slice(col - 64, col - 32))
        alone = one.read()
        np.testing.assert_array_equal(pixels.valid[here], alone.valid)
        np.testing.assert_array_equal(pixels.values[here][alone.valid], alone.values[alone.valid])
        own = open_labels(real_data / "enmap_potsdam" / "labels" / path.name, scene=one)
        np.testing.assert_array_equal(labels.array[here], own.array)
        seen[here] = True
    assert seen.sum() == 12 * 32 * 32 and not pixels.valid[~seen].any() and not labels.array[~seen].any()


def test_scene_and_labels_know_their_tiles(tmp_path: Path) -> None:
    gt = (np.arange(40 * 50).reshape(40, 50) // 7 % 3).astype(np.int16)
    (tmp_path / "gt").mkdir()
    for row, col in ((0, 0), (0, 25), (20, 25)):
        tile(tmp_path / "gt" / f"{row}_{col}.tif", row, col, gt[row : row + 20, col : col + 25])
    scene = open_scene(quarters(tmp_path / "tiles") / "*.tif")
    windows = (Window(0, 20, 0, 25), Window(0, 20, 25, 50), Window(20, 40, 25, 50))
    assert scene.tiles == windows
    labels = open_labels(str(tmp_path / "gt" / "*.tif"), scene=scene)
    assert labels.tiles == windows
    units = label_units(labels, tiles=labels.tiles)
    assert (units.kind, units.count) == ("tiles", 3)
    one = open_scene(tmp_path / "tiles" / "0_0.tif")
    assert one.tiles == () == open_scene([tmp_path / "tiles" / "0_0.tif"]).tiles


def test_labels_keep_their_tiles_on_the_same_grid_only(tmp_path: Path) -> None:
    gt = np.ones((20, 25), dtype=np.int16)
    gt[:, 12:] = 2
    for name, row, col in (("a", 0, 0), ("b", 0, 25), ("c", 20, 25)):
        tile(tmp_path / f"gt_{name}.tif", row, col, gt)
    scene = open_scene(quarters(tmp_path / "tiles") / "*.tif")
    given = str(tmp_path / "gt_*.tif")
    invalid = CUBE.copy()
    invalid[3, 4] = 0
    holed = replace(scene, reader=ArrayReader(invalid.astype(np.float32), 0))
    labels = open_labels(given, scene=scene)
    assert len(labels.tiles) == 3
    with pytest.warns(DataWarning, match="invalid"):
        assert labels.where_valid(holed).tiles == labels.tiles
    write(tmp_path / "more.tif", np.eye(40, 50, dtype=np.int16), transform=GRID, **PLACE)
    with pytest.warns(DataWarning, match="overlap"):
        assert open_labels([given, tmp_path / "more.tif"], scene=scene).tiles == labels.tiles
    smaller = open_scene([tmp_path / "tiles" / "0_25.tif", tmp_path / "tiles" / "20_25.tif"])
    with pytest.warns(DataWarning, match="on another grid"):
        assert open_labels(given, scene=smaller).tiles == ()


def test_the_tiles_of_enmap_are_units(real_data: Path) -> None:
    folder = real_data / "enmap_potsdam"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        scene = open_scene(str(folder / "images" / "*.tif"))
        labels = open_labels(str(folder / "labels" / "*.tif"), scene=scene).where_valid(scene)
    assert len(scene.tiles) == len(list((folder / "images").glob("*.tif"))) and labels.tiles == scene.tiles
    units = label_units(labels, tiles=labels.tiles)
    assert units.kind == "tiles" and units.count == len(scene.tiles)
    folds = draw_folds(labels, units)
    assert folds.count == 5
    for k in range(5):
        tested = np.unique(units.unit[folds.fold == k])
        assert 2 <= tested.size <= 3
