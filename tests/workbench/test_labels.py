"""Painting, the wand, and labels in and out, as the page asks for them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio

from hypercaps import open_labels, open_scene
from hypercaps.workbench.security import UPLOAD
from support.scenes import make_fields
from support.workbench import Page, Served, served

SHAPE = (40, 40)
FORMATS = ("gpkg", "geojson", "tif", "csv", "npy")


def write_scene(path: Path) -> None:
    """A georeferenced scene of which two rows have no data."""
    cube, _ = make_fields(*SHAPE, noise=3.0)
    cube[:2] = -9999
    grid = {"crs": "EPSG:32633", "transform": rasterio.Affine(20, 4, 4e5, 4, -20, 5e6), "nodata": -9999}
    with rasterio.open(path, "w", driver="GTiff", height=40, width=40, count=12, dtype="float32", **grid) as raster:
        raster.write(np.moveaxis(cube, 2, 0))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("labels")
    write_scene(folder / "scene.tif")
    with served(folder / "scene.tif", folder / "project") as found:
        yield found


@pytest.fixture
def page(running: Served) -> Iterator[Page]:
    page = running.page()
    while page.state()["labels"]["undo"] is not None:
        page.done("/api/undo")
    page.add_classes("water", "soil")
    yield page
    page.http.close()


def test_what_is_painted_is_in_the_tiles(page: Page) -> None:
    answer = page.paint(1, (5, 3, 8), (6, 3, 8))
    assert answer["counts"] == {"1": 10, "2": 0} and answer["undo"] == "Brush"
    page.paint(2, (6, 5, 6))
    raster = page.label_raster(SHAPE)
    expected = np.zeros(SHAPE, dtype=np.uint8)
    expected[5:7, 3:8] = 1
    expected[6, 5] = 2
    assert (raster == expected).all()


def test_nodata_and_what_lies_outside_is_cut_off(page: Page) -> None:
    answer = page.paint(1, (1, 0, 5), (2, -3, 2), (2, 38, 99), (50, 0, 4))
    assert answer["counts"]["1"] == 4
    assert answer["nodata"] == 5
    assert page.label_raster(SHAPE)[2].tolist() == [1, 1, *[0] * 36, 1, 1]


def test_undo_tells_what_has_changed(page: Page) -> None:
    page.paint(1, (5, 3, 8))
    page.paint(2, (5, 6, 10))
    undone = page.done("/api/undo")
    assert undone["spans"] == {"0": [[5, 8, 10]], "1": [[5, 6, 8]]}
    assert undone["redo"] == "Brush"
    page.done("/api/redo")
    page.done("/api/undo")
    page.done("/api/undo")
    assert not page.label_raster(SHAPE).any()
    assert page.done("/api/undo")["classes"] == page.state()["classes"]  # a class was undone


def test_a_step_that_is_repeated_has_no_effect(page: Page) -> None:
    page.paint(1, (5, 3, 8))
    page.paint(1, (6, 3, 8))
    for _ in range(2):
        page.done("/api/undo", {"step": "once"})
        assert page.state()["labels"]["count"] == 5
    for _ in range(2):
        page.done("/api/redo", {"step": "back"})
        assert page.state()["labels"]["count"] == 10


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/strokes", {"stroke": "a", "class": 9, "tool": "brush", "spans": [[5, 1, 2]]}, 404),
        ("/api/strokes", {"stroke": "b", "class": 1, "tool": "hammer", "spans": [[5, 1, 2]]}, 400),
        ("/api/strokes", {"stroke": "c", "class": 1, "tool": "brush", "spans": [[5, 1]]}, 400),
        ("/api/strokes", {"stroke": "d", "class": 1, "tool": "brush", "spans": [[5, 1, "x"]]}, 400),
        ("/api/strokes", {"stroke": "e", "class": 1.5, "tool": "brush", "spans": []}, 400),
        ("/api/strokes", {}, 400),
        ("/api/classes", {"action": "explode", "id": 1}, 400),
        ("/api/classes", {"action": "merge", "id": 1}, 400),
        ("/api/classes", {"action": "merge", "id": 1, "into": 1}, 400),
        ("/api/classes", {"action": "rename", "id": 1}, 400),
        ("/api/classes", {"action": "lock"}, 400),
        ("/api/train", {"method": "magic"}, 400),
        ("/api/options", {"recipe": "none such"}, 400),
        ("/api/trainings/t9999/restore", {}, 404),
        ("/api/export", {}, 409),
    ],
)
def test_requests_that_make_no_sense_get_a_sentence(page: Page, path: str, body: object, status: int) -> None:
    version = page.state()["labels"]["version"]
    answer = page.post(path, body)
    assert answer.status_code == status, answer.text
    assert len(answer.json()["error"]) > 10
    assert page.state()["labels"]["version"] == version


def test_broken_json_gets_a_sentence(page: Page) -> None:
    answer = page.http.post("/api/strokes", content=b"{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and "error" in answer.json()


def test_the_wand_takes_a_field_and_no_more(page: Page) -> None:
    _, _ = make_fields(*SHAPE)
    found = page.json("/api/wand?row=15&col=15&tolerance=0.05")
    raster = np.zeros(SHAPE, dtype=bool)
    for row, first, end in found["spans"]:
        raster[row, first:end] = True
    assert raster.sum() == found["pixels"]
    assert raster[10:20, 10:20].all() and not raster[10:20, 21:30].any()
    one = page.json("/api/wand?row=15&col=15&tolerance=0")
    assert one["pixels"] >= 1
    assert page.get("/api/wand?row=0&col=0&tolerance=0.1").status_code == 409  # nodata
    assert page.get("/api/wand?row=99&col=0&tolerance=0.1").status_code == 404
    assert page.get("/api/wand?row=5&col=5&tolerance=2").status_code == 400


def paint_some(page: Page) -> np.ndarray:
    page.add_classes('größe "1"')
    page.paint(1, (5, 3, 8), (6, 3, 8), (30, 30, 31))
    page.paint(2, (10, 0, 40), (11, 39, 40))
    page.paint(3, (20, 20, 24), (21, 20, 21), (21, 23, 24), (22, 20, 24))  # a ring
    page.paint(2, (21, 21, 22))  # and another class inside
    return page.label_raster(SHAPE).copy()


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_exported_and_opened_again_is_the_same_raster(
    running: Served, page: Page, kind: str, tmp_path: Path
) -> None:
    painted = paint_some(page)
    answer = page.get(f"/api/labels/export/{kind}")
    assert answer.status_code == 200 and f".{kind}" in answer.headers["content-disposition"]
    path = tmp_path / f"labels.{kind}"
    path.write_bytes(answer.content)
    field = None if kind in ("tif", "npy") else "class_id"
    opened = open_labels(path, scene=running.bench.scene, class_field=field)
    assert (opened.array == painted).all()
    if kind not in ("tif", "npy"):
        assert [entry.name for entry in opened.legend] == ["water", "soil", 'größe "1"']


@pytest.mark.parametrize("kind", FORMATS)
def test_an_exported_file_can_be_imported(page: Page, kind: str) -> None:
    painted = paint_some(page)
    content = page.get(f"/api/labels/export/{kind}").content
    page.paint(0, *((row, 0, 40) for row in range(40)))
    assert not page.label_raster(SHAPE).any()
    headers = {"X-Name": f"m%C3%BCll.{kind}", "Content-Type": "application/octet-stream", "X-Client": "page"}
    if kind not in ("tif", "npy"):
        headers["X-Class-Field"] = "class_id"
    answer = page.http.post(UPLOAD, content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["imported"] == (painted > 0).sum()
    assert (page.label_raster(SHAPE) == painted).all()
    assert [one["name"] for one in answer.json()["classes"]] == ["water", "soil", 'größe "1"']
    page.done("/api/undo")
    assert not page.label_raster(SHAPE).any()


def test_imported_classes_join_those_of_the_same_name(page: Page) -> None:
    page.paint(1, (5, 3, 8))
    content = b"row,col,kind\n20,20,Water\n21,21,forest\n22,22,Soil\n"
    headers = {"X-Name": "points.csv", "Content-Type": "application/octet-stream"}
    answer = page.http.post(UPLOAD, content=content, headers=headers | {"X-Class-Field": "kind"}).json()
    names = {one["name"]: one["count"] for one in answer["classes"]}
    assert names == {"water": 6, "soil": 1, "forest": 1}
    assert len({one["color"] for one in answer["classes"]}) == 3


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.exe", b"MZ", "no label file"),
        ("x.gpkg", b"nothing", "x.gpkg"),
        ("x.csv", b"a,b\n1,2\n", "x.csv"),
        ("x.tif", b"II*\0", "x.tif"),
        ("labels.npy", b"\x93NUMPY", "labels.npy"),
    ],
)
def test_files_that_are_no_labels_are_refused_with_a_sentence(
    running: Served, page: Page, name: str, content: bytes, sentence: str
) -> None:
    headers = {"X-Name": name, "Content-Type": "application/octet-stream"}
    answer = page.http.post(UPLOAD, content=content, headers=headers)
    assert answer.status_code == 400 and sentence in answer.json()["error"]
    assert str(running.bench.folder) not in answer.json()["error"]


def test_a_full_disk_refuses_the_stroke_and_keeps_the_rest(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    page.paint(1, (5, 3, 8))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        body = {"stroke": "full", "class": 1, "tool": "brush", "spans": [[9, 0, 5]]}
        answer = page.post("/api/strokes", body)
        assert answer.status_code == 507 and "full" in answer.json()["error"]
    assert page.state()["labels"]["count"] == 5
    page.done("/api/strokes", body)  # the page repeats it
    assert page.state()["labels"]["count"] == 10


def test_mean_spectra_are_those_of_the_labelled_pixels(running: Served, page: Page) -> None:
    page.paint(2, (5, 3, 8), (25, 3, 9))
    found = page.json("/api/spectra/classes")
    cube = open_scene(running.bench.folder.parent / "scene.tif").read().values
    pixels = np.concatenate([cube[5, 3:8], cube[25, 3:9]])
    assert list(found) == ["2"] and found["2"]["count"] == 11
    assert np.allclose(found["2"]["mean"], pixels.mean(axis=0), rtol=1e-4)
    assert np.allclose(found["2"]["std"], pixels.std(axis=0), rtol=1e-3)
