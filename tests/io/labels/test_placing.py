"""Where features lie: pixel coordinates without any coordinate system, metres that pass for degrees, and counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import rasterio.warp
import shapely

from hypercaps.data.grid import Affine
from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, LabelsError
from hypercaps.io.open import open_labels, open_mask
from support.vectors import GRID, KINDS, SQUARES, names, scene_on, write


def plain_geojson(path: Path, shapes: list[shapely.Geometry], kinds: list[str]) -> Path:
    """GeoJSON that names no coordinate system."""
    features = [
        {"type": "Feature", "geometry": json.loads(shapely.to_geojson(shape)), "properties": {"kind": kind}}
        for shape, kind in zip(shapes, kinds, strict=True)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def without_place() -> Scene:
    return scene_on(None, crs=None)


@pytest.mark.parametrize("suffix", ["gpkg", "shp", "fgb", "geojson"])
@pytest.mark.parametrize("sign", [1, -1])  # QGIS shows images without georeference at negative y
@pytest.mark.parametrize("grid", [None, (1.0, 0.0, 0.0, 0.0, -1.0, 0.0)])  # and so does an "Arbitrary" map info of ENVI
def test_pixel_coordinates_if_neither_side_has_a_coordinate_system(
    suffix: str, sign: int, grid: Affine | None, tmp_path: Path
) -> None:
    scene = scene_on(grid, crs=None)
    shapes = [shapely.transform(square, lambda xy: xy * [1, sign]) for square in SQUARES]
    path = tmp_path / f"a.{suffix}"
    if suffix == "geojson":
        plain_geojson(path, shapes, KINDS)
    else:
        write(path, shapes, {"kind": KINDS}, crs=None, grid=None)
    with pytest.warns(DataWarning, match=r"columns \(x\) and rows \(y\) of pixels"):
        labels = open_labels(path, scene=scene, class_field="kind")
    right = open_labels(write(tmp_path / "b.gpkg", SQUARES, {"kind": KINDS}), scene=scene_on(), class_field="kind")
    np.testing.assert_array_equal(labels.array, right.array)
    assert names(labels) == names(right)
    with pytest.warns(DataWarning, match=r"columns \(x\) and rows"):
        np.testing.assert_array_equal(open_mask(path, scene), right.array > 0)


def test_a_layer_with_a_coordinate_system_is_still_refused_for_a_scene_without_one(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match="lies in EPSG:32633 but scene 's' has no coordinate system"):
        open_labels(write(tmp_path / "a.geojson", SQUARES, {"kind": KINDS}), scene=without_place(), class_field="kind")


def test_geojson_in_metres(tmp_path: Path) -> None:
    metres = [shapely.box(366010, 5809500, 366050, 5809550)]
    sentence = r"names no coordinate system.*longitude and latitude, but.* 5809\d+.*perhaps EPSG:32633 as the scene"
    with pytest.raises(LabelsError, match=sentence):
        open_labels(plain_geojson(tmp_path / "a.geojson", metres, ["a"]), scene=scene_on(), class_field="kind")
    path = write(tmp_path / "b.gpkg", metres, {"kind": ["a"]}, crs="EPSG:4326", grid=None)
    with pytest.raises(LabelsError, match="says it lies in longitude and latitude, but has coordinates such as 366"):
        open_labels(path, scene=scene_on(), class_field="kind")


def test_latitude_before_longitude_is_recognised(tmp_path: Path) -> None:
    west = replace(scene_on(), crs="EPSG:32610")  # in California, where longitudes are beyond -90
    for scene, crs in [(scene_on(), "EPSG:32633"), (west, "EPSG:32610")]:
        path = write(tmp_path / f"{crs[5:]}.gpkg", SQUARES, {"kind": KINDS}, crs=crs)
        _, _, wkb, _ = pyogrio.raw.read(path)
        x, y = shapely.get_coordinates(shapely.from_wkb(wkb)).T
        lon, lat = rasterio.warp.transform(crs, "EPSG:4326", x, y)
        corners = [shapely.Point(*place) for place in zip(lat, lon, strict=True)]
        wrong = plain_geojson(tmp_path / "a.geojson", corners, ["a"] * len(corners))
        with pytest.raises(LabelsError, match=r"exchange x and y, .*: longitude comes before latitude$"):
            open_labels(wrong, scene=scene, class_field="kind")


def test_northing_before_easting_is_recognised(tmp_path: Path) -> None:
    x, y = GRID[2] + 55, GRID[5] - 55
    (tmp_path / "a.csv").write_text(f"x,y,kind\n{y},{x},a\n")
    with pytest.raises(LabelsError, match=r"exchange x and y, .*: x is the easting$"):
        open_labels(tmp_path / "a.csv", scene=scene_on(), class_field="kind")


@pytest.mark.parametrize("sign", [1, -1])
def test_pixel_coordinates_for_a_scene_with_a_coordinate_system_are_recognised(sign: int, tmp_path: Path) -> None:
    pixels = [shapely.transform(square, lambda xy: xy * [1, sign]) for square in SQUARES]
    sentence = r"no feature of .* lies in scene 's': .* columns and rows of pixels .* CSV file with the columns row"
    with pytest.raises(LabelsError, match=sentence):
        open_labels(plain_geojson(tmp_path / "a.geojson", pixels, KINDS), scene=scene_on(), class_field="kind")


def test_features_of_another_place_are_no_exchange(tmp_path: Path) -> None:
    far = [shapely.box(10, 52, 11, 53)]
    with pytest.raises(LabelsError, match="give labels of the same place") as caught:
        open_labels(plain_geojson(tmp_path / "a.geojson", far, ["a"]), scene=scene_on(shape=(4, 4)), class_field="kind")
    assert "exchange" not in str(caught.value) and "pixels" not in str(caught.value)


def test_a_property_id_that_is_not_unique_says_nothing(tmp_path: Path) -> None:
    path = plain_geojson(tmp_path / "a.geojson", SQUARES[:2], KINDS[:2])
    collection = json.loads(path.read_text())
    for feature in collection["features"]:
        feature["properties"]["id"] = 0
    path.write_text(json.dumps(collection))
    with pytest.warns(DataWarning) as caught:
        open_labels(path, scene=without_place(), class_field="kind")
    assert ["columns (x) and rows (y)" in str(one.message) for one in caught] == [True]


def with_nodata(scene: Scene, columns: int) -> Scene:
    """The scene with nodata in its first columns."""

    def read(rows: slice, cols: slice) -> Pixels:
        values, valid = scene.reader(rows, cols)
        return Pixels(values, valid & (np.arange(cols.start, cols.stop) >= columns))

    return replace(scene, reader=read)


def test_points_are_counted(tmp_path: Path) -> None:
    places = [(70, 5), (71, 5), (5, -1), (3, 3), (4, 3), (20, 3), (20.2, 3.3), (30, 3), (31, 3), None]
    points = [None if place is None else shapely.Point(*place) for place in places]
    path = write(tmp_path / "a.gpkg", points, {"kind": ["a"] * 8 + ["", "a"]})
    with pytest.warns(DataWarning) as caught:
        labels = open_labels(path, scene=with_nodata(scene_on(), 10), class_field="kind")
    assert [str(one.message) for one in caught] == [
        "a.gpkg: 10 points: 3 outside the scene, 2 on nodata, 1 without a geometry, 1 without a class, 1 in pixels of "
        "other features, 2 used"
    ]
    assert np.argwhere(labels.array).tolist() == [[3, 20], [3, 30]]


def test_polygons_that_are_partly_on_nodata(tmp_path: Path) -> None:
    scene = with_nodata(scene_on(), 12)
    path = write(tmp_path / "a.gpkg", SQUARES, {"kind": KINDS})
    with pytest.warns(DataWarning) as caught:
        labels = open_labels(path, scene=scene, class_field="kind")
    assert "30 labelled pixels of 'a' are invalid" in str(caught[0].message)
    assert str(caught[1].message) == "a.gpkg: 3 polygons: 1 on nodata, 2 used"
    assert labels.where_valid(scene) is labels  # which is remembered, so that the warning is not repeated


def test_all_points_on_nodata(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gpkg", [shapely.Point(3, 3)], {"kind": ["a"]})
    with pytest.raises(LabelsError, match="all 1 labelled pixels of 'a' are invalid"):
        open_labels(path, scene=with_nodata(scene_on(), 10), class_field="kind")
