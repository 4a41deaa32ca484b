"""Runs the commands and the Python code of docs/scenes.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import rasterio
from typer.testing import CliRunner

import hypercaps
from hypercaps.cli import app
from support.rasters import GRID, write
from support.scenes import make_cube

PAGE = (Path(__file__).parents[2] / "docs" / "scenes.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the page names."""
    monkeypatch.chdir(tmp_path)
    cube, gt = make_cube()
    write(Path("scene.tif"), cube, "float32", crs="EPSG:32633", transform=GRID)
    Path("scene.img").write_bytes(cube.transpose(2, 0, 1).astype("<f4").tobytes())
    Path("scene.hdr").write_text(
        "ENVI\nsamples = 36\nlines = 36\nbands = 26\ndata type = 4\ninterleave = bsq\nbyte order = 0\n"
    )
    bands = "".join(f"<band><wavelengthCenterOfBand>{400 + n}</wavelengthCenterOfBand></band>" for n in range(26))
    Path("PRODUCT-METADATA.XML").write_text(f"<x><bandCharacterisation>{bands}</bandCharacterisation></x>")
    write(Path("PRODUCT-SPECTRAL_IMAGE.TIF"), cube, "float32", crs="EPSG:32633", transform=GRID)
    np.save("scene.npy", cube[:, :, :4])
    Path("wavelengths.csv").write_text("nm\n400\n500\n600\n700\n")
    Path("tiles").mkdir()
    Path("labels").mkdir()
    for name, col in (("west", 0), ("east", 18)):
        grid = {"crs": "EPSG:32633", "transform": GRID @ rasterio.Affine.translation(col, 0)}
        write(Path("tiles") / f"{name}.tif", cube[:, col : col + 18], "float32", **grid)
        write(Path("labels") / f"{name}.tif", gt[:, col : col + 18], "int16", **grid)
    Path("tiles.txt").write_text("tiles/west.tif\ntiles/east.tif\n")
    return tmp_path


def test_the_commands_work(files: Path) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line]
    assert len(lines) == 9
    for line in lines:
        args = shlex.split(line, comments=True)[1:]
        if "https:" in line:  # no network in tests: without the option, nothing is requested
            result = CliRunner().invoke(app, [arg for arg in args if arg != "--allow-remote"])
            assert result.exit_code == 2 and "--allow-remote" in result.output
            continue
        result = CliRunner().invoke(app, [*args, *(["--method", "rbf-svm"] if args[0] == "train" else [])])
        assert result.exit_code == 0, f"{line}\n{result.output}"


def test_the_python_code_works(files: Path) -> None:
    for line in "\n".join(blocks("python")).splitlines():
        if line:
            scene = eval(line, {"open_scene": hypercaps.open_scene})
            assert scene.rows == 36
