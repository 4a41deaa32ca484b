"""Addresses: refused unless they are allowed; then GeoTIFFs only, by range, and nothing beside them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.errors import LabelsError, SceneError
from hypercaps.io.open import open_labels, open_scene
from hypercaps.pipeline.describe import describe
from support.rasters import GRID, write

CUBE = np.random.default_rng(0).integers(1, 3000, (256, 300, 20))
PLACE = {"crs": "EPSG:32633", "transform": GRID}
TILED = {"tiled": True, "blockxsize": 64, "blockysize": 64, "compress": "deflate"}


class Served:
    """A folder on loopback, and what was asked of it."""

    def __init__(self, folder: Path, ranges: bool = True) -> None:
        self.folder, self.asked = folder, []  # type: tuple[Path, list[tuple[str, str | None]]]
        served = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, *, body: bool) -> None:
                served.asked.append((self.path, self.headers.get("Range")))
                name = self.path.lstrip("/").partition("?")[0]
                if name.startswith("moved/"):
                    self.send_response(302)
                    self.send_header("Location", f"file://{served.folder / name.removeprefix('moved/')}")
                    self.end_headers()
                    return
                if not (served.folder / name).is_file():
                    self.send_error(404)
                    return
                content = (served.folder / name).read_bytes()
                asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "") if ranges else None
                if asked:
                    first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
                    content = content[first : last + 1]
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if body:
                    self.wfile.write(content)

            def do_GET(self) -> None:
                self.answer(body=True)

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "www").mkdir()
    server = Served(tmp_path / "www")
    yield server
    server.close()


@pytest.mark.parametrize(
    "spec",
    [
        "http://127.0.0.1:9/a.tif", "https://example.org/a.tif", "HTTPS://example.org/a.tif", "s3://bucket/a.tif",
        "gs://bucket/a.tif", "ftp://example.org/a.tif", "file:///etc/passwd", "/vsicurl/http://127.0.0.1:9/a.tif",
        "/vsizip/a.zip/a.tif", "/vsimem/a.tif", "/vsistdin/", "/VSICURL/http://127.0.0.1:9/a.tif",
        'NETCDF:"a.nc":band', "HDF5:a.h5://data", "GTIFF_DIR:1:a.tif", "WMS:http://127.0.0.1:9/", "zarr://a",
        'vrt://a.tif?bands=1',
    ],
)  # fmt: skip
def test_what_is_no_file_is_refused(spec: str, tmp_path: Path) -> None:
    for opening, error in ((open_scene, SceneError), (open_labels, LabelsError)):
        with pytest.raises(error, match=r"is a network address|is not a local file"):
            opening(spec)  # type: ignore[operator]
    with pytest.raises(SceneError, match=r"is a network address|is not a local file"):
        open_scene([write(tmp_path / "a.tif", **PLACE), spec])
    result = CliRunner().invoke(app, ["info", spec])
    assert result.exit_code == 2 and "--allow-remote" in " ".join(result.output.split())
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "spec",
    [
        "s3://bucket/a.tif",
        "file:///etc/passwd",
        "/vsizip/a.zip/a.tif",
        "/vsicurl/ftp://127.0.0.1/a.tif",
        "HDF5:a.h5://x",
    ],
)
def test_only_http_is_ever_read(spec: str) -> None:
    with pytest.raises(SceneError, match="is not a local file"):
        open_scene(spec, allow_remote=True)


@pytest.mark.parametrize("name", ["a.nc", "a.mat", "a.hdr", "a.vrt", "a", "a.zip/b"])
def test_no_other_format_is_read_from_afar(name: str, served: Served) -> None:
    with pytest.raises(SceneError, match=r"only GeoTIFFs are read from the network"):
        open_scene(f"{served.address}/{name}", allow_remote=True)
    assert not served.asked


def test_a_file_with_such_a_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "zarr", cube=CUBE[:4, :4])
    (tmp_path / "zarr.npz").rename(tmp_path / "zarr")
    assert open_scene("zarr:cube").shape == (4, 4, 20)


@pytest.mark.parametrize("prefix", ["", "/vsicurl/"])
def test_windows_are_read_by_range_and_nothing_beside(prefix: str, served: Served) -> None:
    path = write(served.folder / f"a{len(prefix)}.tif", CUBE, **PLACE, **TILED)
    for suffix in (".msk", ".ovr", ".aux.xml"):
        path.with_name(path.name + suffix).write_text("<PAMDataset/>")
    scene = open_scene(f"{prefix}{served.address}/{path.name}?token=1", allow_remote=True)
    assert (scene.shape, scene.name, scene.block) == (CUBE.shape, path.stem, (64, 64))
    assert scene.transform == tuple(GRID)[:6]
    opened = len(served.asked)
    np.testing.assert_array_equal(scene.read(slice(10, 20), slice(70, 80)).values, CUBE[10:20, 70:80])
    assert {where for where, _ in served.asked} == {f"/{path.name}?token=1"}
    read = [tuple(map(int, re.findall(r"\d+", asked))) for _, asked in served.asked[opened:] if asked]
    assert read and sum(last - first for first, last in read) < path.stat().st_size / 4


def test_labels_and_info_and_tiles(served: Served) -> None:
    gt = np.arange(12).reshape(3, 4) % 3
    write(served.folder / "gt.tif", gt, "uint8", **PLACE)
    np.testing.assert_array_equal(open_labels(f"{served.address}/gt.tif", allow_remote=True).array, gt)
    about = describe(f"{served.address}/gt.tif", allow_remote=True).to_json()
    assert (about["kind"], about["labelled"], about["file"]) == ("labels", 8, f"{served.address}/gt.tif")
    write(served.folder / "left.tif", CUBE[:, :100], **PLACE)
    east = GRID @ rasterio.Affine.translation(100, 0)
    write(served.folder / "right.tif", CUBE[:, 100:], crs="EPSG:32633", transform=east)
    scene = open_scene([f"{served.address}/{name}.tif" for name in ("left", "right")], allow_remote=True)
    assert scene.name == "mosaic"
    np.testing.assert_array_equal(scene.read(slice(0, 9), slice(90, 110)).values, CUBE[:9, 90:110])


def test_from_an_address_to_a_map(served: Served, tmp_path: Path) -> None:
    cube = np.repeat(np.arange(400).reshape(20, 20, 1) // 200 * 1000.0, 12, axis=2)
    cube += np.random.default_rng(0).random(cube.shape)
    write(served.folder / "a.tif", cube, "float32", **PLACE)
    write(served.folder / "gt.tif", np.arange(400).reshape(20, 20) // 200 + 1, "uint8", **PLACE)
    args = [f"{served.address}/a.tif", f"{served.address}/gt.tif"]
    run = str(tmp_path / "run")
    refused = CliRunner().invoke(app, ["train", *args, "--out", run, "--method", "rbf-svm"])
    assert refused.exit_code == 2 and not served.asked and not (tmp_path / "run").exists()
    done = CliRunner().invoke(app, ["train", *args, "--out", run, "--method", "rbf-svm", "--allow-remote"])
    assert done.exit_code == 0, done.output
    model = f"{run}/model.safetensors"
    done = CliRunner().invoke(app, ["map", model, args[0], "--out", str(tmp_path / "map.tif"), "--allow-remote"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["evaluate", model, *args, "--allow-remote"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("content", [None, b"", b"II*\x00 and no more", b"<VRTDataset/>", b"\x89HDF\r\n\x1a\n" * 99])
def test_what_lies_there_is_no_geotiff(content: bytes | None, served: Served) -> None:
    if content is not None:
        (served.folder / "a.tif").write_bytes(content)
    with pytest.raises(SceneError, match=re.escape(f"{served.address}/a.tif can't be read")):
        open_scene(f"{served.address}/a.tif", allow_remote=True)


def test_an_address_that_leads_to_a_file_of_this_machine(served: Served) -> None:
    write(served.folder / "a.tif", CUBE[:9, :9])
    with pytest.raises(SceneError, match="can't be read"):
        open_scene(f"{served.address}/moved/a.tif", allow_remote=True)


def test_a_server_that_goes_away_or_knows_no_ranges(tmp_path: Path) -> None:
    write(tmp_path / "a.tif", CUBE, **PLACE, **TILED)
    server = Served(tmp_path)
    scene = open_scene(f"{server.address}/a.tif", allow_remote=True)
    server.close()
    with pytest.raises(SceneError, match="can't be read"):
        scene.read()
    deaf = Served(tmp_path, ranges=False)
    try:
        with pytest.raises(SceneError, match="can't be read"):
            open_scene(f"{deaf.address}/a.tif", allow_remote=True)
    finally:
        deaf.close()


def test_a_file_at_an_address_that_was_never_written_to_its_end(served: Served) -> None:
    profile = {"height": 64, "width": 64, "count": 2, "dtype": "int16", "SPARSE_OK": True, **PLACE, **TILED}
    profile |= {"blockxsize": 16, "blockysize": 16}
    with rasterio.open(served.folder / "a.tif", "w", driver="GTiff", **profile) as raster:
        raster.write(np.ones((2, 16, 16), dtype=np.int16), window=rasterio.windows.Window(0, 0, 16, 16))
    with pytest.raises(SceneError, match="is incomplete: its last block was never written"):
        open_scene(f"{served.address}/a.tif", allow_remote=True)
