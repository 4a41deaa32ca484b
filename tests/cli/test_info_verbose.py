"""``hypercaps info --verbose``: what a maintainer needs to fix a file that is not read."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import rasterio
from rasterio.transform import Affine
from typer.testing import CliRunner

from hypercaps import ConvCapsClassifier
from hypercaps.cli import app
from hypercaps.io.readers import hdf5
from support.cubes import dataset
from support.products import write_emit, write_prisma
from support.scenes import make_fields


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "_is_survived", lambda path: True)
    monkeypatch.setenv("COLUMNS", "400")


def info(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["info", "--verbose", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")  # of bad bands
def test_a_product_that_is_read(tmp_path: Path) -> None:
    code, out, _ = info(write_emit(tmp_path / "emit.nc"))
    assert code == 0 and "kind" in out and "detected: hdf5" in out
    assert "/sensor_band_parameters/wavelengths" in out and "/reflectance  (" in out and "@geotransform" in out
    assert (
        "first bytes: 89 48 44 46" in out
        and f"HDF5 {h5py.version.hdf5_version}" in out
        and "window: " in out
        and "hypercaps 0." in out
    )


def test_a_product_that_is_not_read_is_described_all_the_same(tmp_path: Path) -> None:
    path = write_prisma(tmp_path / "prisma.he5")
    with h5py.File(path, "r+") as file:
        cube = next(iter(_datasets(file, "VNIR_Cube")))
        del file[cube]
    code, out, err = info(path)
    assert code == 2 and "Error:" in err
    assert "SWIR_Cube" in out and "@List_Cw_Vnir" in out and "L2ScaleSwirMin" in out
    assert "causes: SceneError: " in out and ".py:" in out and "Versions" in out


def test_as_json(tmp_path: Path) -> None:
    path = tmp_path / "words.tif"
    path.write_bytes(b"II*\0" + b"no tiff at all")
    code, out, _ = info(path, "--json")
    about = json.loads(out)
    assert code == 2 and "kind" not in about
    assert about["verbose"]["file"]["bytes"] == 18 and about["verbose"]["reading"]["error"]
    assert any("can't be read" in line for line in about["verbose"]["structure"])


def test_a_geotiff_with_its_tags(tmp_path: Path) -> None:
    path = tmp_path / "enmap.tif"
    profile = {"driver": "GTiff", "height": 8, "width": 9, "count": 3, "dtype": "int16", "nodata": -32768}
    with rasterio.open(path, "w", crs="EPSG:32633", transform=Affine(30, 0, 6e5, 0, -30, 5e6), **profile) as file:
        file.write(np.ones((3, 8, 9), dtype=np.int16))
        file.update_tags(sensor="EnMAP", note="\x1b[31mred")
        file.update_tags(3, wavelength="650", wavelength_units="nm")
    (tmp_path / "enmap.xml").write_text("<metadata/>")
    code, out, _ = info(path)
    assert code == 0 and "8 rows x 9 columns x 3 bands" in out and "@sensor = EnMAP" in out
    assert "band 3 @wavelength = 650" in out and "beside it: enmap.xml" in out and "\x1b" not in out
    assert "lowest: 1" in out and "nodata ['-32768.0']" in out and "interleaved by pixel, not compressed" in out
    structure = out.partition("Structure")[2]
    assert str(tmp_path) not in structure  # reports are sent to others


def test_labels_and_models_that_are_read_are_not_said_to_be_unreadable(tmp_path: Path) -> None:
    labels = {"type": "FeatureCollection", "features": [_point("soil"), _point("tree")]}
    (tmp_path / "points.geojson").write_text(json.dumps(labels))
    code, out, _ = info(tmp_path / "points.geojson")
    assert code == 0 and "soil" in out and "can't be read" not in out
    cube, truth = make_fields()
    fitted = ConvCapsClassifier(method="lda").fit(cube, truth)
    fitted.save(tmp_path / "model.safetensors")
    code, out, _ = info(tmp_path / "model.safetensors")
    assert code == 0 and "detected: safetensors" in out and "can't be read" not in out


@pytest.mark.parametrize("name", ["cube.npy", "cube.npz", "scene.hdr", "model.bin", "cube.mat"])
def test_every_kind_of_file_has_a_structure(tmp_path: Path, name: str) -> None:
    path, cube = tmp_path / name, np.ones((4, 5, 3), dtype=np.float32)
    if name == "cube.npy":
        np.save(path, cube)
    elif name == "cube.npz":
        np.savez(path, cube=cube)
    elif name == "scene.hdr":
        path.write_text("ENVI\nsamples = 5\nlines = 4\nbands = 3\ndata type = 4\ninterleave = bip\nbyte order = 0\n")
        (tmp_path / "scene.img").write_bytes(cube.tobytes())
    else:
        path.write_bytes(b"nothing that is known")
    code, out, err = info(path, "--json")
    lines = json.loads(out)["verbose"]["structure"]
    assert lines and (code == 0) == (name in ("cube.npy", "cube.npz", "scene.hdr")), err
    if name == "scene.hdr":
        assert "  interleave = bip" in lines
    elif code == 0:
        assert any("4 x 5 x 3" in line for line in lines)


@pytest.mark.parametrize("name", ["classic.nc", "two.zarr", "three.zarr"])
def test_all_variables_of_netcdf_and_zarr_are_listed(tmp_path: Path, name: str) -> None:
    data = dataset()
    path = tmp_path / name
    if name == "classic.nc":
        data.to_netcdf(path, engine="scipy")
    else:
        data.to_zarr(path, zarr_format=2 if name == "two.zarr" else 3, consolidated=False)
    code, out, err = info(path)
    assert code == 0, err
    for key, variable in data.variables.items():
        sizes = ", ".join(f"{dim} {length}" for dim, length in variable.sizes.items())
        assert f"/{key}  ({sizes}) {variable.dtype}" in out, key
        for attribute, value in variable.attrs.items():
            assert not isinstance(value, str) or f"/{key}  @{attribute} = {' '.join(value.split())[:100]}" in out


def test_a_long_word_is_cut_and_not_left_out(tmp_path: Path) -> None:
    header = "ENVI\nsamples = 5\nlines = 4\nbands = 3\ndata type = 1\ninterleave = bip\nbyte order = 0\n"
    (tmp_path / "scene.hdr").write_text(header + "description = {" + "x" * 300 + "}\n")
    (tmp_path / "scene.img").write_bytes(bytes(range(60)))
    _, out, _ = info(tmp_path / "scene.hdr")
    assert "description = {" + "x" * 100 in out


def test_public_scenes_have_no_file_and_missing_ones_are_an_error(tmp_path: Path) -> None:
    code, out, _ = info("indian-pines")
    assert code == 0 and "Versions" in out and "Structure" not in out
    code, out, err = info(tmp_path / "nothing.tif")
    assert code == 2 and out == "" and "there is no file" in err


def _datasets(group: h5py.Group, name: str) -> list[str]:
    found: list[str] = []
    group.visit(lambda key: found.append(key) if key.endswith(name) else None)
    return found


def _point(name: str) -> dict[str, object]:
    return {
        "type": "Feature",
        "properties": {"kind": name},
        "geometry": {"type": "Point", "coordinates": [13.0, 52.0]},
    }
