"""Rasters that say the same when they are read back, by rasterio and by programs that share nothing with it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
from rasterio.errors import NotGeoreferencedWarning

from hypercaps.data.grid import Affine, MapGrid
from hypercaps.data.labels import Legend, LegendEntry
from hypercaps.data.scene import Scene
from hypercaps.errors import OutputError
from hypercaps.io.open import open_labels
from hypercaps.io.writers import cog
from hypercaps.io.writers.atomic import write_all_or_nothing, write_files
from hypercaps.io.writers.cog import write_cog
from hypercaps.io.writers.legend_files import legend_files
from hypercaps.io.writers.raster_kind import RasterKind

UTM = (30.0, 0.0, 500_015.0, 0.0, -30.0, 4_490_025.0)
TURNED = (26.1, -14.8, 361_234.567, 14.8, 26.1, 4_490_000.125)
LEGEND = Legend((LegendEntry(1, "Water & <ice>", (31, 120, 209)), LegendEntry(7, 'Wälder "hoch"', (20, 83, 45))))
CLASSES = np.array([[0, 1, 7, 7], [7, 7, 1, 0], [1, 1, 1, 7]], dtype=np.uint8)
CONFIDENCE = np.array([[np.nan, 0.5, 1.0, 0.0], [0.1, 0.2, 0.3, np.nan], [0.7, 0.8, 0.9, 1 / 3]], dtype=np.float32)
OF_CLASSES = RasterKind(
    "uint8", 0, "mode", ("class",), colors={0: (0, 0, 0, 0)} | {e.label: (*e.color, 255) for e in LEGEND},
    tags={"HYPERCAPS_VERSION": "1"}, band_tags={f"CLASS_{e.label}": e.name for e in LEGEND},
)  # fmt: skip
OF_CONFIDENCE = RasterKind("float32", float("nan"), "average", ("confidence",))


def strips(array: np.ndarray) -> Callable[[int, int], np.ndarray]:
    bands = array if array.ndim == 3 else array[None]  # (bands, rows, columns)
    return lambda r0, r1: bands[:, r0:r1]


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, driver="GTiff") as raster:
            yield raster


def gdalinfo(path: Path) -> dict[str, Any]:
    """What Debian's GDAL says, which is another build and another version than rasterio's."""
    command = shutil.which("gdalinfo")
    if command is None:
        pytest.skip("gdalinfo is not installed (Debian's package gdal-bin)")
    done = subprocess.run([command, "-json", str(path)], capture_output=True, text=True, check=True, timeout=60)
    text = subprocess.run([command, str(path)], capture_output=True, text=True, check=True, timeout=60).stdout
    return json.loads(done.stdout) | {"text": text}


def test_classes_are_read_back_with_their_colours(tmp_path: Path) -> None:
    write_cog(tmp_path / "map.tif", OF_CLASSES, MapGrid((3, 4)), strips(CLASSES))
    with reading(tmp_path / "map.tif") as raster:
        assert (raster.count, raster.dtypes, raster.nodata) == (1, ("uint8",), 0)
        np.testing.assert_array_equal(raster.read(1), CLASSES)
        np.testing.assert_array_equal(raster.read_masks(1) > 0, CLASSES > 0)
        table = raster.colormap(1)
        assert raster.colorinterp[0].name == "palette"
        assert raster.tags()["HYPERCAPS_VERSION"] == "1"
        assert raster.tags(1)["CLASS_7"] == LEGEND.entries[1].name
        assert raster.crs is None and raster.transform.is_identity
    assert table[0] == (0, 0, 0, 0)
    assert [table[entry.label] for entry in LEGEND] == [(*entry.color, 255) for entry in LEGEND]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.tif"]


def test_numbers_are_read_back(tmp_path: Path) -> None:
    write_cog(tmp_path / "c.tif", OF_CONFIDENCE, MapGrid((3, 4)), strips(CONFIDENCE))
    with reading(tmp_path / "c.tif") as raster:
        assert raster.dtypes == ("float32",) and np.isnan(raster.nodata)
        np.testing.assert_array_equal(raster.read(1), CONFIDENCE)
        np.testing.assert_array_equal(raster.read_masks(1) > 0, np.isfinite(CONFIDENCE))


def test_bands_have_names_and_a_scale(tmp_path: Path) -> None:
    two = np.stack([CLASSES, CLASSES + 1])
    kind = RasterKind("uint8", 255, "average", ("one", "two"), scale=0.004)
    write_cog(tmp_path / "two.tif", kind, MapGrid((3, 4)), strips(two))
    with reading(tmp_path / "two.tif") as raster:
        assert raster.descriptions == ("one", "two") and raster.scales == (0.004, 0.004)
        np.testing.assert_array_equal(raster.read(), two)


@pytest.mark.parametrize("transform", [UTM, TURNED])
@pytest.mark.parametrize("as_wkt", [False, True])
def test_the_place_on_earth_is_kept_exactly(transform: Affine, as_wkt: bool, tmp_path: Path) -> None:
    expected = rasterio.CRS.from_epsg(32633)
    grid = MapGrid((3, 4), expected.to_wkt() if as_wkt else "EPSG:32633", transform)
    write_cog(tmp_path / "map.tif", OF_CLASSES, grid, strips(CLASSES))
    with rasterio.open(tmp_path / "map.tif") as raster:
        assert raster.crs == expected
        assert tuple(raster.transform)[:6] == transform
    about = gdalinfo(tmp_path / "map.tif")
    c, a, b, f, d, e = about["geoTransform"]
    assert (a, b, c, d, e, f) == transform
    assert 'ID["EPSG",32633]' in about["coordinateSystem"]["wkt"]


def test_a_place_without_a_reference_system(tmp_path: Path) -> None:
    write_cog(tmp_path / "map.tif", OF_CLASSES, MapGrid((3, 4), None, UTM), strips(CLASSES))
    with rasterio.open(tmp_path / "map.tif") as raster:
        assert raster.crs is None and tuple(raster.transform)[:6] == UTM


@pytest.mark.parametrize(("rows", "cols"), [(130, 700), (1100, 20)])
def test_larger_rasters_are_tiled_with_overviews(rows: int, cols: int, tmp_path: Path) -> None:
    classes = np.random.default_rng(0).choice(np.array([0, 1, 7], np.uint8), (rows, cols))
    write_cog(tmp_path / "map.tif", OF_CLASSES, MapGrid((rows, cols), "EPSG:32633", UTM), strips(classes))
    with rasterio.open(tmp_path / "map.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), classes)
        assert raster.profile["tiled"] and raster.compression.name == "deflate"
        assert raster.overviews(1) and raster.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        smaller = raster.read(1, out_shape=(rows // 2, cols // 2))
    assert set(np.unique(smaller)) <= {0, 1, 7}  # classes are never averaged
    about = gdalinfo(tmp_path / "map.tif")
    assert about["bands"][0]["overviews"] and about["metadata"]["IMAGE_STRUCTURE"]["LAYOUT"] == "COG"


def test_the_same_numbers_give_the_same_bytes_whatever_the_strips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(0).random((300, 200)).astype(np.float32)
    write_cog(tmp_path / "one.tif", OF_CONFIDENCE, MapGrid((300, 200)), strips(values))
    monkeypatch.setattr(cog, "_STRIP_VALUES", 1000)
    write_cog(tmp_path / "two.tif", OF_CONFIDENCE, MapGrid((300, 200)), strips(values))
    assert (tmp_path / "one.tif").read_bytes() == (tmp_path / "two.tif").read_bytes()


def test_what_fits_into_memory_is_not_written_twice_and_has_the_same_bytes(tmp_path: Path) -> None:
    seen: dict[str, set[str]] = {"memory": set(), "disk": set()}
    for name, memory in (("memory", 1 << 20), ("disk", 0)):
        folder = tmp_path / name
        folder.mkdir()

        def watched(r0: int, r1: int, name: str = name, folder: Path = folder) -> np.ndarray:
            seen[name] |= {path.name for path in folder.iterdir()}
            return CLASSES[None, r0:r1]

        write_cog(folder / "map.tif", OF_CLASSES, MapGrid((3, 4)), watched, memory)
        assert [path.name for path in folder.iterdir()] == ["map.tif"]
    assert seen == {"memory": {"map.tif"}, "disk": {"map.tif", "map.tif.strips"}}
    assert (tmp_path / "memory" / "map.tif").read_bytes() == (tmp_path / "disk" / "map.tif").read_bytes()


def test_what_the_disk_did_not_keep_is_noticed(tmp_path: Path) -> None:
    told: list[int] = []

    def forgetful(r0: int, r1: int) -> np.ndarray:
        told.append(r0)
        return CLASSES[None, r0:r1] if len(told) == 1 else CLASSES[None, r0:r1] + 1  # as if zeros had been kept

    with pytest.raises(OutputError, match=r"map\.tif can't be written"):
        write_cog(tmp_path / "map.tif", OF_CLASSES, MapGrid((3, 4)), forgetful)


def test_a_full_disk_leaves_no_raster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="disk is full"), write_all_or_nothing([tmp_path / "map.tif"]) as temporary:
        write_cog(temporary[tmp_path / "map.tif"], OF_CLASSES, MapGrid((3, 4)), strips(CLASSES))
    assert list(tmp_path.iterdir()) == []


# Names and colours where others look for them


def write_map(path: Path) -> None:
    write_cog(path, OF_CLASSES, MapGrid((3, 4), "EPSG:32633", UTM), strips(CLASSES))
    write_files(legend_files(path, LEGEND))


def test_gdal_finds_names_and_colours(tmp_path: Path) -> None:
    write_map(tmp_path / "map.tif")
    about = gdalinfo(tmp_path / "map.tif")
    band = about["bands"][0]
    assert band["noDataValue"] == 0
    assert [band["colorTable"]["entries"][entry.label][:3] for entry in LEGEND] == [list(e.color) for e in LEGEND]
    categories = about["text"].split("Categories:\n")[1].splitlines()[:8]
    assert [line.partition(":")[2].strip() for line in categories] == [
        "no class", "Water & <ice>", "", "", "", "", "", 'Wälder "hoch"'
    ]  # fmt: skip
    table = ElementTree.fromstring(
        "<GDALRasterAttributeTable" + about["text"].split("<GDALRasterAttributeTable")[1].split("</GDALR")[0]
        + "</GDALRasterAttributeTable>"
    )  # fmt: skip
    assert [[cell.text for cell in row.findall("F")] for row in table.findall("Row")] == [
        [str(entry.label), entry.name, *map(str, entry.color)] for entry in LEGEND
    ]


def test_qgis_finds_names_and_colours(tmp_path: Path) -> None:
    """QGIS takes a style of the raster's name: a paletted renderer with an entry for each value."""
    write_map(tmp_path / "map.tif")
    root = ElementTree.parse(tmp_path / "map.qml").getroot()
    assert root.tag == "qgis" and root.get("version")
    renderer = root.find("pipe/rasterrenderer")
    assert renderer is not None and (renderer.get("type"), renderer.get("band")) == ("paletted", "1")
    entries = renderer.findall("colorPalette/paletteEntry")
    assert [(entry.get("value"), entry.get("label"), entry.get("color"), entry.get("alpha")) for entry in entries] == [
        ("1", "Water & <ice>", "#1f78d1", "255"), ("7", 'Wälder "hoch"', "#14532d", "255")
    ]  # fmt: skip


def test_hypercaps_reads_its_own_maps_as_labels(tmp_path: Path) -> None:
    write_map(tmp_path / "map.tif")
    labels = open_labels(tmp_path / "map.tif")
    assert labels.legend == LEGEND
    np.testing.assert_array_equal(labels.array, CLASSES)


def test_names_that_xml_cannot_hold(tmp_path: Path) -> None:
    legend = Legend((LegendEntry(1, "a\x00b\x1bc\ud800d", (1, 2, 3)),))
    for content in legend_files(tmp_path / "map.tif", legend).values():
        ElementTree.fromstring(content.decode())


@pytest.mark.parametrize(("largest", "dtype"), [(255, "uint8"), (300, "uint16"), (32767, "uint16")])
def test_large_labels_have_colours_and_names(largest: int, dtype: str, tmp_path: Path) -> None:
    legend = Legend.of([1, largest])
    classes = np.where(CLASSES == 7, largest, CLASSES.astype(np.int32)).astype(dtype)
    colors = {entry.label: (*entry.color, 255) for entry in legend}
    write_cog(tmp_path / "map.tif", RasterKind(dtype, 0, "mode", ("class",), colors), MapGrid((3, 4)), strips(classes))
    write_files(legend_files(tmp_path / "map.tif", legend))
    with reading(tmp_path / "map.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), classes)
        table = raster.colormap(1)
    assert [table[entry.label] for entry in legend] == [(*entry.color, 255) for entry in legend]
    assert open_labels(tmp_path / "map.tif").legend == legend


def test_the_grid_of_a_map_is_the_scenes() -> None:
    scene = Scene.from_array(np.ones((3, 4, 2)))
    assert scene.map_grid == MapGrid((3, 4), None, None)
