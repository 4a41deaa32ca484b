"""GeoTIFF: by window, in physical units, with what its tags say; nothing read that the user did not name."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio.shutil
import rasterio.warp
import rasterio.windows
from rasterio.crs import CRS
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.readers.geotiff import geotiff_raster
from hypercaps.io.writers.cog import write_cog
from hypercaps.io.writers.raster_kind import RasterKind
from hypercaps.pipeline.describe import describe
from support.rasters import CUBE, GRID, GT, TURNED, write
from support.scenes import make_cube


def wavelengths(path: Path) -> list[float]:
    waves = open_scene(path).wavelengths
    assert waves is not None
    return [round(float(wave), 6) for wave in waves]


# Numbers


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]
)
@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_every_type_order_and_layout(dtype: str, order: str, interleave: str, tmp_path: Path) -> None:
    cube = CUBE % 128
    path = write(tmp_path / "a.tif", cube, dtype, ENDIANNESS=order, interleave=interleave, photometric="MINISBLACK")
    scene = open_scene(path)
    assert (scene.shape, scene.dtype, scene.name) == (CUBE.shape, np.dtype(dtype), "a")
    pixels = scene.read()
    assert pixels.values.dtype == np.float32 and pixels.values.flags.c_contiguous and pixels.valid.all()
    np.testing.assert_array_equal(pixels.values, cube)


@pytest.mark.parametrize(
    "profile",
    [
        {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate", "predictor": 2},
        {"compress": "lzw"},
        {"BIGTIFF": "YES"},
    ],
)
def test_windows_equal_the_whole(profile: dict[str, Any], tmp_path: Path) -> None:
    scene = open_scene(write(tmp_path / "a.tif", nodata=7, scales=[0.1, 0.2, 0.3, 0.4], **profile))
    whole = scene.read()
    assert not whole.valid.all()
    for rows, cols in ((slice(3, 21), slice(10, 50)), (slice(39, 40), slice(0, 1)), (slice(15, 17), slice(15, 33))):
        part = scene.read(rows, cols)
        np.testing.assert_array_equal(part.values, whole.values[rows, cols])
        np.testing.assert_array_equal(part.valid, whole.valid[rows, cols])
    assert scene.read(slice(5, 5)).values.shape == (0, 50, 4)


def test_tiles_are_known_and_strips_are_none(tmp_path: Path) -> None:
    assert open_scene(write(tmp_path / "a.tif", tiled=True, blockxsize=32, blockysize=16)).block == (16, 32)
    assert open_scene(write(tmp_path / "b.tif", blockysize=8)).block is None


def test_cloud_optimized(tmp_path: Path) -> None:
    with rasterio.open(write(tmp_path / "a.tif", crs="EPSG:32633", transform=GRID)) as source:
        rasterio.shutil.copy(source, tmp_path / "cog.tif", driver="COG", blocksize=128)
    np.testing.assert_array_equal(open_scene(tmp_path / "cog.tif").read().values, CUBE)


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif").rename(tmp_path / "a.img")
    assert detect_file(path).kind == "tiff"
    np.testing.assert_array_equal(open_scene(path).read().values, CUBE)


# Nodata, scale, masks


def test_nodata_is_tested_before_the_scale(tmp_path: Path) -> None:
    cube = CUBE.copy()
    cube[1, 2, 3], cube[0, 0, 0] = -32768, 0
    scales, offsets = [0.5, 0.5, 0.5, 1.0], [1.0, 0.0, 0.0, -32768.0]  # band 4 meets the nodata only after its offset
    cube[5, 5, 3] = 0
    pixels = open_scene(write(tmp_path / "a.tif", cube, nodata=-32768, scales=scales, offsets=offsets)).read()
    assert np.argwhere(~pixels.valid).tolist() == [[1, 2]]
    expected = cube * np.array(scales) + np.array(offsets)
    np.testing.assert_allclose(pixels.values[pixels.valid], expected[pixels.valid], rtol=1e-6)


def test_nan_as_nodata_and_infinity(tmp_path: Path) -> None:
    cube = CUBE.astype(np.float32)
    cube[3, 4, 0], cube[5, 6, 2] = np.nan, np.inf
    for nodata in (float("nan"), None):
        valid = open_scene(write(tmp_path / "a.tif", cube, "float32", nodata=nodata)).read().valid
        assert np.argwhere(~valid).tolist() == [[3, 4], [5, 6]]


def test_a_float32_nodata_with_all_its_digits(tmp_path: Path) -> None:
    cube = CUBE.astype(np.float32)
    cube[3, 4, 0] = np.finfo(np.float32).min
    path = write(tmp_path / "a.tif", cube, "float32", nodata=-3.4028234663852886e38)
    assert np.argwhere(~open_scene(path).read().valid).tolist() == [[3, 4]]


def test_an_internal_mask_is_honoured(tmp_path: Path) -> None:
    mask = np.full(CUBE.shape[:2], 255, dtype=np.uint8)
    mask[7, 8] = 0
    scene = open_scene(write(tmp_path / "a.tif", mask=mask))
    assert np.argwhere(~scene.read().valid).tolist() == [[7, 8]]
    assert not scene.read(slice(7, 8), slice(8, 9)).valid.any()


def test_an_alpha_band_is_a_mask_and_no_band(tmp_path: Path) -> None:
    cube = CUBE.copy()
    cube[:, :, 3] = 255
    cube[2, 3, 3] = 0
    with pytest.warns(DataWarning, match="band 4 is an alpha band and is used as a mask"):
        scene = open_scene(write(tmp_path / "a.tif", cube, "uint8", alpha=True))
    pixels = scene.read()
    np.testing.assert_array_equal(pixels.values, cube[:, :, :3])
    assert np.argwhere(~pixels.valid).tolist() == [[2, 3]]


def test_bands_of_nodata_are_left_out(tmp_path: Path) -> None:
    cube = CUBE.copy()
    cube[:, :, [0, 2]] = -1
    with pytest.warns(DataWarning, match=r"of 4 bands, these are left out: 1, 3 \(nodata"):
        scene = open_scene(write(tmp_path / "a.tif", cube, nodata=-1))
    pixels = scene.read()
    np.testing.assert_array_equal(pixels.values, cube[:, :, [1, 3]])
    assert pixels.valid.all()


# What tags say of bands


def tagged(key: str, values: list[Any], **more: str) -> list[dict[str, str]]:
    return [{key: str(value), **more} for value in values]


def test_wavelengths_from_the_imagery_domain_come_first(tmp_path: Path) -> None:
    imagery = [{"CENTRAL_WAVELENGTH_UM": f"0.{n}", "FWHM_UM": "0.01"} for n in (4, 5, 6, 7)]
    path = write(tmp_path / "a.tif", imagery=imagery, tags=tagged("wavelength", [1, 2, 3, 4]))
    assert wavelengths(path) == [400, 500, 600, 700]
    np.testing.assert_allclose(open_scene(path).fwhm, [10] * 4)


def test_wavelengths_from_band_tags_come_before_envi(tmp_path: Path) -> None:
    tags = tagged("Wavelength", [410, 510, 610, 710], wavelength_units="Nanometers", FWHM="6")
    path = write(tmp_path / "a.tif", tags=tags, envi={"wavelength": "{1, 2, 3, 4}"})
    assert wavelengths(path) == [410, 510, 610, 710]
    np.testing.assert_allclose(open_scene(path).fwhm, [6] * 4)
    micro = write(tmp_path / "b.tif", tags=tagged("wavelength", [0.4, 0.5, 0.6, 0.7], wavelength_units="Micrometers"))
    assert wavelengths(micro) == [400, 500, 600, 700]


def test_wavelengths_from_the_envi_domain(tmp_path: Path) -> None:
    envi = {
        "wavelength": "{0.42, 0.52, 0.62, 0.72}", "wavelength_units": "Micrometers", "bbl": "{1, 1, 0, 1}",
        "reflectance_scale_factor": "100",
    }  # fmt: skip
    # Tags that only some bands have are not enough.
    path = write(tmp_path / "a.tif", envi=envi, tags=[{"wavelength": "1"}, {}, {}, {}])
    with pytest.warns(DataWarning, match=r"left out: 3 \(marked bad"):
        scene = open_scene(path)
    np.testing.assert_allclose(scene.wavelengths, [420, 520, 720])
    np.testing.assert_allclose(scene.read().values, CUBE[:, :, [0, 1, 3]] / 100, rtol=1e-6)


@pytest.mark.parametrize(("key", "bad"), [("bbl", "0"), ("good", "false")])
def test_bad_bands_are_left_out_before_their_nodata_counts(key: str, bad: str, tmp_path: Path) -> None:
    cube = CUBE.copy()
    cube[4, 4, 1] = -1
    path = write(tmp_path / "a.tif", cube, nodata=-1, tags=tagged(key, [1, bad, 1, 1]))
    with pytest.warns(DataWarning, match=r"left out: 2 \(marked bad"):
        scene = open_scene(path)
    assert scene.read().valid.all()
    np.testing.assert_array_equal(scene.read().values, cube[:, :, [0, 2, 3]])


def test_wavelengths_that_step_back_are_sorted_with_their_bands(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", tags=tagged("wavelength", [400, 900, 850, 1000]), scales=[1.0, 2.0, 3.0, 4.0])
    with pytest.warns(DataWarning, match="decrease in one place"):
        scene = open_scene(path)
    np.testing.assert_array_equal(scene.wavelengths, [400, 850, 900, 1000])
    np.testing.assert_array_equal(scene.read().values, (CUBE * [1, 2, 3, 4])[:, :, [0, 2, 1, 3]])


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"tags": tagged("wavelength", [1, 2, "blue", 4])}, "'blue' as 'wavelength'"),
        ({"envi": {"wavelength": "{1, 2}"}}, "2 numbers as 'wavelength' for 4 bands"),
        ({"envi": {"reflectance_scale_factor": "0"}}, "above 0"),
        ({"dtype": "complex64"}, "complex"),
        ({"nodata": 9, "cube": np.full((5, 5, 2), 9)}, "no valid number"),
    ],
)
def test_what_can_not_be_meant(more: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SceneError, match=sentence):
        open_scene(write(tmp_path / "a.tif", **more))


# Where it lies


@pytest.mark.parametrize("grid", [GRID, TURNED])
def test_maps_lie_exactly_where_the_scene_does(grid: rasterio.Affine, tmp_path: Path) -> None:
    scene = open_scene(write(tmp_path / "a.tif", crs="EPSG:32633", transform=grid))
    assert scene.transform == tuple(grid)[:6]
    labels = np.ones((1, *CUBE.shape[:2]), dtype=np.uint8)
    kind = RasterKind("uint8", 0, "mode", ("class",))
    write_cog(tmp_path / "map.tif", kind, scene.map_grid, lambda r0, r1: labels[:, r0:r1])
    with rasterio.open(tmp_path / "map.tif") as raster:
        assert raster.transform == grid and raster.crs == CRS.from_epsg(32633)


def test_without_a_place(tmp_path: Path) -> None:
    scene = open_scene(write(tmp_path / "a.tif"))
    assert scene.crs is None and scene.transform is None


def test_info_says_where_and_which_wavelengths(tmp_path: Path) -> None:
    tags = tagged("wavelength", [400, 500, 600, 700])
    path = write(tmp_path / "a.tif", crs="EPSG:32633", transform=TURNED, tags=tags)
    about = json.loads(CliRunner().invoke(app, ["info", str(path), "--json"]).stdout)
    assert (about["kind"], about["rows"], about["bands"], about["crs"]) == ("scene", 40, 4, "EPSG:32633")
    assert about["wavelength_range_nm"] == [400, 700]
    assert about["pixel_size"] == pytest.approx([27.95085, 27.95085])


# Labels


def test_labels_keep_names_and_colours(tmp_path: Path) -> None:
    gt = GT.copy()
    gt[0, 1] = 200
    colors = {0: (0, 0, 0, 0), 1: (10, 20, 30, 255), 3: (1, 2, 3, 255)}
    path = write(tmp_path / "gt.tif", gt, "uint8", nodata=200, colors=colors)
    (tmp_path / "gt.tif.aux.xml").write_text(
        "<PAMDataset><PAMRasterBand band='1'><CategoryNames><Category></Category><Category>Water &amp; ice</Category>"
        "<Category>Trees</Category></CategoryNames></PAMRasterBand></PAMDataset>"
    )
    labels = open_labels(path)
    np.testing.assert_array_equal(labels.array, np.where(gt == 200, 0, gt))
    assert [(e.label, e.name) for e in labels.legend] == [(1, "Water & ice"), (2, "Trees"), (3, "class 3")]
    by_label = {entry.label: entry.color for entry in labels.legend}
    assert by_label[1] == (10, 20, 30) and by_label[3] == (1, 2, 3) and by_label[2] != (0, 0, 0)
    assert describe(str(path)).to_json()["kind"] == "labels"


def test_category_names_with_entities_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "gt.tif", GT, "uint8")
    (tmp_path / "gt.tif.aux.xml").write_text(
        "<!DOCTYPE a [<!ENTITY x 'Water'>]><PAMDataset><PAMRasterBand band='1'><CategoryNames><Category/>"
        "<Category>&x;</Category></CategoryNames></PAMRasterBand></PAMDataset>"
    )
    with pytest.raises(LabelsError, match=r"gt\.tif\.aux\.xml has a document type"):
        open_labels(path)


@pytest.mark.parametrize(("dtype", "nodata"), [("int16", -1), ("float32", float("nan")), ("float32", -9999)])
def test_nodata_counts_as_unlabelled(dtype: str, nodata: float, tmp_path: Path) -> None:
    gt = GT.astype(np.float64)
    gt[2, 2] = nodata
    labels = open_labels(write(tmp_path / "gt.tif", gt, dtype, nodata=nodata))
    assert labels.array[2, 2] == 0 and labels.array[0, 3] == 3


def test_labels_that_are_none(tmp_path: Path) -> None:
    gt = GT.astype(np.float32)
    gt[0, 0] = np.nan  # not said to be nodata
    with pytest.raises(LabelsError, match="NaN"):
        open_labels(write(tmp_path / "a.tif", gt, "float32"))
    with pytest.raises(LabelsError, match="no 2-D array"):
        open_labels(write(tmp_path / "b.tif"))
    with pytest.raises(SceneError, match="no 3-D array"):
        open_scene(write(tmp_path / "c.tif", GT))


def test_labels_on_another_grid_are_brought_to_the_scenes(tmp_path: Path) -> None:
    """Labels of twice the scene's pixel size, a pixel further east: each covers 2 x 2 pixels of the scene."""
    scene = open_scene(write(tmp_path / "a.tif", crs="EPSG:32633", transform=GRID))
    coarse = rasterio.Affine(60, 0, GRID.c + 60, 0, -60, GRID.f)
    path = write(tmp_path / "gt.tif", GT, "uint8", crs="EPSG:32633", transform=coarse)
    with pytest.warns(DataWarning, match="another grid"):
        labels = open_labels(path, scene=scene)
    expected = np.zeros(CUBE.shape[:2], dtype=int)
    expected[:12, 2:12] = GT.repeat(2, axis=0).repeat(2, axis=1)
    np.testing.assert_array_equal(labels.array, expected)


def test_labels_in_another_crs(tmp_path: Path) -> None:
    scene = open_scene(write(tmp_path / "a.tif", crs="EPSG:32633", transform=GRID))
    (west, south, east, north) = rasterio.warp.transform_bounds(
        "EPSG:32633", "EPSG:4326", GRID.c, GRID.f - 1200, GRID.c + 1500, GRID.f
    )
    halves = np.repeat([[1], [2]], 100, axis=0).repeat(100, axis=1)  # the north is 1, the south 2
    grid = rasterio.Affine((east - west) / 100, 0, west, 0, (south - north) / 200, north)
    path = write(tmp_path / "gt.tif", halves, "uint8", crs="EPSG:4326", transform=grid)
    with pytest.warns(DataWarning, match="another grid"):
        labels = open_labels(path, scene=scene)
    assert (labels.array[:17] == 1).all() and (labels.array[23:] == 2).all()


def test_labels_on_the_same_grid_are_left_alone_and_distant_ones_refused(tmp_path: Path) -> None:
    scene = open_scene(write(tmp_path / "a.tif", np.ones((6, 5, 3)), crs="EPSG:32633", transform=GRID))
    nearly = rasterio.Affine(30, 0, GRID.c + 0.001, 0, -30, GRID.f)
    path = write(tmp_path / "gt.tif", GT, "uint8", crs="EPSG:32633", transform=nearly)
    np.testing.assert_array_equal(open_labels(path, scene=scene).array, GT)
    far = rasterio.Affine(30, 0, GRID.c + 9000, 0, -30, GRID.f)
    path = write(tmp_path / "far.tif", GT, "uint8", crs="EPSG:32633", transform=far)
    with pytest.raises(LabelsError, match="lies in scene"):
        open_labels(path, scene=scene)


def test_a_coordinate_system_on_one_side_only(tmp_path: Path) -> None:
    somewhere = open_scene(write(tmp_path / "a.tif", np.ones((6, 5, 3)), crs="EPSG:32633", transform=GRID))
    nowhere = open_scene(write(tmp_path / "b.tif", np.ones((6, 5, 3))))
    labels = write(tmp_path / "gt.tif", GT, "uint8")
    placed = write(tmp_path / "placed.tif", GT, "uint8", crs="EPSG:32633", transform=GRID)
    with pytest.raises(LabelsError, match=r"scene 'a' lies in EPSG:32633 but .*gt.tif has no coordinate system"):
        open_labels(labels, scene=somewhere)
    with pytest.raises(LabelsError, match=r"placed.tif lies in EPSG:32633 but scene 'b' has no coordinate system"):
        open_labels(placed, scene=nowhere)
    np.testing.assert_array_equal(open_labels(labels, scene=nowhere).array, GT)
    np.save(tmp_path / "gt.npy", GT)  # a file that can't carry one is taken pixel on pixel
    np.testing.assert_array_equal(open_labels(tmp_path / "gt.npy", scene=somewhere).array, GT)


# Refused


def test_a_vrt_that_calls_itself_tif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "secret.tif")
    vrt = (
        f"<VRTDataset rasterXSize='50' rasterYSize='40'><VRTRasterBand dataType='Int16' band='1'><SimpleSource>"
        f"<SourceFilename>{source}</SourceFilename><SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>"
    )
    (tmp_path / "a.tif").write_text(vrt)
    for opening, error, reason in ((open_scene, SceneError, "is a VRT"), (open_labels, LabelsError, "not supported")):
        with pytest.raises(error, match=reason):
            opening(tmp_path / "a.tif")  # type: ignore[operator]
    with monkeypatch.context() as patch:  # not even if it had passed for a TIFF
        patch.setattr("hypercaps.io.readers.geotiff.check_tiff", lambda path: None)
        with pytest.raises(OSError, match="not recognized"):
            geotiff_raster(tmp_path / "a.tif")
    # And one that would be opened as the mask of an honest file.
    (tmp_path / "secret.tif.msk").write_text(vrt)
    with pytest.raises(SceneError, match=r"secret\.tif\.msk is not a TIFF"):
        open_scene(source)


def test_the_mark_of_a_tiff_and_nothing_behind_it(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(b"II*\x00" + b"\x01" * 100)
    with pytest.raises(SceneError, match="truncated or damaged"):
        open_scene(tmp_path / "a.tif")


def test_damaged_files_never_crash(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", CUBE[:9, :9], crs="EPSG:32633", transform=GRID, tags=tagged("wavelength", [1] * 4))
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        raw = bytearray(whole)
        for place in rng.integers(4, len(raw), 4):
            raw[place] = rng.integers(256)
        path.write_bytes(raw[: rng.integers(len(raw) // 2, 2 * len(raw))])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                scene = open_scene(path)
            assert scene.read(slice(0, 20), slice(0, 20)).values.shape[2] == scene.bands
        except SceneError:
            refused += 1
    assert 20 < refused < 200  # some damage is in the pixels, where nobody can see it


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_file(keep: float, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", tiled=True, blockxsize=16, blockysize=16, compress="deflate")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(SceneError, match="truncated"):
        open_scene(path).read()


SPARSE = {"height": 64, "width": 64, "count": 2, "dtype": "int16", "tiled": True, "blockxsize": 16, "blockysize": 16,
          "SPARSE_OK": True, "crs": "EPSG:32633", "transform": GRID}  # fmt: skip


@pytest.mark.parametrize("left_out", [(3, 3), (1, 2)])
def test_a_file_that_was_never_written_to_its_end(left_out: tuple[int, int], tmp_path: Path) -> None:
    """A block that is missing anywhere would read as zeros; with zero as nodata that is what a sparse file means."""
    for name, nodata in (("a.tif", None), ("b.tif", 0)):
        with rasterio.open(tmp_path / name, "w", driver="GTiff", nodata=nodata, **SPARSE) as raster:
            for row, col in np.ndindex(4, 4):
                if (row, col) != left_out:
                    window = rasterio.windows.Window(col * 16, row * 16, 16, 16)
                    raster.write(np.ones((2, 16, 16), dtype=np.int16), window=window)
    with pytest.raises(SceneError, match=r"is incomplete: \d of its 16 blocks were never written"):
        open_scene(tmp_path / "a.tif")
    assert open_scene(tmp_path / "b.tif").read().valid.sum() == 15 * 256


def test_blocks_that_a_mask_leaves_out_may_be_missing(tmp_path: Path) -> None:
    mask = np.zeros((64, 64), dtype=np.uint8)
    mask[:16, :16] = 255
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", **SPARSE) as raster,
    ):
        raster.write(np.ones((2, 16, 16), dtype=np.int16), window=rasterio.windows.Window(0, 0, 16, 16))
        raster.write_mask(mask)
    np.testing.assert_array_equal(open_scene(tmp_path / "a.tif").read().valid, mask > 0)


def test_a_deflated_block_that_was_changed_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(1, 3000, (128, 64, 4))
    path = write(tmp_path / "a.tif", noise, compress="deflate", blockysize=16)
    raw = bytearray(path.read_bytes())
    for bit in range(8):  # whatever libtiff makes of it
        damaged = raw.copy()
        damaged[-3000] ^= 1 << bit
        path.write_bytes(damaged)
        scene = open_scene(path)
        np.testing.assert_array_equal(scene.read(slice(0, 112)).values, noise[:112])
        for _ in range(2):
            with pytest.raises(SceneError, match="block 7 fails its checksum"):
                scene.read(slice(100, 120))


def test_bytes_that_came_in_between_are_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif")
    raw = path.read_bytes()
    path.write_bytes(raw[:-1000] + b"\r" + raw[-1000:])
    with pytest.warns(DataWarning, match="1 bytes more than its directory describes"):
        open_scene(path)


def test_text_of_gdal_that_was_damaged(tmp_path: Path) -> None:
    """GDAL would leave out the scale, and take nodata for 0."""
    path = write(tmp_path / "a.tif", scales=[0.5] * 4, nodata=-99)
    raw = path.read_bytes()
    for old, new, sentence in (
        (b"<GDALMetadata>", b"<GDALMetadatx>", "metadata in .* is not valid XML"),
        (b"</Item>", b"</Ite\xff>", "metadata in .* is not valid XML"),
        (b"-99\0", b"-9g\0", "nodata is '-9g'"),
    ):
        assert raw.count(old) >= 1
        path.write_bytes(raw.replace(old, new, 1))
        with pytest.raises(SceneError, match=sentence):
            open_scene(path)


@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf")])
def test_a_scale_that_leaves_nothing(scale: float, tmp_path: Path) -> None:
    with pytest.raises(SceneError, match="scale of 0"):
        open_scene(write(tmp_path / "a.tif", scales=[1.0, 1.0, scale, 1.0]))


def test_metadata_beside_a_file_is_read_and_must_be_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif")
    beside = tmp_path / "a.tif.aux.xml"
    bands = "".join(
        f"<PAMRasterBand band='{n}'><Metadata><MDI key='wavelength'>{n}00</MDI></Metadata></PAMRasterBand>"
        for n in (1, 2, 3, 4)
    )
    beside.write_text(f"<PAMDataset>{bands}</PAMDataset>")
    assert wavelengths(path) == [100, 200, 300, 400]
    beside.write_text(f"<PAMDataset>{bands}")
    with pytest.raises(SceneError, match=r"a\.tif\.aux\.xml is not valid XML"):
        open_scene(path)


def test_overviews_that_lie_elsewhere_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", crs="EPSG:32633", transform=GRID)
    (tmp_path / "a.tif.aux.xml").write_text(
        "<PAMDataset><Metadata domain='OVERVIEWS'><MDI key='OVERVIEW_FILE'>/etc/hostname</MDI></Metadata></PAMDataset>"
    )
    with pytest.raises(SceneError, match="refers to another file for overviews"):
        open_scene(path)
    (tmp_path / "a.tif.aux.xml").unlink()
    with rasterio.open(path, "r+") as raster:
        raster.update_tags(ns="OVERVIEWS", OVERVIEW_FILE="/etc/hostname")
    with pytest.raises(SceneError, match="refers to another file for overviews"):
        open_scene(path)


# Real files, and the whole way


def test_enmap(real_data: Path) -> None:
    path = real_data / "enmap_potsdam" / "images" / "enmap_potsdam_tile_128_0.tif"
    with pytest.warns(DataWarning) as told:
        scene = open_scene(path)
    assert [str(one.message).partition(": ")[2] for one in told] == [
        "of 224 bands, these are left out: 130-135 (marked bad in the file)",
        "the wavelengths decrease in one place; the bands are sorted by wavelength",
    ]
    assert scene.shape == (32, 32, 218) and scene.transform == (30, 0, 366015, 0, -30, 5809965)
    assert scene.wavelengths is not None and (np.diff(scene.wavelengths) > 0).all() and scene.wavelengths[0] == 418.24
    assert scene.fwhm is not None and scene.fwhm[0] == 6.99561
    pixels = scene.read()
    with rasterio.open(path) as independent:
        kept = [i for i in independent.indexes if independent.tags(i)["bbl"] == "1"]
        kept.sort(key=lambda i: float(independent.tags(i)["wavelength"]))
        stored = np.moveaxis(independent.read(kept), 0, -1)
    np.testing.assert_array_equal(pixels.valid, (stored != -32768).all(axis=2))
    assert pixels.valid.any()
    np.testing.assert_allclose(pixels.values[pixels.valid], stored[pixels.valid] * 0.0001, rtol=1e-5)
    labels = open_labels(real_data / "enmap_potsdam" / "labels" / path.name, scene=scene)
    assert labels.shape == (32, 32) and sum(labels.counts().values()) == 508


def test_from_a_geotiff_to_a_map_on_its_grid(tmp_path: Path) -> None:
    cube, gt = make_cube()
    scene = write(tmp_path / "a.tif", cube, "float32", crs="EPSG:32633", transform=TURNED)
    labels = write(tmp_path / "gt.tif", gt, "int16", crs="EPSG:32633", transform=TURNED)
    args = ["train", str(scene), str(labels), "--out", str(tmp_path / "run"), "--method", "rbf-svm"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    with rasterio.open(tmp_path / "run" / "map.tif") as raster:
        assert raster.transform == TURNED and raster.crs == CRS.from_epsg(32633)


# Sizes that a file claims


def test_a_block_that_claims_much_more_than_it_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tif", np.zeros((600, 700, 2)), "uint8", compress="deflate", blockysize=600)
    monkeypatch.setattr("hypercaps.io.limits.SMALL", 1000)
    with pytest.raises(SceneError, match=r"claims [\d,]+ bytes for a block and stores \d+, which"):
        open_scene(path)


def test_labels_that_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tif", GT, "uint8", compress="deflate")
    assert open_labels(path).array.any()
    monkeypatch.setattr("hypercaps.io.limits.available_memory", lambda: 200)
    with pytest.raises(LabelsError, match=r"a\.tif spans [\d,]+ x [\d,]+ pixels, which take 0\.0 GB .*give a part"):
        open_labels(path)
