"""ClassMap: unpacking, counts, and the DataArray that it becomes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401 - registers the accessor
import xarray as xr
from rasterio.crs import CRS

from hypercaps import ConvCapsClassifier, Labels, Legend, Scene, open_labels
from hypercaps.data.grid import Lookup
from hypercaps.errors import OutputError
from hypercaps.inference.class_map import ClassMap
from support.scenes import make_cube

LEGEND = Legend.of([1, 4], ["bare soil", "water"], {1: (200, 100, 0), 4: (0, 0, 255)})
CLASSES = np.array([[1, 1, 0], [4, 4, 1]], dtype=np.int16)
CONFIDENCE = np.array([[0.9, 0.8, np.nan], [0.7, 0.6, 0.5]], dtype=np.float32)
UTM = (30.0, 0.0, 600000.0, 0.0, -30.0, 5000000.0)
MAP = ClassMap(CLASSES, CONFIDENCE, LEGEND, "EPSG:32633", UTM)


# rioxarray multiplies transforms as the affine package will not allow one day.
pytestmark = pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")


def test_it_unpacks_into_classes_and_confidence() -> None:
    classes, confidence = MAP
    assert classes is CLASSES and confidence is CONFIDENCE
    assert MAP.shape == (2, 3) and MAP.counts() == {1: 3, 4: 2} and "2 classes" in repr(MAP)


def test_a_classifier_gives_it_the_legend_and_the_georeference_of_the_scene() -> None:
    cube, truth = make_cube()
    data = xr.DataArray(cube, dims=("y", "x", "band")).assign_coords(
        x=600015 + 30.0 * np.arange(36), y=5000000 - 30.0 * np.arange(36)
    )
    scene = Scene.from_xarray(data.rio.write_crs(32633))
    found = ConvCapsClassifier(method="lda").fit(scene, Labels.from_array(truth)).map(scene)
    assert (found.legend, found.crs, found.transform) == (Labels.from_array(truth).legend, scene.crs, scene.transform)
    back = found.to_xarray()
    np.testing.assert_array_equal(back.x, data.x)
    np.testing.assert_array_equal(back.y, data.y)


def test_georeference_names_and_colours_in_xarray() -> None:
    data = MAP.to_xarray()
    assert data.dims == ("y", "x") and data.dtype == np.int16 and data.name == "classes"
    np.testing.assert_array_equal(data, CLASSES)
    np.testing.assert_array_equal(data.coords["confidence"], CONFIDENCE)
    assert data.rio.crs == CRS.from_epsg(32633) and tuple(data.rio.transform())[:6] == UTM
    assert data.x.values.tolist() == [600015, 600045, 600075] and data.y.values.tolist() == [4999985, 4999955]
    assert data.attrs["class_names"] == ["bare soil", "water"] and data.attrs["flag_meanings"] == "bare_soil water"
    assert data.attrs["flag_values"].tolist() == [1, 4] and data.attrs["flag_colors"] == "#c86400 #0000ff"


def test_degrees_are_named_as_such() -> None:
    data = ClassMap(CLASSES, CONFIDENCE, LEGEND, "EPSG:4326", (0.1, 0, 10, 0, -0.1, 50)).to_xarray()
    assert data.x.attrs["units"] == "degrees_east" and data.y.attrs["standard_name"] == "latitude"


def test_a_rotated_grid_has_its_transform_only() -> None:
    turned = (20.0, 10.0, 600000.0, 10.0, -20.0, 5000000.0)
    data = ClassMap(CLASSES, CONFIDENCE, LEGEND, "EPSG:32633", turned).to_xarray()
    assert "x" not in data.coords and tuple(data.rio.transform())[:6] == turned


def test_without_a_georeference() -> None:
    data = ClassMap(CLASSES, CONFIDENCE, LEGEND).to_xarray()
    assert set(data.coords) == {"confidence"} and data.rio.crs is None


def test_a_swath_is_projected() -> None:
    rows, cols = np.array([[-1, 0], [1, 1], [0, -1]]), np.array([[-1, 2], [0, 2], [0, -1]])
    lookup = Lookup(rows.astype(np.int32), cols.astype(np.int32), "EPSG:32633", UTM)
    data = ClassMap(CLASSES, CONFIDENCE, LEGEND, lookup=lookup).to_xarray()
    assert data.values.tolist() == [[0, 0], [4, 1], [1, 0]] and data.rio.crs == CRS.from_epsg(32633)
    assert np.isnan(data.confidence.values).tolist() == [[True, True], [False, False], [False, True]]


@pytest.mark.parametrize("engine", ["h5netcdf", "zarr"])
def test_a_stored_map_is_read_back_as_labels(tmp_path: Path, engine: str) -> None:
    data = MAP.to_xarray().to_dataset()  # with the confidence
    path = tmp_path / "map"
    if engine == "zarr":
        data.to_zarr(path, zarr_format=2, consolidated=True)
    else:
        data.to_netcdf(path, engine="h5netcdf")
    labels = open_labels(path)
    np.testing.assert_array_equal(labels.array, CLASSES)
    assert [(entry.name, entry.color) for entry in labels.legend] == [(entry.name, entry.color) for entry in LEGEND]


def test_labels_have_the_names_and_colours_of_a_map_in_memory() -> None:
    legend = Legend.of([1, 4], ["bare_soil", "open water"], {4: (1, 2, 3)})
    data = ClassMap(CLASSES, CONFIDENCE, legend).to_xarray()
    assert Labels.from_array(data.transpose("x", "y")).legend == legend
    assert Labels.from_array(data, Legend.of([1], ["soil"])).legend.entries[0].name == "soil"


def test_without_xarray_one_sentence_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['xarray'] = None\nimport numpy as np\n"
        "from hypercaps.inference.class_map import ClassMap\nfrom hypercaps import HypercapsError\n"
        "try:\n    ClassMap(np.ones((2, 2), np.int16), np.ones((2, 2), np.float32)).to_xarray()\n"
        "except HypercapsError as error:\n    print(isinstance(error, ImportError), error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("True to_xarray needs xarray") and "pip install xarray" in done.stdout


def test_saved_as_geotiff_with_names_and_colours(tmp_path: Path) -> None:
    MAP.save(tmp_path / "map.tif", confidence=tmp_path / "sure.tif")
    assert {path.name for path in tmp_path.iterdir()} == {"map.tif", "map.tif.aux.xml", "map.qml", "sure.tif"}
    with rasterio.open(tmp_path / "map.tif") as file:
        assert (file.crs, tuple(file.transform)[:6], file.nodata) == (CRS.from_epsg(32633), UTM, 0)
        np.testing.assert_array_equal(file.read(1), CLASSES)
        assert file.colormap(1)[4] == (0, 0, 255, 255) and file.tags(1)["CLASS_1"] == "bare soil"
        assert file.tags()["HYPERCAPS_SCENE"] == "map"
    with rasterio.open(tmp_path / "sure.tif") as file:
        np.testing.assert_array_equal(file.read(1), CONFIDENCE)
        assert np.isnan(file.nodata) and tuple(file.transform)[:6] == UTM
    assert open_labels(tmp_path / "map.tif").legend == LEGEND
    MAP.save(str(tmp_path / "map.tif"))  # replaced


def test_a_swath_is_saved_projected(tmp_path: Path) -> None:
    rows, cols = np.array([[-1, 0], [1, 1], [0, -1]]), np.array([[-1, 2], [0, 2], [0, -1]])
    lookup = Lookup(rows.astype(np.int32), cols.astype(np.int32), "EPSG:32633", UTM)
    ClassMap(CLASSES, CONFIDENCE, LEGEND, lookup=lookup).save(tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.read(1).tolist() == [[0, 0], [4, 1], [1, 0]] and file.crs == CRS.from_epsg(32633)


def test_files_that_are_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must end in \.tif or \.tiff"):
        MAP.save(tmp_path / "map.png")
    with pytest.raises(OutputError, match="asked for twice"):
        MAP.save(tmp_path / "map.tif", confidence=tmp_path / "map.tif")
    (tmp_path / "map.qml").write_text("<qgis>of somebody</qgis>")
    with pytest.raises(OutputError, match="a style that hypercaps did not write"):
        MAP.save(tmp_path / "map.tif")
    assert {path.name for path in tmp_path.iterdir()} == {"map.qml"}


def test_the_georeference_of_an_array_goes_into_its_map(tmp_path: Path) -> None:
    cube, truth = make_cube()
    crs, transform = CRS.from_epsg(32633), rasterio.Affine(*UTM)  # as rasterio gives them
    scene = Scene.from_array(cube, crs=crs, transform=transform)
    ConvCapsClassifier(method="lda").fit(scene, truth).map(scene).save(tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert (file.crs, file.transform, file.shape) == (crs, transform, truth.shape)
