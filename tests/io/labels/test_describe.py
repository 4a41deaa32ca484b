"""``hypercaps info`` on vector labels: classes and their numbers of features."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.pipeline.describe import describe
from support.vectors import SQUARES, write

FOUR = [*SQUARES, SQUARES[0]]


def test_classes_and_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gpkg", FOUR, {"kind": ["tree", "soil", "tree", None]})
    about = describe(str(path))
    facts = about.to_json()
    assert (facts["class_field"], facts["without_class"]) == ("kind", 1)
    assert facts["classes"] == [
        {"label": 1, "name": "soil", "color": [139, 90, 43], "features": 1},
        {"label": 2, "name": "tree", "color": [20, 83, 45], "features": 2},
    ]
    assert about.counts == {1: 1, 2: 2} and about.counted == "features"
    shown = CliRunner().invoke(app, ["info", str(path), "--class-field", "kind"])
    assert shown.exit_code == 0 and "soil  1 feature\n" in shown.output and "tree  2 features" in shown.output


def test_several_possible_fields(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gpkg", FOUR, {"kind": ["tree", "soil", "tree", "soil"], "owner": list("abcd")})
    facts = describe(str(path)).to_json()
    assert facts["possible_class_fields"] == ["kind (soil 2, tree 2)", "owner (a 1, b 1, c 1, d 1)"]
    assert facts["class_field"] is None and "classes" not in facts and facts["features"] == 4
    shown = CliRunner().invoke(app, ["info", str(path), "--class-field", "owner", "--json"])
    assert [one["name"] for one in json.loads(shown.stdout)["classes"]] == ["a", "b", "c", "d"]
    with pytest.raises(LabelsError, match="no field 'sort'"):
        describe(str(path), class_field="sort")
    with pytest.raises(SceneError, match="--class-field is for polygons"):
        describe("indian-pines", class_field="kind")


def test_values_that_are_no_classes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gpkg", FOUR, {"kind": [1, 2, 3, -1]})
    with pytest.warns(DataWarning, match=r"classes can't be listed: .* holds -1"):
        assert describe(str(path)).to_json()["features"] == 4


def test_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("row,col,x,y,class\n1,2,3,4,a\n1,3,3,4,b\n")
    facts = describe(str(tmp_path / "a.csv")).to_json()
    assert (facts["format"], facts["features"], facts["fields"]) == ("CSV", 2, ["class"])
    assert facts["coordinates"] == "x and y in the coordinate system of the scene"


def test_geojson_that_names_no_coordinate_system(tmp_path: Path) -> None:
    point = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [3, 4]}, "properties": {"kind": "a"}}
    (tmp_path / "a.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [point]}))
    coordinates = describe(str(tmp_path / "a.geojson")).to_json()["coordinates"]
    assert coordinates == "longitude and latitude; columns and rows for a scene without a coordinate system"
