"""Labels from polygons, lines and points: what they label, what they are called, and what is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio.warp
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.data.grid import Affine, Lookup
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, LabelsError
from hypercaps.io.labels import layer as vector_layer
from hypercaps.io.labels.class_field import choose_fields
from hypercaps.io.labels.layer import VectorLayer
from hypercaps.io.labels.qml import parse_style, read_color
from hypercaps.io.labels.regrid import grid_to_swath
from hypercaps.io.open import open_labels
from support.vectors import DRIVERS, GRID, KINDS, SQUARES, TURNED, names, on_grid, scene_on, write

# Rasterized pixels


@pytest.mark.parametrize("suffix", DRIVERS)
@pytest.mark.parametrize("grid", [GRID, TURNED])
def test_every_format_labels_the_pixels_whose_centre_lies_inside(suffix: str, grid: Affine, tmp_path: Path) -> None:
    blob = shapely.Point(45.3, 12.8).buffer(7.7)
    with_hole = shapely.Polygon([(3, 20.03), (25, 22.1), (20, 38), (2, 35)], [[(8, 25), (8, 30), (15, 30), (15, 25)]])
    path = write(tmp_path / f"a.{suffix}", [blob, with_hole], {"kind": ["tree", "soil"]}, grid=grid)
    labels = open_labels(path, scene=scene_on(grid), class_field="kind")
    col, row = np.meshgrid(np.arange(60) + 0.5, np.arange(40) + 0.5)
    expected = 2 * shapely.contains_xy(blob, col, row) + shapely.contains_xy(with_hole, col, row)
    np.testing.assert_array_equal(labels.array, expected)
    assert names(labels) == [(1, "soil"), (2, "tree")] and labels.name == "a"
    assert labels.groups is not None and labels.groups.dtype == np.int32
    np.testing.assert_array_equal(labels.groups, [[[0, 2, 1][label] for label in line] for line in expected])


def test_lines_and_points_label_the_pixels_they_touch(tmp_path: Path) -> None:
    line, point = shapely.LineString([(2.5, 3.5), (6.5, 3.5), (6.5, 5.2)]), shapely.Point(20.99, 10.01)
    several = shapely.MultiPoint([(30.5, 1.5), (33.5, 2.5)])
    path = write(tmp_path / "a.gpkg", [line, point, several], {"kind": ["a", "b", "c"]})
    labels = open_labels(path, scene=scene_on(), class_field="kind")
    assert np.argwhere(labels.array == 1).tolist() == [[3, 2], [3, 3], [3, 4], [3, 5], [3, 6], [4, 6], [5, 6]]
    assert np.argwhere(labels.array == 2).tolist() == [[10, 20]]
    assert np.argwhere(labels.array == 3).tolist() == [[1, 30], [2, 33]]
    assert labels.groups is not None and labels.groups[1, 30] == labels.groups[2, 33] == 3  # one feature


def test_collections_are_split_into_parts(tmp_path: Path) -> None:
    inner = shapely.GeometryCollection([shapely.Point(20.5, 20.5), shapely.box(30, 30, 32, 32)])
    outer = shapely.GeometryCollection([inner, shapely.MultiLineString([[(1.5, 1.5), (3.5, 1.5)]])])
    labels = open_labels(write(tmp_path / "a.gpkg", [outer], {"n": [7]}), scene=scene_on(), class_field="n")
    assert np.argwhere(labels.array == 7).tolist() == [
        [1, 1], [1, 2], [1, 3], [20, 20], [30, 30], [30, 31], [31, 30], [31, 31],
    ]  # fmt: skip


@pytest.mark.parametrize("grid", [GRID, TURNED])
def test_another_coordinate_system(grid: Affine, tmp_path: Path) -> None:
    """Polygons in longitude and latitude: the edges of a very large one are curved in the scene."""
    a, b, c, d, e, f = grid
    small = shapely.transform(on_grid(shapely.Point(20, 20).buffer(9), grid), to_degrees)
    lon, lat = to_degrees(np.array([[c + 30 * a, f + 30 * e]]))[0]
    huge = shapely.Polygon([(lon - 30, lat + 0.001), (lon + 30, lat + 0.001), (lon, lat - 20)])
    col, row = np.meshgrid(np.arange(60) + 0.5, np.arange(40) + 0.5)
    centres = to_degrees(np.column_stack([(a * col + b * row + c).ravel(), (d * col + e * row + f).ravel()]))
    for polygon in (small, huge):
        path = write(tmp_path / "a.geojson", [polygon], {"n": [1]}, crs="EPSG:4326", grid=None)
        document = json.loads(path.read_text())
        del document["crs"]  # which then means longitude and latitude
        path.write_text(json.dumps(document))
        labels = open_labels(path, scene=scene_on(grid), class_field="n")
        inside = shapely.contains_xy(polygon, *centres.T).reshape(40, 60)
        clear = shapely.distance(polygon.boundary, shapely.points(centres)).reshape(40, 60) > 1e-7  # a thousandth pixel
        assert 50 < inside.sum() < 2400 and clear.mean() > 0.99
        np.testing.assert_array_equal(labels.array[clear] == 1, inside[clear])


def to_degrees(xy: np.ndarray) -> np.ndarray:
    return np.column_stack(rasterio.warp.transform("EPSG:32633", "EPSG:4326", xy[:, 0], xy[:, 1])[:2])


@settings(max_examples=25, deadline=None)
@given(
    corners=st.lists(st.tuples(st.integers(-300, 900), st.integers(-300, 700)), min_size=3, max_size=7, unique=True),
    tile=st.sampled_from([7, 1024]),
)
def test_any_ring_is_rasterized_as_its_valid_form(
    corners: list[tuple[int, int]], tile: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    polygon = shapely.Polygon(np.array(corners) / 10.03)
    path = write(tmp_path_factory.mktemp("ring") / "a.gpkg", [polygon, shapely.Point(0.5, 0.5)], {"n": [1, 2]})
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr("hypercaps.io.labels.rasterize._TILE", tile)
        warnings.simplefilter("ignore", DataWarning)  # self-intersections, polygons without a centre, a point inside
        try:
            found = open_labels(path, scene=scene_on(), class_field="n").array == 1
        except LabelsError as error:
            assert "overlap" in str(error)
            return
    col, row = np.meshgrid(np.arange(60) + 0.5, np.arange(40) + 0.5)
    centres = shapely.points(col, row)
    clear = shapely.distance(shapely.make_valid(polygon), centres) > 1e-6
    clear |= shapely.distance(polygon.exterior, centres) > 1e-6
    clear[0, 0] = False
    inside = shapely.contains_xy(shapely.make_valid(polygon), col, row)
    np.testing.assert_array_equal(found[clear], inside[clear])


def test_large_files_are_read_near_the_scene_with_the_same_class_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Class numbers do not depend on which features a scene needs."""
    far = [shapely.box(1000 * n, 1000, 1000 * n + 5, 1005) for n in range(3)]
    for suffix in ("gpkg", "shp", "fgb"):
        path = write(tmp_path / f"a.{suffix}", [*far, *SQUARES], {"kind": ["apple", "zebra", "moss", *KINDS]})
        with pytest.warns(DataWarning, match=f"a.{suffix}: 6 polygons: 3 outside the scene, 3 used"):
            whole = open_labels(path, scene=scene_on(), class_field="kind")
        monkeypatch.setattr(vector_layer, "LARGE", 100)
        with pytest.warns(DataWarning, match=f"a.{suffix}: 6 polygons: 3 outside the scene, 3 used"):
            near = open_labels(path, scene=scene_on(), class_field="kind")
        np.testing.assert_array_equal(near.array, whole.array)
        assert names(near) == names(whole) == [(3, "soil"), (4, "tree"), (5, "water")]
        monkeypatch.undo()


# Overlaps, and features without pixels


def test_overlaps_of_different_classes_are_left_unlabelled_with_a_warning(tmp_path: Path) -> None:
    shapes = [shapely.box(0, 0, 4, 4), shapely.box(2, 0, 6, 4), shapely.box(3, 0, 4, 10), shapely.box(1, 0, 3, 2)]
    path = write(tmp_path / "a.gpkg", shapes, {"kind": ["a", "b", "c", "a"]})
    with pytest.warns(DataWarning) as caught:
        labels = open_labels(path, scene=scene_on(), class_field="kind")
    assert "left unlabelled (a and b: 8, a and c: 4)" in str(caught[0].message)
    assert str(caught[1].message) == "a.gpkg: 4 polygons: 1 in pixels of other features, 3 used"
    assert labels.array[0].tolist()[:7] == [1, 1, 0, 0, 2, 2, 0] and labels.array[4].tolist()[:5] == [0, 0, 0, 3, 0]
    assert labels.groups is not None
    assert labels.groups[0].tolist()[:7] == [1, 1, 0, 0, 2, 2, 0]  # of one class: the first feature's
    assert ((labels.groups > 0) == (labels.array > 0)).all()


def test_polygons_without_a_centre_and_features_without_a_class_or_geometry(tmp_path: Path) -> None:
    shapes = [
        *SQUARES,
        shapely.box(20.6, 20.6, 20.9, 20.9),
        shapely.box(3.2, 3.2, 3.4, 3.4),
        None,
        shapely.box(50, 30, 51, 31),
    ]
    path = write(tmp_path / "a.gpkg", shapes, {"kind": [*KINDS, "tree", "tree", "tree", None]})
    with pytest.warns(DataWarning) as caught:
        labels = open_labels(path, scene=scene_on(), class_field="kind")
    assert [str(one.message) for one in caught] == [
        "a.gpkg: 7 polygons: 1 without a geometry, 1 without a class, 2 too small to contain the centre of a pixel, "
        "3 used"
    ]
    assert sum(labels.counts().values()) == 16 + 28 + 120


def test_a_polygon_that_intersects_itself_is_repaired(tmp_path: Path) -> None:
    bow_tie = shapely.Polygon([(0, 0.1), (10, 10.2), (10.3, 0.2), (0, 10)])
    path = write(tmp_path / "a.gpkg", [bow_tie], {"n": [1]})
    with pytest.warns(DataWarning, match="1 polygon that intersected itself repaired"):
        labels = open_labels(path, scene=scene_on(), class_field="n")
    col, row = np.meshgrid(np.arange(60) + 0.5, np.arange(40) + 0.5)
    np.testing.assert_array_equal(labels.array == 1, shapely.contains_xy(shapely.make_valid(bow_tie), col, row))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_coordinates_that_are_not_finite_or_too_large(bad: float, tmp_path: Path) -> None:
    ring = np.array([(0, 0), (9, 0), (9, 9), (0, 0)], dtype=float)
    ring[1, 1] = bad
    with np.errstate(invalid="ignore"):
        path = write(tmp_path / "a.fgb", [SQUARES[0], shapely.Polygon(ring)], {"n": [1, 2]}, SPATIAL_INDEX="NO")
    with pytest.raises(LabelsError, match=r"feature 2 of .*a.fgb has coordinates that are not finite"):
        open_labels(path, scene=scene_on(), class_field="n")


def test_huge_coordinates(tmp_path: Path) -> None:
    whole = shapely.box(-1e25, -1e25, 1e25, 1e25)
    path = write(tmp_path / "a.gpkg", [whole, shapely.LineString([(-1e20, 1), (1e20, 1)])], {"n": [1, 0]}, grid=None)
    with pytest.warns(DataWarning, match="without a class"):
        assert (open_labels(path, scene=scene_on(), class_field="n").array == 1).all()
    degrees = write(tmp_path / "b.gpkg", [whole], {"n": [1]}, grid=None, crs="EPSG:4326")
    assert (open_labels(degrees, scene=scene_on(), class_field="n").array == 1).all()


def test_labels_outside_the_scene_and_empty_files(tmp_path: Path) -> None:
    scene = scene_on()
    path = write(tmp_path / "a.gpkg", [shapely.box(500, 500, 510, 510)], {"n": [1]})
    with pytest.raises(
        LabelsError, match=r"no feature of .*a.gpkg lies in scene 's'.*the features lie at x .* the scene at x "
    ):
        open_labels(path, scene=scene, class_field="n")
    path = write(tmp_path / "b.gpkg", [shapely.box(5.1, 5.1, 5.2, 5.2)], {"n": [1]})
    with pytest.raises(LabelsError, match=r"no feature of .* labels a pixel.*1 polygon: 1 too small"):
        open_labels(path, scene=scene, class_field="n")
    path = write(tmp_path / "c.gpkg", [shapely.box(0, 0, 2, 2)] * 2, {"n": [1, 2]})
    with pytest.raises(LabelsError, match="overlap with other classes"), pytest.warns(DataWarning, match="overlap"):
        open_labels(path, scene=scene, class_field="n")
    for suffix in DRIVERS:
        path = write(tmp_path / f"d.{suffix}", [], {"kind": [""]} if suffix == "x" else {}, geometry_type="Polygon")
        with pytest.raises(LabelsError):
            open_labels(path, scene=scene)
    with pytest.raises(LabelsError, match="name the scene"):
        open_labels(tmp_path / "a.gpkg")


# Coordinate systems


def test_a_coordinate_system_on_one_side_only(tmp_path: Path) -> None:
    with_crs = write(tmp_path / "a.gpkg", SQUARES, {"kind": KINDS})
    without_crs = write(tmp_path / "b.shp", SQUARES, {"kind": KINDS}, crs=None)
    assert not (tmp_path / "b.prj").exists()
    with pytest.raises(LabelsError, match=r"b.shp has no coordinate system but scene 's' lies in EPSG:32633"):
        open_labels(without_crs, scene=scene_on(), class_field="kind")
    for scene in (scene_on(crs=None), scene_on(None, crs=None)):
        with pytest.raises(LabelsError, match="lies in EPSG:32633 but scene 's' has no coordinate system"):
            open_labels(with_crs, scene=scene, class_field="kind")
    with pytest.warns(DataWarning, match="assumed to be the same"):
        labels = open_labels(without_crs, scene=scene_on(crs=None), class_field="kind")
    np.testing.assert_array_equal(labels.array, open_labels(with_crs, scene=scene_on(), class_field="kind").array)


def test_labels_of_a_swath_scene(tmp_path: Path) -> None:
    """The lookup table flips the swath and contains each of its pixels twice."""
    rows, cols = np.mgrid[0:40, 0:60]
    lookup = Lookup((19 - rows // 2).astype(np.int32), cols.astype(np.int32), "EPSG:32633", GRID)
    lookup.rows[:, 50:] = lookup.cols[:, 50:] = -1
    scene = Scene((20, 60, 2), np.dtype("f4"), scene_on(shape=(20, 60)).reader, name="swath", lookup=lookup)
    path = write(tmp_path / "a.gpkg", [shapely.box(0, 0, 5, 4), shapely.box(48, 0, 55, 3)], {"kind": ["b", "a"]})
    labels = open_labels(path, scene=scene, class_field="kind")
    expected = np.zeros((20, 60), dtype=int)
    expected[18:, :5], expected[18:, 48:50] = 2, 1
    np.testing.assert_array_equal(labels.array, expected)
    assert labels.groups is not None
    np.testing.assert_array_equal(labels.groups, np.array([0, 2, 1])[expected])
    labels.check_fits(scene)


def test_a_swath_pixel_gets_the_majority_class_of_its_grid_pixels() -> None:
    lookup = Lookup(np.zeros((1, 6), np.int32), np.array([[0, 0, 0, 1, 1, -1]], np.int32), "EPSG:4326", GRID)
    swath = grid_to_swath(np.array([[3, 3, 5, 3, 5, 9]], np.int16), lookup, (1, 3))
    assert swath.dtype == np.int16 and swath.tolist() == [[3, 0, 0]]
    assert grid_to_swath(np.zeros((1, 6), np.int16), lookup, (1, 3)).tolist() == [[0, 0, 0]]


# Classes


def classes_of(values: list[Any], tmp_path: Path, suffix: str = "gpkg", **fields: list[Any]) -> Labels:
    shapes = [shapely.box(6 * n, 0, 6 * n + 4, 4) for n in range(len(values))]
    path = write(tmp_path / f"c.{suffix}", shapes, {"kind": values, **fields})
    return open_labels(path, scene=scene_on(), class_field="kind")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["water", "soil", "water", "Äcker"], [(1, "soil"), (2, "water"), (3, "Äcker")]),
        ([3, 7, 3], [(3, "class 3"), (7, "class 7")]),
        ([3.0, 7.0], [(3, "class 3"), (7, "class 7")]),
        (["3", "10", "3"], [(3, "class 3"), (10, "class 10")]),  # numbers that were stored as text
        (["3", "a", "10"], [(1, "10"), (2, "3"), (3, "a")]),
        ([3301010000, 400000, 3301010000], [(1, "400000"), (2, "3301010000")]),  # codes too large to be labels
    ],
)
def test_names_and_numbers(values: list[Any], expected: list[tuple[int, str]], tmp_path: Path) -> None:
    assert names(classes_of(values, tmp_path)) == expected


@pytest.mark.parametrize("values", [[0, 4], ["", "4"], [None, "4"], [np.nan, 4.0], ["0", "4"], ["  ", "4"]])
def test_empty_values_and_zero_are_no_class(values: list[Any], tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="2 polygons: 1 without a class, 1 used"):
        assert names(classes_of(values, tmp_path)) == [(4, "class 4")]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([1.5, 2.0], "holds fractions"),
        ([-1, 2], "holds -1: class numbers from 1 up"),
        ([0, 0], "is empty"),
        (["tree", "so\x02il"], "no class name"),
    ],
)
def test_values_that_are_no_classes(values: list[Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match=sentence):
        classes_of(values, tmp_path)


def test_class_names_from_another_field(tmp_path: Path) -> None:
    labels = classes_of([2, 5, 2], tmp_path, kind_name=["Reed", "Lake", "Reed"])
    assert names(labels) == [(2, "Reed"), (5, "Lake")]
    labels = classes_of([2, 5, 2], tmp_path, kind_name=["Reed", "Lake", "Bog"])  # a number with two names gets none
    assert names(labels) == [(2, "class 2"), (5, "Lake")]


def test_colours_from_a_field(tmp_path: Path) -> None:
    labels = classes_of(["a", "b", "c"], tmp_path, Color=["#0a141E", "1, 2,3", "blue"])
    assert [entry.color for entry in labels.legend][:2] == [(10, 20, 30), (1, 2, 3)]
    assert labels.legend.entries[2].color not in {(10, 20, 30), (1, 2, 3)}


STYLE = """<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>
<qgis version="3.34"><renderer-v2 attr="kind" type="categorizedSymbol"><categories>
<category value="1" label="Reed &amp; rush" symbol="0"/><category value="2" label="" symbol="1"/>
<category value="" label="else" symbol="1"/></categories><symbols>
<symbol name="0" type="fill"><layer class="SimpleFill"><Option type="Map">
<Option name="border_color" value="9,9,9,255"/><Option name="color" value="10,20,30,255,rgb:0.1,0.2,0.3,1"/></Option>
</layer></symbol>
<symbol name="1" type="line"><layer class="SimpleLine"><prop k="line_color" v="1,2,3,255"/></layer></symbol>
</symbols></renderer-v2></qgis>"""


def test_a_qgis_style_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.qml").write_text(STYLE)
    labels = classes_of([1, 2, 3], tmp_path)
    assert names(labels) == [(1, "Reed & rush"), (2, "class 2"), (3, "class 3")]
    assert [entry.color for entry in labels.legend][:2] == [(10, 20, 30), (1, 2, 3)]
    assert parse_style(STYLE, "other") == {} and parse_style(STYLE[:300], "kind") == {}
    assert parse_style(STYLE.replace("categorizedSymbol", "RuleRenderer"), "kind") == {}


@pytest.mark.parametrize(
    "doctype",
    [
        "<!DOCTYPE qgis [<!ENTITY x 'Water'>]>",
        "<!DOCTYPE qgis PUBLIC 'a' 'b' [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>",
        "<!DOCTYPE qgis PUBLIC 'a' 'b'><!ENTITY x 'Water'>",
    ],
)
def test_styles_with_entities_are_not_read(doctype: str) -> None:
    assert parse_style(doctype + STYLE.partition("\n")[2].replace("Reed", "&x;"), "kind") == {}


def test_formats_of_colours() -> None:
    assert read_color(" #FF8000 ") == (255, 128, 0) and read_color("255,128,0,255") == (255, 128, 0)
    assert read_color("300,1,1") is None and read_color("red") is None and read_color("") is None


# The class field


def layer_with(**fields: str) -> VectorLayer:
    return VectorLayer(Path("x.gpkg"), "GPKG", "x", "Polygon", None, fields, 1, Path("x.gpkg"), None)


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [
        ({"fid": "int64", "landcover": "object"}, "landcover"),
        ({"id": "int32", "kind": "object", "area_m2": "float64", "color": "object"}, "kind"),
        ({"classId": "int32", "className": "object"}, "classId"),
        ({"level_1_id": "int32", "level_1": "object"}, "level_1_id"),
        ({"region": "object", "class": "int64", "comment": "object"}, "class"),
    ],
)
def test_the_only_candidate_field_is_chosen(fields: dict[str, str], chosen: str) -> None:
    with pytest.warns(DataWarning, match=f"taken from the field {chosen!r}"):
        assert choose_fields(layer_with(**fields), None).field == chosen


def test_otherwise_the_fields_are_listed() -> None:
    for fields in ({"level_1": "object", "level_2": "object"}, {"id": "int32", "height": "float64"}):
        with pytest.raises(LabelsError, match=r"which field .*: name one with --class-field"):
            choose_fields(layer_with(**fields), None)
    with pytest.raises(LabelsError, match=r"no field 'Kind' .*: it has kind \(text\), n \(whole numbers\)"):
        choose_fields(layer_with(kind="object", n="int32", when="datetime64[ms]"), "Kind")
    with pytest.raises(LabelsError, match="no field of text or numbers"):
        choose_fields(layer_with(when="datetime64[ms]"), None)


def test_the_field_is_for_vectors_only(tmp_path: Path) -> None:
    np.save(tmp_path / "gt.npy", np.ones((40, 60), int))
    with pytest.raises(LabelsError, match=r"class field 'kind' was given but .*gt.npy has no fields"):
        open_labels(tmp_path / "gt.npy", class_field="kind")
