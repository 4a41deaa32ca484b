"""Scene.from_xarray: the same CF rules as for files, read by window."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
from rasterio.crs import CRS
from rasterio.transform import Affine

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.readers import hdf5
from support.cubes import COLS, CUBE, ROWS, WAVES, dataset, utm, waves
from support.scenes import make_cube


@pytest.mark.parametrize(
    "dims", [("y", "x", "wavelength"), ("band", "longitude", "latitude"), ("line", "wl", "sample")]
)
def test_any_order_of_dimensions(dims: tuple[str, ...]) -> None:
    scene = Scene.from_xarray(dataset(dims=dims)["reflectance"])
    assert (scene.shape, scene.dtype, scene.name) == (CUBE.shape, np.int16, "reflectance")
    np.testing.assert_array_equal(scene.read().values, CUBE)
    np.testing.assert_array_equal(scene.read(slice(2, 5), slice(1, 6)).values, CUBE[2:5, 1:6])
    assert scene.read().valid.all() and scene.wavelengths is None and scene.crs is None and scene.block is None


def test_bands_and_georeference_from_coordinates_and_attributes() -> None:
    coords = utm() | {"wavelength": waves("um", np.array(WAVES) / 1e3), "fwhm": ("wavelength", [0.01] * 5)}
    data = dataset(
        attrs={"_FillValue": 8, "scale_factor": 0.5, "note": ["a", 1], "grid_mapping": "spatial_ref"}, **coords
    )
    for source in (data, data["reflectance"]):
        scene = Scene.from_xarray(source, name="tile.1")
        assert scene.name == "tile.1"
        np.testing.assert_allclose(scene.wavelengths, WAVES)
        np.testing.assert_allclose(scene.fwhm, [10] * 5)
        assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(32633)
        assert scene.transform == (30, 0, 599985, 0, -30, 5000015)
        pixels = scene.read()
        np.testing.assert_array_equal(pixels.valid, (CUBE != 8).all(axis=2))
        np.testing.assert_array_equal(pixels.values, CUBE / 2)


def test_lists_beside_the_cube_of_a_dataset() -> None:
    data = dataset(dims=("band", "y", "x"))
    data["wavelengths"], data["good_bands"] = waves(dim="band"), ("band", [1, 1, 0, 1, 1])
    data["mask"] = ("y", "x"), np.ones((ROWS, COLS), dtype=np.uint8)
    with pytest.warns(DataWarning, match=r"left out: 3 \(marked bad"):
        scene = Scene.from_xarray(data)
    assert scene.wavelengths is not None and scene.wavelengths.tolist() == [450, 550, 850, 1650]
    np.testing.assert_array_equal(scene.read().values, CUBE[:, :, [0, 1, 3, 4]])


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy", "zarr"])
@pytest.mark.parametrize("decode", [True, False, "all"])
def test_an_open_file_is_the_same_scene_as_by_its_path(
    engine: Any, decode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5, "_is_survived", lambda path: True)
    cube = CUBE.copy()
    cube[1, 1, 2], cube[2, 2, 0] = -9999, -9999
    attrs = {"_FillValue": np.int16(-9999), "scale_factor": np.float32(0.5), "grid_mapping": "spatial_ref"}
    data, path = dataset(cube, attrs=attrs, wavelength=waves(), **utm()), tmp_path / "a"
    if engine == "zarr":
        data.to_zarr(path, zarr_format=2, consolidated=True)
    else:
        data.to_netcdf(path, engine=engine)
    expected = open_scene(path)
    with xr.open_dataset(path, engine=engine, mask_and_scale=decode is not False, decode_coords=decode) as opened:
        scene = Scene.from_xarray(opened)
        assert (scene.crs, scene.transform) == (expected.crs, expected.transform)
        np.testing.assert_array_equal(scene.wavelengths, expected.wavelengths)
        pixels, same = scene.read(slice(1, 6), slice(0, 4)), expected.read(slice(1, 6), slice(0, 4))
    np.testing.assert_array_equal(pixels.valid, same.valid)
    np.testing.assert_array_equal(pixels.values[pixels.valid], same.values[same.valid])


def test_lazy_data_is_read_by_window() -> None:
    computed = []

    def block(numbers: np.ndarray) -> np.ndarray:
        computed.append(numbers.shape)
        return numbers

    cube = dask.array.from_array(CUBE, chunks=(4, 3, 5)).map_blocks(block, dtype=CUBE.dtype, meta=CUBE[:0])
    scene = Scene.from_xarray(xr.DataArray(cube, dims=("y", "x", "band")))
    assert scene.block == (4, 3)
    computed.clear()
    np.testing.assert_array_equal(scene.read(slice(0, 2), slice(4, 6)).values, CUBE[:2, 4:6])
    assert computed == [(4, 3, 5)]  # one chunk of four


def test_wavelengths_of_the_user() -> None:
    scene = Scene.from_xarray(dataset().assign(name=1), wavelengths=np.array(WAVES) / 1e3)
    np.testing.assert_allclose(scene.wavelengths, WAVES)
    assert scene.name == "xarray"
    with pytest.raises(SceneError, match="2 wavelengths but reflectance has 5 bands"):
        Scene.from_xarray(dataset()["reflectance"], wavelengths=[400, 500])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (CUBE, "DataArray or a Dataset of xarray, not ndarray: .*from_array"),
        (xr.DataArray(CUBE[:, :, 0], dims=("y", "x")), r"dimensions y 7, x 6: one each for rows, .*wavelength\)$"),
        (xr.DataArray(CUBE, dims=("time", "y", "x")), r"dimensions time 7, y 6, x 5: .*isel\(time=0\)"),
        (xr.DataArray(CUBE.astype(str), dims=("y", "x", "band")), "holds <U.* values: .*real numbers is expected"),
        (xr.DataArray(CUBE[:0], dims=("y", "x", "band")), "has no values along y"),
        (xr.DataArray(1), r"dimensions \(none\): one each for rows"),
        (xr.Dataset(), r"holds 0 \(all its variables: none\)"),
        (dataset().assign(second=dataset()["reflectance"]), r"holds 2 .*: reflectance, second\)"),
    ],
)
def test_refused(data: Any, sentence: str) -> None:
    with pytest.raises(SceneError, match=sentence):
        Scene.from_xarray(data)


def test_files_are_read_without_importing_xarray(tmp_path: Path) -> None:
    """It takes 0.4 s and 43 MB to import, pandas included."""
    dataset().to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    code = """
import sys
from hypercaps.io.open import open_labels, open_scene
open_scene(sys.argv[1]).read()
print(sorted({"xarray", "pandas", "h5netcdf"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "a.nc")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


# rioxarray


# rioxarray multiplies transforms as the affine package will not allow one day.
OF_AFFINE = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")


@OF_AFFINE
@pytest.mark.parametrize("how", ["write_crs", "accessor alone"])
def test_the_coordinate_system_of_rioxarray(how: str) -> None:
    data = dataset(dims=("band", "y", "x"))["reflectance"].assign_coords({"y": utm()["y"], "x": utm()["x"]})
    if how == "write_crs":
        data = data.rio.write_crs(32633)
    else:  # known to the accessor, in no coordinate and no attribute
        with pytest.warns(FutureWarning):
            data = data.rio.set_crs(32633)
    scene = Scene.from_xarray(data)
    assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(32633)
    assert scene.transform == (30, 0, 599985, 0, -30, 5000015)


@OF_AFFINE
def test_a_geotiff_opened_by_rioxarray(tmp_path: Path) -> None:
    path = tmp_path / "cube.tif"
    grid = Affine(30, 0, 600000, 0, -30, 5000000)
    profile = {"driver": "GTiff", "height": ROWS, "width": COLS, "count": 5, "dtype": "int16", "nodata": -1}
    with rasterio.open(path, "w", crs="EPSG:32633", transform=grid, **profile) as file:
        file.write(CUBE.transpose(2, 0, 1))
    expected = open_scene(path)
    for chunks in (None, {"x": 3, "y": 4}):
        with rioxarray.open_rasterio(path, chunks=chunks) as data:
            scene = Scene.from_xarray(data)
            assert (scene.shape, scene.transform, scene.wavelengths) == (expected.shape, expected.transform, None)
            assert CRS.from_wkt(scene.crs) == CRS.from_wkt(expected.crs)
            np.testing.assert_array_equal(scene.read().values, expected.read().values)
            assert scene.block == ((ROWS, COLS) if chunks is None else (4, 3))  # the file's, or dask's


# Dimensions and wavelengths that are not as they should be


@pytest.mark.parametrize("dims", [("dim_0", "dim_1", "dim_2"), ("north", "east", "colour")])
def test_dimensions_without_telling_names_are_taken_in_order_with_a_warning(dims: tuple[str, ...]) -> None:
    with pytest.warns(DataWarning, match=rf"dimensions {', '.join(dims)} of 'xarray' have no names.*name them, such"):
        scene = Scene.from_xarray(xr.DataArray(CUBE, dims=dims))
    np.testing.assert_array_equal(scene.read().values, CUBE)


def test_a_single_dimension_without_a_telling_name_is_the_one_that_is_left() -> None:
    scene = Scene.from_xarray(xr.DataArray(CUBE.transpose(2, 0, 1), dims=("colour", "y", "x")))  # warnings are errors
    np.testing.assert_array_equal(scene.read().values, CUBE)


def test_a_scene_can_be_sent_to_another_process() -> None:
    lazy = dataset()["reflectance"].chunk({"y": 2})
    again = pickle.loads(pickle.dumps(Scene.from_xarray(lazy)))
    np.testing.assert_array_equal(again.read().values, Scene.from_xarray(lazy).read().values)


def test_bands_are_sorted_by_wavelength_with_a_warning() -> None:
    order = [3, 0, 4, 1, 2]
    data = dataset(CUBE[:, :, order], wavelength=waves(values=np.array(WAVES)[order]))["reflectance"]
    with pytest.warns(DataWarning, match="sorted by wavelength"):
        scene = Scene.from_xarray(data)
    assert scene.wavelengths is not None and scene.wavelengths.tolist() == WAVES
    np.testing.assert_array_equal(scene.read().values, CUBE)


def test_wavelengths_with_gaps_are_not_used() -> None:
    data = dataset(wavelength=waves(values=[450, np.nan, 650, 850, 1650]))["reflectance"]
    with pytest.warns(DataWarning, match="some wavelengths are no numbers above 0, so none is used"):
        assert Scene.from_xarray(data).wavelengths is None


@pytest.mark.parametrize("dim", ["wavelength", "band"])
def test_wavelengths_that_are_text_are_reported(dim: str) -> None:
    data = xr.DataArray(CUBE, dims=("y", "x", dim), coords={"wavelength": (dim, [str(value) for value in WAVES])})
    with pytest.warns(DataWarning, match="wavelength is no list of numbers, so no wavelengths"):
        assert Scene.from_xarray(data).wavelengths is None


def test_a_whole_map_of_lazy_data_never_reads_it_whole() -> None:
    largest = [0]

    def block(numbers: np.ndarray) -> np.ndarray:
        return numbers

    cube, truth = make_cube(rows=300, cols=280, bands=10)
    lazy = dask.array.from_array(cube, chunks=(32, 32, 10)).map_blocks(block, dtype=cube.dtype, meta=cube[:0])
    scene = Scene.from_xarray(xr.DataArray(lazy, dims=("y", "x", "band")))
    read = scene.reader

    def watched(rows: slice, cols: slice) -> Any:
        largest[0] = max(largest[0], (rows.stop - rows.start) * (cols.stop - cols.start))
        return read(rows, cols)

    watching = replace(scene, reader=watched)
    trained = ConvCapsClassifier(method="lda").fit(cube, truth)
    np.testing.assert_array_equal(trained.predict(watching), trained.predict(cube))
    assert 0 < largest[0] < cube.shape[0] * cube.shape[1] / 2


# Where an array or a file is expected


@pytest.mark.parametrize("dims", [("y", "x", "wavelength"), ("band", "y", "x"), ("x", "y", "band")])
def test_from_array_finds_dimensions_by_their_names(dims: tuple[str, ...]) -> None:
    scene = Scene.from_array(dataset(dims=dims)["reflectance"])
    assert (scene.shape, scene.name) == (CUBE.shape, "reflectance")
    np.testing.assert_array_equal(scene.read().values, CUBE)


def test_from_array_with_its_other_options() -> None:
    data = dataset(dims=("band", "y", "x"))["reflectance"]
    with pytest.warns(DataWarning, match="left out: 2"):
        scene = Scene.from_array(data, name="mine", wavelengths=WAVES, nodata=8, good_bands=[1, 0, 1, 1, 1])
    assert scene.name == "mine" and scene.wavelengths is not None
    assert scene.wavelengths.tolist() == [450, 650, 850, 1650]
    np.testing.assert_array_equal(scene.read().valid, (CUBE[:, :, [0, 2, 3, 4]] != 8).all(axis=2))
    with pytest.raises(SceneError, match="has 5 bands but 2 good-band flags"):
        Scene.from_array(data, good_bands=[1, 0])


def test_from_array_with_dimensions_of_other_names() -> None:
    """As for any array: rows, columns, bands."""
    with pytest.warns(DataWarning, match="dimensions a, b, c of 'xarray' have no names"):
        scene = Scene.from_array(xr.DataArray(CUBE, dims=("a", "b", "c")))
    np.testing.assert_array_equal(scene.read().values, CUBE)
    assert scene.name == "xarray"


@pytest.mark.parametrize("dims", [("y", "x"), ("x", "y"), ("band", "y", "x"), ("a", "b")])
def test_labels_find_dimensions_by_their_names(dims: tuple[str, ...]) -> None:
    gt = np.arange(ROWS * COLS).reshape(ROWS, COLS) % 4
    stored = gt.T if dims[0] == "x" else gt[None] if len(dims) == 3 else gt
    np.testing.assert_array_equal(Labels.from_array(xr.DataArray(stored, dims=dims)).array, gt)


@pytest.mark.parametrize("given", [dataset()["reflectance"], CUBE, [CUBE], None, 7])
def test_an_array_instead_of_a_file(given: Any) -> None:
    with pytest.raises(SceneError, match=r"open_scene takes the name of a file, not .*Scene\.from_array"):
        open_scene(given)
    with pytest.raises(LabelsError, match=r"open_labels takes the name of a file, not .*Labels\.from_array"):
        open_labels(given)
