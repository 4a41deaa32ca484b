"""Writing: all or nothing, and rasters that say the same when they are read back."""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from plainuser import plain_user
from rasterio.errors import NotGeoreferencedWarning

from hypercaps.errors import OutputError
from hypercaps.io.write import (
    check_output,
    class_map_tiff,
    confidence_tiff,
    write_bytes,
    write_csv,
    write_json,
    write_npz,
)
from hypercaps.scene import Affine, Legend, LegendEntry, Scene


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# All or nothing


def test_bytes_are_written_and_replaced(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a.bin", b"first and long")
    write_bytes(tmp_path / "a.bin", b"second")
    assert (tmp_path / "a.bin").read_bytes() == b"second"
    assert names(tmp_path) == ["a.bin"]


def test_the_final_name_is_taken_after_the_content_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []
    fsync = os.fsync

    def watched(number: int) -> None:
        fsync(number)
        seen.append((os.fstat(number).st_size, (tmp_path / "a.bin").exists()))

    monkeypatch.setattr(os, "fsync", watched)
    write_bytes(tmp_path / "a.bin", b"12345")
    assert seen[0] == (5, False)
    assert (tmp_path / "a.bin").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("before", [None, b"old content"])
def test_a_full_disk(number: int, before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    if before is not None:
        path.write_bytes(before)

    def full(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"a\.bin can't be written: the disk is full; free some space"):
        write_bytes(path, b"new content")
    assert names(tmp_path) == ([] if before is None else ["a.bin"])
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EROFS, "not writable"), (errno.EACCES, "not writable"), (errno.EIO, "Input/output error")],
)
def test_other_refusals_at_the_last_step(
    number: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bin").write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OutputError, match=f"{reason}; choose another place"):
        write_bytes(tmp_path / "a.bin", b"new")
    assert names(tmp_path) == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"old"


def test_ctrl_c_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a.bin", b"new")
    assert names(tmp_path) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a\.bin can't be written"):
        write_bytes(tmp_path / "nowhere" / "a.bin", b"new")
    assert names(tmp_path) == []


def test_a_folder_that_may_not_be_written() -> None:
    with plain_user() as folder:
        (folder / "locked").mkdir(mode=0o500)
        with pytest.raises(OutputError, match="not writable"):
            write_bytes(folder / "locked" / "a.bin", b"new")


# Small formats


def test_json(tmp_path: Path) -> None:
    value = {"oa": 99.5, "name": "Wälder", "list": [1, None]}
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == value


def test_json_without_nan(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"oa": float("nan")})
    assert (tmp_path / "a.json").read_text() == "{}"


def test_csv(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["epoch", "loss"], [[1, 0.25], [2, "a,b"]])
    assert (tmp_path / "a.csv").read_bytes() == b'epoch,loss\n1,0.25\n2,"a,b"\n'


def test_npz(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", train=np.array([3, 1]), test=np.array([], dtype=np.int64))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert archive["train"].tolist() == [3, 1]
        assert archive["test"].shape == (0,)


# Rasters

UTM = (30.0, 0.0, 500_015.0, 0.0, -30.0, 4_490_025.0)
TURNED = (26.1, -14.8, 361_234.567, 14.8, 26.1, 4_490_000.125)
LEGEND = Legend((LegendEntry(1, "Water", (31, 120, 209)), LegendEntry(7, "Trees", (20, 83, 45))))
CLASSES = np.array([[0, 1, 7, 7], [7, 7, 1, 0], [1, 1, 1, 7]], dtype=np.int16)
CONFIDENCE = np.array([[np.nan, 0.5, 1.0, 0.0], [0.1, 0.2, 0.3, np.nan], [0.7, 0.8, 0.9, 1 / 3]], dtype=np.float32)


def scene_like(array: np.ndarray, crs: str | None = None, transform: Affine | None = None) -> Scene:
    return replace(Scene.from_array(np.ones((*array.shape, 2))), crs=crs, transform=transform)


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, driver="GTiff") as raster:
            yield raster


def test_a_class_map_is_read_back(tmp_path: Path) -> None:
    write_bytes(tmp_path / "map.tif", class_map_tiff(CLASSES, LEGEND, scene_like(CLASSES)))
    with reading(tmp_path / "map.tif") as raster:
        assert (raster.count, raster.dtypes, raster.nodata) == (1, ("uint8",), 0)
        np.testing.assert_array_equal(raster.read(1), CLASSES)
        np.testing.assert_array_equal(raster.read_masks(1) > 0, CLASSES > 0)


def test_the_colour_table_is_the_legend(tmp_path: Path) -> None:
    write_bytes(tmp_path / "map.tif", class_map_tiff(CLASSES, LEGEND, scene_like(CLASSES)))
    with reading(tmp_path / "map.tif") as raster:
        table = raster.colormap(1)
        assert raster.colorinterp[0].name == "palette"
    assert table[0] == (0, 0, 0, 0)
    for entry in LEGEND:
        assert table[entry.label] == (*entry.color, 255)
    assert {color for label, color in table.items() if label not in (0, 1, 7)} == {(0, 0, 0, 255)}


@pytest.mark.parametrize(("largest", "dtype"), [(255, "uint8"), (256, "uint16"), (300, "uint16"), (32767, "uint16")])
def test_large_labels(largest: int, dtype: str, tmp_path: Path) -> None:
    legend = Legend.of([1, largest])
    classes = np.where(CLASSES == 7, largest, CLASSES).astype(np.int16)
    write_bytes(tmp_path / "map.tif", class_map_tiff(classes, legend, scene_like(classes)))
    with reading(tmp_path / "map.tif") as raster:
        assert raster.dtypes == (dtype,)
        np.testing.assert_array_equal(raster.read(1), classes)
        table = raster.colormap(1)
    assert [table[entry.label] for entry in legend] == [(*entry.color, 255) for entry in legend]


def test_confidence_is_read_back(tmp_path: Path) -> None:
    write_bytes(tmp_path / "c.tif", confidence_tiff(CONFIDENCE, scene_like(CONFIDENCE)))
    with reading(tmp_path / "c.tif") as raster:
        assert (raster.count, raster.dtypes) == (1, ("float32",))
        assert np.isnan(raster.nodata)
        np.testing.assert_array_equal(raster.read(1), CONFIDENCE)
        np.testing.assert_array_equal(raster.read_masks(1) > 0, np.isfinite(CONFIDENCE))


def test_confidence_in_double_precision_is_kept_as_float32(tmp_path: Path) -> None:
    write_bytes(tmp_path / "c.tif", confidence_tiff(CONFIDENCE.astype(np.float64), scene_like(CONFIDENCE)))  # type: ignore[arg-type]
    with reading(tmp_path / "c.tif") as raster:
        assert raster.dtypes == ("float32",)


@pytest.mark.parametrize("transform", [UTM, TURNED])
@pytest.mark.parametrize("as_wkt", [False, True])
def test_the_place_on_earth_is_kept(transform: Affine, as_wkt: bool, tmp_path: Path) -> None:
    expected = rasterio.CRS.from_epsg(32633)
    scene = scene_like(CLASSES, expected.to_wkt() if as_wkt else "EPSG:32633", transform)
    write_bytes(tmp_path / "map.tif", class_map_tiff(CLASSES, LEGEND, scene))
    write_bytes(tmp_path / "c.tif", confidence_tiff(CONFIDENCE, scene))
    for name in ("map.tif", "c.tif"):
        with rasterio.open(tmp_path / name) as raster:
            assert raster.crs == expected
            assert tuple(raster.transform)[:6] == transform


def test_a_place_without_a_reference_system(tmp_path: Path) -> None:
    write_bytes(tmp_path / "map.tif", class_map_tiff(CLASSES, LEGEND, scene_like(CLASSES, None, UTM)))
    with rasterio.open(tmp_path / "map.tif") as raster:
        assert raster.crs is None
        assert tuple(raster.transform)[:6] == UTM


def test_no_place_and_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        write_bytes(tmp_path / "map.tif", class_map_tiff(CLASSES, LEGEND, scene_like(CLASSES)))
        write_bytes(tmp_path / "c.tif", confidence_tiff(CONFIDENCE, scene_like(CONFIDENCE)))
    assert [str(warning.message) for warning in heard] == []
    with reading(tmp_path / "map.tif") as raster:
        assert raster.crs is None
        assert raster.transform.is_identity


def test_a_full_disk_leaves_no_raster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="disk is full"):
        write_bytes(tmp_path / "map.tif", class_map_tiff(CLASSES, LEGEND, scene_like(CLASSES)))
    assert names(tmp_path) == []


# Outputs refused before the work


def test_a_good_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.mat").touch()
    check_output(tmp_path / "map.TIF", {".tif", ".tiff"}, inputs=[tmp_path / "in.mat"])
    (tmp_path / "map.tif").touch()
    check_output(tmp_path / "map.tif", {".tif"}, inputs=[tmp_path / "in.mat", tmp_path / "nowhere"])
    monkeypatch.chdir(tmp_path)
    check_output(Path("new.tif"))


def test_an_output_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "map.tif").mkdir()
    with pytest.raises(OutputError, match=r"map\.tif can't be written: it is a folder"):
        check_output(tmp_path / "map.tif", {".tif"})


def test_an_output_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"there is no folder .*new; make it first"):
        check_output(tmp_path / "new" / "map.tif")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="there is no folder"):
        check_output(tmp_path / "file" / "map.tif")
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["map", "map.png", "map.tif.gz", ".tif"])
def test_an_output_with_another_ending(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must end in \.tif or \.tiff"):
        check_output(tmp_path / name, {".tiff", ".tif"})


def test_an_output_that_is_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in.tif"
    source.touch()
    (tmp_path / "link.tif").symlink_to(source)
    (tmp_path / "hard.tif").hardlink_to(source)
    monkeypatch.chdir(tmp_path)
    for same in (source, Path("in.tif"), tmp_path / "link.tif", tmp_path / "hard.tif"):
        with pytest.raises(OutputError, match="twice or is an input"):
            check_output(same, inputs=[tmp_path / "other", source])


def test_two_outputs_of_one_name(tmp_path: Path) -> None:
    """Neither is there yet."""
    with pytest.raises(OutputError, match="twice or is an input"):
        check_output(tmp_path / "a.tif", inputs=[tmp_path / "a.tif"])


def test_an_output_in_a_folder_that_may_not_be_entered() -> None:
    with plain_user() as folder:
        (folder / "locked").mkdir(mode=0)
        with pytest.raises(OutputError, match=r"map\.tif"):
            check_output(folder / "locked" / "map.tif")


def test_an_output_in_a_folder_that_may_not_be_written() -> None:
    """Said before the work and not after it."""
    with plain_user() as folder:
        (folder / "locked").mkdir(mode=0o500)
        with pytest.raises(OutputError, match="not writable"):
            check_output(folder / "locked" / "map.tif")
