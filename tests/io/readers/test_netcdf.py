"""NetCDF cubes by the names of their dimensions, and HDF5 files with external links, false sizes or damage."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
import time
import warnings
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from rasterio.crs import CRS

from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.readers import hdf5
from hypercaps.pipeline.describe import describe
from support.cubes import COLS, CUBE, HUGE, ROWS, WAVES, dataset, put_sum, utm, waves
from support.mutants import mutants, outcome, outcomes

ENGINES = ["h5netcdf", "scipy"]  # NetCDF-4 and classic NetCDF


def save(data: xr.Dataset, path: Path, engine: str = "h5netcdf", **encoding: Any) -> Path:
    data.to_netcdf(path, engine=engine, encoding={"reflectance": encoding} if encoding else None)
    return path


@pytest.fixture
def guarded() -> None:
    """For tests with the trial of HDF5 files in another process."""


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip that trial elsewhere: it takes a third of a second."""
    if "guarded" not in request.fixturenames:
        monkeypatch.setattr(hdf5, "_is_survived", lambda path: True)


# Dimensions


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "dims",
    [
        ("y", "x", "wavelength"), ("wavelength", "y", "x"), ("y", "wavelength", "x"), ("x", "y", "band"),
        ("bands", "latitude", "longitude"), ("downtrack", "crosstrack", "wl"), ("line", "sample", "channel"),
        ("easting", "northing", "lambda"),
    ],
)  # fmt: skip
def test_any_order_of_dimensions(dims: tuple[str, ...], engine: str, tmp_path: Path) -> None:
    path = save(dataset(dims=dims), tmp_path / "a.nc", engine)
    assert detect_file(path).kind == ("hdf5" if engine == "h5netcdf" else "netcdf")
    scene = open_scene(path)
    assert (scene.shape, scene.dtype, scene.name) == (CUBE.shape, np.int16, "a")
    whole = scene.read()
    np.testing.assert_array_equal(whole.values, CUBE)
    assert whole.valid.all() and whole.values.flags.c_contiguous
    np.testing.assert_array_equal(scene.read(slice(2, 5), slice(1, 6)).values, CUBE[2:5, 1:6])
    assert scene.crs is None and scene.transform is None and scene.wavelengths is None


def test_dimensions_by_attributes_of_their_coordinates(tmp_path: Path) -> None:
    coords = {
        "a": ("a", WAVES, {"standard_name": "sensor_band_central_radiation_wavelength", "units": "nm"}),
        "b": ("b", np.arange(COLS), {"axis": "X"}),
        "c": ("c", np.arange(ROWS), {"standard_name": "projection_y_coordinate"}),
    }
    data = xr.Dataset({"r": (("a", "b", "c"), CUBE.transpose(2, 1, 0))}, coords=coords)
    scene = open_scene(save(data, tmp_path / "a.nc"))
    np.testing.assert_array_equal(scene.read().values, CUBE)
    np.testing.assert_array_equal(scene.wavelengths, WAVES)


def test_unnamed_dimensions_are_rows_columns_bands(tmp_path: Path) -> None:
    data = xr.Dataset({"r": (("p", "q", "s"), CUBE)})
    np.testing.assert_array_equal(open_scene(save(data, tmp_path / "a.nc")).read().values, CUBE)
    data = xr.Dataset({"r": (("wl", "q", "s"), CUBE.transpose(2, 0, 1))})
    np.testing.assert_array_equal(open_scene(save(data, tmp_path / "b.nc")).read().values, CUBE)


def test_one_moment_is_a_scene_and_several_are_not(tmp_path: Path) -> None:
    one = xr.Dataset({"r": (("time", "band", "y", "x"), CUBE.transpose(2, 0, 1)[None])})
    np.testing.assert_array_equal(open_scene(save(one, tmp_path / "a.nc")).read().values, CUBE)
    many = xr.Dataset({"r": (("time", "y", "x"), CUBE.transpose(2, 0, 1))})
    with pytest.raises(SceneError, match=r"over time 5, y 7, x 6.*one moment"):
        open_scene(save(many, tmp_path / "b.nc"))


def test_a_variable_by_name_and_within_groups(tmp_path: Path) -> None:
    path = save(dataset(), tmp_path / "a.nc")
    xr.Dataset({"other": (("band", "y", "x"), -CUBE.transpose(2, 0, 1))}).to_netcdf(path, "a", group="deep/er")
    listed = sorted(str(array) for array in detect_file(path).arrays)
    assert listed == ["deep/er/other (7 x 6 x 5)", "reflectance (7 x 6 x 5)"]
    with pytest.raises(SceneError, match="several arrays"):
        open_scene(path)
    np.testing.assert_array_equal(open_scene(f"{path}:deep/er/other").read().values, -CUBE)


# Bands


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("units", "factor"), [("nm", 1), ("um", 1e3), ("micrometers", 1e3), ("", 1), ("", 1e3)])
def test_wavelengths_in_their_units(units: str, factor: float, engine: str, tmp_path: Path) -> None:
    coords = {"wavelength": waves(units, np.array(WAVES) / factor)}
    scene = open_scene(save(dataset(**coords), tmp_path / "a.nc", engine))
    np.testing.assert_allclose(scene.wavelengths, WAVES)


def test_wavelengths_widths_and_good_bands_over_a_numbered_dimension(tmp_path: Path) -> None:
    coords = {
        "band": np.arange(1, 6), "center_wavelength": waves("um", np.array(WAVES) / 1e3, "band"),
        "fwhm": ("band", [5.0, 6, 7, 8, 9], {"units": "nm"}), "good_bands": ("band", np.array([1, 1, 0, 1, 1], "i1")),
    }  # fmt: skip
    path = save(dataset(dims=("band", "y", "x"), **coords), tmp_path / "a.nc")
    with pytest.warns(DataWarning, match=r"left out: 3 \(marked bad"):
        scene = open_scene(path)
    np.testing.assert_allclose(scene.wavelengths, [450, 550, 850, 1650])
    np.testing.assert_array_equal(scene.fwhm, [5, 6, 8, 9])
    np.testing.assert_array_equal(scene.read().values, CUBE[:, :, [0, 1, 3, 4]])


def test_wavelengths_that_step_back_are_sorted(tmp_path: Path) -> None:
    back = [450.0, 900, 880, 1000, 1200]
    with pytest.warns(DataWarning, match="decrease in"):
        scene = open_scene(save(dataset(wavelength=waves("nm", back)), tmp_path / "a.nc"))
    np.testing.assert_array_equal(scene.wavelengths, sorted(back))
    np.testing.assert_array_equal(scene.read().values, CUBE[:, :, [0, 2, 1, 3, 4]])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [(waves("nm", [450, 0, 650, 850, 1650]), "no numbers above 0"), (waves("cm-1"), "can't be converted to nano")],
)
def test_unusable_wavelengths(given: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=sentence):
        assert open_scene(save(dataset(wavelength=given), tmp_path / "a.nc")).wavelengths is None


# Numbers


@pytest.mark.parametrize("engine", ENGINES)
def test_missing_values_are_tested_before_scaling(engine: str, tmp_path: Path) -> None:
    cube = CUBE.copy()
    cube[0, 0, 1], cube[1, 1, 2], cube[2, 2], cube[3, 3, 4] = -9999, -8888, -50, 30000
    attrs = {
        "_FillValue": np.int16(-9999), "missing_value": np.int16(-8888), "valid_min": np.int16(-10),
        "valid_max": np.int16(20000), "scale_factor": np.float32(1e-4), "add_offset": np.float32(0.5),
    }  # fmt: skip
    scene = open_scene(save(dataset(cube, attrs=attrs), tmp_path / "a.nc", engine))
    pixels = scene.read()
    assert np.argwhere(~pixels.valid).tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    np.testing.assert_allclose(pixels.values[pixels.valid], cube[pixels.valid] * 1e-4 + 0.5, rtol=1e-6)


def test_a_valid_range(tmp_path: Path) -> None:
    path = save(dataset(attrs={"valid_range": np.array([10, 200], dtype=np.int16)}), tmp_path / "a.nc")
    np.testing.assert_array_equal(open_scene(path).read().valid, ((CUBE >= 10) & (CUBE <= 200)).all(axis=2))


def test_unsigned_numbers_of_classic_files(tmp_path: Path) -> None:
    cube = (CUBE % 256).astype(np.uint8)
    attrs = {"_Unsigned": "true", "_FillValue": np.int8(-1)}
    scene = open_scene(save(dataset(cube.view(np.int8), attrs=attrs), tmp_path / "a.nc", "scipy"))
    assert scene.dtype == np.uint8
    np.testing.assert_array_equal(scene.read().values, cube)
    np.testing.assert_array_equal(scene.read().valid, (cube != 255).all(axis=2))


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", ">i2", "u4", "i4", "u8", "i8", "f4", ">f4", "f8"])
def test_every_number_type(dtype: str, tmp_path: Path) -> None:
    cube = (CUBE % 120).astype(dtype)
    scene = open_scene(save(dataset(cube), tmp_path / "a.nc"))
    assert scene.dtype == np.dtype(dtype).newbyteorder("=") and scene.dtype.isnative
    np.testing.assert_array_equal(scene.read().values, CUBE % 120)


@pytest.mark.parametrize(
    "attrs", [{"scale_factor": 0.0}, {"scale_factor": np.inf}, {"add_offset": "much"}, {"scale_factor": [1.0, 2.0]}]
)
def test_unusable_scales(attrs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SceneError, match="a finite number is expected"):
        open_scene(save(dataset(attrs=attrs), tmp_path / "a.nc"))


def test_chunks_give_the_block_size(tmp_path: Path) -> None:
    path = save(dataset(dims=("wavelength", "y", "x")), tmp_path / "a.nc", chunksizes=(5, 3, 2), zlib=True)
    scene = open_scene(path)
    assert scene.block == (3, 2)
    np.testing.assert_array_equal(scene.read().values, CUBE)
    assert open_scene(save(dataset(), tmp_path / "b.nc")).block is None


# Georeference


@pytest.mark.parametrize("engine", ENGINES)
def test_grid_and_coordinate_system(engine: str, tmp_path: Path) -> None:
    data = dataset(attrs={"grid_mapping": "spatial_ref"}, **utm())
    scene = open_scene(save(data, tmp_path / "a.nc", engine))
    assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(32633)
    assert scene.transform == (30, 0, 599985, 0, -30, 5000015)  # coordinates are pixel centres
    scene = open_scene(save(dataset(attrs={"grid_mapping": "spatial_ref"}, **utm(down=False)), tmp_path / "b.nc"))
    assert scene.transform == (30, 0, 599985, 0, 30, 5000000 - 30 * 6.5)


def test_other_ways_to_name_a_coordinate_system(tmp_path: Path) -> None:
    for number, attrs in enumerate(({"spatial_ref": CRS.from_epsg(32633).to_wkt()}, {"epsg_code": "EPSG:32633"})):
        coords = utm() | {"spatial_ref": xr.Variable((), 0, attrs)}
        scene = open_scene(save(dataset(**coords), tmp_path / f"{number}.nc"))
        assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(32633)
    coords = utm() | {"spatial_ref": xr.Variable((), 0, {"grid_mapping_name": "sinusoidal"})}
    with pytest.warns(DataWarning, match="names no coordinate system"):
        assert open_scene(save(dataset(**coords), tmp_path / "c.nc")).crs is None
    # GDAL would open a file of this name; here nothing is opened.
    (tmp_path / "secret.wkt").write_text(CRS.from_epsg(32633).to_wkt())
    coords = utm() | {"spatial_ref": xr.Variable((), 0, {"crs_wkt": str(tmp_path / "secret.wkt")})}
    with pytest.warns(DataWarning, match="names no coordinate system"):
        assert open_scene(save(dataset(**coords), tmp_path / "d.nc")).crs is None


def test_latitude_and_longitude_need_no_mapping(tmp_path: Path) -> None:
    lat, lon = np.linspace(50, 49.4, ROWS, dtype=np.float32), np.linspace(120, 120.5, COLS, dtype=np.float32)
    scene = open_scene(save(dataset(dims=("lat", "lon", "band"), lat=lat, lon=lon), tmp_path / "a.nc"))
    assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(4326)
    np.testing.assert_allclose(scene.transform, (0.1, 0, 119.95, 0, -0.1, 50.05), atol=1e-5)


def test_the_geotransform_of_gdal_without_coordinates(tmp_path: Path) -> None:
    mapping = xr.Variable(
        (), 0, {"crs_wkt": CRS.from_epsg(32633).to_wkt(), "GeoTransform": "600000 30 0 5000000 0 -30"}
    )
    data = dataset(attrs={"grid_mapping": "crs"}).assign_coords(crs=mapping)
    assert open_scene(save(data, tmp_path / "a.nc")).transform == (30, 0, 600000, 0, -30, 5000000)


def test_uneven_coordinates_give_no_grid(tmp_path: Path) -> None:
    coords = utm() | {"x": np.array([0.0, 30, 60, 95, 120, 150])}
    with pytest.warns(DataWarning, match="not evenly spaced"):
        scene = open_scene(save(dataset(**coords), tmp_path / "a.nc"))
    assert scene.crs is None and scene.transform is None


def test_coordinates_that_only_number_the_pixels(tmp_path: Path) -> None:
    assert open_scene(save(dataset(y=np.arange(ROWS), x=np.arange(COLS)), tmp_path / "a.nc")).transform is None


# Labels


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_with_their_names(engine: str, tmp_path: Path) -> None:
    gt = (np.arange(ROWS * COLS).reshape(ROWS, COLS) % 4).astype(np.int8)
    gt[6, 5] = -1
    attrs = {"_FillValue": np.int8(-1), "flag_values": np.array([1, 2], "i1"), "flag_meanings": "water green_trees"}
    lat = np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS)  # a coordinate, no labels
    data = xr.Dataset({"classes": (("x", "y"), gt.T, attrs), "lat": (("x", "y"), lat.T)})
    path = save(data, tmp_path / "gt.nc", engine)
    labels = open_labels(path)
    np.testing.assert_array_equal(labels.array, np.where(gt < 0, 0, gt))
    assert [(e.label, e.name) for e in labels.legend] == [(1, "water"), (2, "green trees"), (3, "class 3")]
    assert describe(str(path)).to_json()["kind"] == "labels"
    with pytest.raises(SceneError, match="no 3-D array"):
        open_scene(path)


def test_labels_are_brought_to_the_scenes_grid(tmp_path: Path) -> None:
    scene = open_scene(save(dataset(**utm()), tmp_path / "a.nc"))
    gt = np.arange(1, ROWS * COLS + 1, dtype=np.int16).reshape(ROWS, COLS)
    data = xr.Dataset({"gt": (("y", "x"), gt[::-1])}, coords=utm(down=False))
    with pytest.warns(DataWarning, match="another grid"):
        labels = open_labels(save(data, tmp_path / "gt.nc"), scene=scene)
    np.testing.assert_array_equal(labels.array, gt)
    with pytest.raises(LabelsError, match="no 2-D array"):
        open_labels(tmp_path / "a.nc")


# By window, from threads and processes


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_and_processes_read_on_their_own(engine: str, tmp_path: Path) -> None:
    scene = open_scene(save(dataset(), tmp_path / "a.nc", engine))
    scene.read()
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(bool((scene.read().values == CUBE).all()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    queue: Any = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=put_sum, args=(scene, queue))
    child.start()
    assert queue.get() == CUBE.sum()
    child.join()


# Files that refer to other files


def secret(folder: Path) -> Path:
    with h5py.File(folder / "secret.h5", "w") as file:
        file["cube"] = CUBE
    (folder / "secret.bin").write_bytes(CUBE.tobytes())
    return folder / "secret.h5"


def external_link(file: h5py.File, folder: Path) -> None:
    del file["reflectance"]
    file["reflectance"] = h5py.ExternalLink(secret(folder), "/cube")


def deep_link(file: h5py.File, folder: Path) -> None:
    file.create_group("a/b")["c"] = h5py.ExternalLink(secret(folder), "/cube")
    del file["reflectance"]
    file["reflectance"] = h5py.SoftLink("/a/b/c")


def external_storage(file: h5py.File, folder: Path) -> None:
    del file["reflectance"]
    secret(folder)
    file.create_dataset("reflectance", CUBE.shape, "i2", external=[(folder / "secret.bin", 0, CUBE.nbytes)])


def virtual_dataset(file: h5py.File, folder: Path) -> None:
    del file["reflectance"]
    layout = h5py.VirtualLayout(CUBE.shape, "i2")
    layout[...] = h5py.VirtualSource(secret(folder), "cube", CUBE.shape)
    file.create_virtual_dataset("reflectance", layout)


@pytest.mark.parametrize("change", [external_link, deep_link, external_storage, virtual_dataset])
def test_nothing_of_another_file_is_read(change: Any, tmp_path: Path, guarded: None) -> None:
    path = save(dataset(), tmp_path / "a.nc")
    with h5py.File(path, "r+") as file:
        change(file, tmp_path)
    with pytest.raises(SceneError, match=r"refers elsewhere|in another file"):
        open_scene(path)


def test_soft_links_inside_a_file_are_followed(tmp_path: Path) -> None:
    path = save(dataset(), tmp_path / "a.nc")
    with h5py.File(path, "r+") as file:
        file["alias"] = h5py.SoftLink("/reflectance")
        file["nowhere"] = h5py.SoftLink("/not/there")
    np.testing.assert_array_equal(open_scene(f"{path}:alias").read().values, CUBE)


# False sizes and damage


def test_chunks_that_were_never_written(tmp_path: Path) -> None:
    for name, fill in (("a.nc", None), ("b.nc", np.int16(-7))):
        with h5py.File(tmp_path / name, "w") as file:
            cube = file.create_dataset("reflectance", (8, 8, 5), "i2", chunks=(4, 4, 5), fillvalue=fill)
            cube[:4] = 1
            if fill is not None:
                cube.attrs["_FillValue"] = fill
            file["x"] = np.arange(8)
            file["x"].make_scale("x")
            cube.dims[1].attach_scale(file["x"])
    with pytest.raises(SceneError, match="never written to its end: '/reflectance' has 2 of 4 chunks"):
        open_scene(tmp_path / "a.nc")
    assert open_scene(tmp_path / "b.nc").read().valid.sum() == 32  # unwritten chunks read as missing


def test_an_unknown_filter(tmp_path: Path) -> None:
    path = save(dataset(), tmp_path / "a.nc", chunksizes=(7, 6, 5), zlib=True)
    with h5py.File(path, "r+") as file:
        del file["reflectance"]
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((7, 6, 5))
        properties.set_filter(32999, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple(CUBE.shape)
        h5py.h5d.create(file.id, b"reflectance", h5py.h5t.STD_I16LE, space, dcpl=properties)
        file["reflectance"][...] = CUBE
    with pytest.raises(SceneError, match="filter 32999"):
        open_scene(path)


def claim(kind: str, path: Path) -> Path:
    """A file of a few kB that claims 400 TB, or a chunk of 2 GB."""
    with h5py.File(path, "w") as file:
        if kind == "cube":
            cube = file.create_dataset("cube", (1_000_000, 1_000_000, 200), "i2", chunks=(10, 10, 200))
            cube[:10, :10] = 1
        else:
            cube = file.create_dataset("cube", (1 << 10, 1 << 10, 1 << 10), "i2", chunks=(1 << 10,) * 3, fillvalue=-1)
            cube.attrs["_FillValue"] = np.int16(-1)
        x = file.create_dataset("x", (cube.shape[1],), "f8", chunks=(1 << 10,))
        x.make_scale("x")
        cube.dims[1].attach_scale(x)
    return path


@pytest.mark.parametrize("kind", ["cube", "chunk"])
def test_false_sizes_cost_no_memory(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HUGE, str(claim(kind, tmp_path / "a.nc"))], capture_output=True, text=True, check=True
    )
    sentence, _, memory = done.stdout.strip().rpartition("\n")
    assert "claims" in sentence and int(memory) < 100, done.stdout


def test_a_chunk_too_large_for_windows(tmp_path: Path) -> None:
    path = claim("chunk", tmp_path / "a.nc")
    with path.open("ab") as file:
        file.truncate(1 << 20)  # large enough for what it claims, if packed well
    with pytest.warns(DataWarning, match="bytes more"), pytest.raises(SceneError, match="chunks of 2,048 MB"):
        open_scene(path)


def test_a_file_that_hdf5_hangs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: None) -> None:
    """An object of size 0 in the heap of texts makes HDF5 2.0 loop forever."""
    path = save(dataset(), tmp_path / "a.nc")
    raw = bytearray(path.read_bytes())
    at = start = raw.index(b"GCOL")
    end, at = start + int.from_bytes(raw[at + 8 : at + 16], "little"), at + 16
    while number := int.from_bytes(raw[at : at + 2], "little"):
        size = int.from_bytes(raw[at + 8 : at + 16], "little")
        assert number and at < end
        at += 16 + size + -size % 8
    free = int.from_bytes(raw[at + 8 : at + 16], "little")
    raw[at + 8 : at + 16] = (free - 64).to_bytes(8, "little")
    raw[at + free - 64 : at + free] = bytes(64)
    path.write_bytes(raw)
    monkeypatch.setattr(hdf5, "_SECONDS", 1)
    with pytest.raises(SceneError, match="HDF5 itself breaks on it"):
        open_scene(path)


def test_a_trial_that_does_not_run_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: None) -> None:
    path = save(dataset(), tmp_path / "a.nc")
    assert hdf5._is_survived(path)
    monkeypatch.setattr(hdf5, "__name__", "hypercaps.moved")  # the module that the other process imports
    assert not hdf5._is_survived(path)


def test_truncated_files(tmp_path: Path) -> None:
    for engine in ENGINES:
        whole = save(dataset(), tmp_path / "a.nc", engine).read_bytes()
        for keep in (0.2, 0.7, 0.97):
            (tmp_path / "b.nc").write_bytes(whole[: int(len(whole) * keep)])
            with pytest.raises(SceneError, match="truncated"):
                open_scene(tmp_path / "b.nc")


def test_damaged_netcdf4(tmp_path: Path, guarded: None) -> None:
    """With checksums for its chunks, and compressed: a part of the file that is all 0 has the checksum 0.

    The structure has checksums except for the index of chunks, the coordinates have none: changed coordinates or
    wavelengths can't be detected.
    """
    path = save(dataset(**utm()), tmp_path / "sound.nc", chunksizes=(4, 3, 5), fletcher32=True, zlib=True)
    found = outcomes(path, 250)
    assert found.count("refused") > 50 and found.count("same") > 20
    assert set(found) <= {"refused", "same", "told"}


def test_a_chunk_that_the_index_lists_and_does_not_find(tmp_path: Path) -> None:
    path = save(dataset(), tmp_path / "a.nc", chunksizes=(4, 3, 5))
    raw = bytearray(path.read_bytes())
    tree = raw.index(b"TREE\x01\x00\x04\x00")  # an index of four chunks; the first's key is for four dimensions
    raw[tree + 24 + 8 + 24] = 64  # the last of them, the bytes of a number, is always at 0
    path.write_bytes(raw)
    with pytest.raises(SceneError, match="truncated, damaged"):
        open_scene(path).read()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_classic_files(tmp_path: Path) -> None:
    """Classic NetCDF has no checksums: numbers may be wrong, but nothing crashes."""
    path = save(dataset(**utm()), tmp_path / "sound.nc", "scipy")
    sound, refused = open_scene(path), 0
    for content in mutants(path.read_bytes(), 250):
        (tmp_path / "a.nc").write_bytes(content)
        refused += outcome(tmp_path / "a.nc", sound) == "refused"
    assert 50 < refused < 250
    (tmp_path / "a.nc").write_bytes(b"CDF\x05" + path.read_bytes()[4:])
    with pytest.raises(SceneError, match="CDF-5"):
        open_scene(tmp_path / "a.nc")


def test_a_chunk_that_inflates_to_far_more_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(dataset(), tmp_path / "a.nc", chunksizes=(7, 6, 5), zlib=True)
    np.testing.assert_array_equal(open_scene(path).read().values, CUBE)
    with h5py.File(path, "r+") as file:
        file["reflectance"].id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(60_000_000)))
    monkeypatch.setattr("hypercaps.io.readers.hdf5_chunks.SMALL", 1 << 20)  # a bomb has more than this in fact
    with pytest.raises(SceneError, match="a damaged chunk of '/reflectance'"):
        open_scene(path).read()
    with h5py.File(path, "r+") as file:
        file["reflectance"].id.write_direct_chunk((0, 0, 0), zlib.compress(bytes(70_000_000)))
    with pytest.raises(SceneError, match="an impossible size"):
        open_scene(path)


def test_chunks_that_are_compressed_twice(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(CUBE.shape)
        properties.set_deflate(4)
        properties.set_filter(h5py.h5z.FILTER_LZF)
        space = h5py.h5s.create_simple(CUBE.shape)
        dataset_id = h5py.h5d.create(file.id, b"reflectance", h5py.h5t.NATIVE_INT16, space, properties)
        h5py.Dataset(dataset_id)[...] = CUBE
    with pytest.raises(SceneError, match="compresses '/reflectance' several times"):
        open_scene(tmp_path / "a.nc")


def test_thousands_of_nested_groups(tmp_path: Path, guarded: None) -> None:
    path = save(dataset(), tmp_path / "a.nc")
    with h5py.File(path, "r+") as file:
        group = file
        for _ in range(1500):
            group = group.create_group("g")
    started = time.process_time()
    with pytest.raises(SceneError, match="groups within groups more than 16 deep"):
        open_scene(path)
    assert time.process_time() - started < 2


def test_groups_that_contain_themselves(tmp_path: Path) -> None:
    path = save(dataset(), tmp_path / "a.nc")
    with h5py.File(path, "r+") as file:
        inner = file.create_group("a").create_group("b")
        inner["again"] = file["a"]
        inner["top"] = file["/"]
    np.testing.assert_array_equal(open_scene(path).read().values, CUBE)


def test_bytes_inserted_into_contiguous_numbers_are_reported(tmp_path: Path) -> None:
    path = save(dataset(), tmp_path / "a.nc")
    with h5py.File(path) as file:
        start = file["reflectance"].id.get_offset()
    whole = path.read_bytes()
    path.write_bytes(whole[: start + 10] + b"\r\r" + whole[start + 10 :])
    with pytest.warns(DataWarning, match=r"a\.nc has 2 bytes more than it describes: it may be damaged"):
        open_scene(path)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
def test_bytes_inserted_into_classic_files_are_reported(dtype: str, tmp_path: Path) -> None:
    path = save(dataset(CUBE.astype(dtype)), tmp_path / "a.nc", "scipy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_scene(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + b"\r" * 5 + whole[-100:])
    with pytest.warns(DataWarning, match=r"a\.nc has [5-8] bytes more than it describes: it may be damaged"):
        open_scene(path)


def test_numbers_of_an_unusual_type(tmp_path: Path) -> None:
    """One bit of the description of a type makes other numbers of all."""
    path = save(dataset(CUBE.astype(np.float32)), tmp_path / "a.nc")
    with h5py.File(path, "r+") as file:
        unusual = h5py.h5t.IEEE_F32LE.copy()
        unusual.set_ebias(126)
        dataset_id = h5py.h5d.create(file.id, b"other", unusual, h5py.h5s.create_simple(CUBE.shape))
        h5py.Dataset(dataset_id)[...] = 1
    with pytest.raises(SceneError, match="numbers of an unusual type in 'other'"):
        open_scene(path)
