from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import shapely

from hypercaps.data.grid import Lookup
from hypercaps.data.labels import DoubtfulLabel, Legend
from hypercaps.data.scene import Scene
from hypercaps.errors import OutputError
from hypercaps.inference.doubtful import doubtful_labels
from hypercaps.io.writers.points import doubtful_file, write_doubtful

LEGEND = Legend.of([2, 5, 9], ["water", "soil", "tree"])
GRID = (10.0, 0.0, 366000.0, 0.0, -10.0, 5809600.0)


def found() -> list[DoubtfulLabel]:
    pixels = np.array([3, 14, 25, 36, 47, 58])
    class_of = np.array([0, 1, 2, 0, 0, 1])
    probabilities = np.array(
        [
            [0.8, 0.1, 0.1],  # agrees
            [0.6, 0.3, 0.1],
            [0.9, 0.08, 0.02],
            [np.nan, np.nan, np.nan],  # never held out
            [0.35, 0.65, 0.0],
            [0.1, 0.4, 0.5],
        ],
        dtype=np.float32,
    )
    return doubtful_labels(pixels, class_of, probabilities, LEGEND, 10)


def test_labels_that_the_prediction_contradicts_are_ranked_by_the_margin() -> None:
    rows = found()
    assert [row.rank for row in rows] == [1, 2, 3, 4]
    # Equal doubts are in the order of pixels.
    assert [(row.row, row.col) for row in rows] == [(2, 5), (1, 4), (4, 7), (5, 8)]
    assert [row.doubt for row in rows] == pytest.approx([0.88, 0.3, 0.3, 0.1], abs=1e-6)
    assert (rows[0].given.name, rows[0].predicted.name) == ("tree", "water")


def test_nothing_is_doubtful_where_all_agree() -> None:
    assert doubtful_labels(np.array([1, 2]), np.array([0, 2]), np.eye(3)[[0, 2]], LEGEND, 10) == []


def georeferenced() -> Scene:
    return replace(Scene.from_array(np.ones((12, 10, 1), np.float32), name="s"), crs="EPSG:32633", transform=GRID)


def test_a_geopackage_of_doubtful_labels(tmp_path: Path) -> None:
    scene = georeferenced()
    path = tmp_path / doubtful_file(scene)
    assert path.name == "doubtful.gpkg"
    write_doubtful(path, found(), scene)
    meta, _, geometry, values = pyogrio.raw.read(path)
    columns = dict(zip(meta["fields"], values, strict=True))
    assert list(columns) == ["rank", "class", "predicted", "doubt", "row", "col"] and meta["crs"] == "EPSG:32633"
    assert columns["class"].tolist() == ["tree", "soil", "water", "soil"]
    assert columns["doubt"].tolist() == [0.88, 0.3, 0.3, 0.1]
    assert shapely.get_coordinates(shapely.from_wkb(geometry))[0].tolist() == [366055, 5809575]
    write_doubtful(path, [], scene)
    info = pyogrio.read_info(path, force_feature_count=True)
    assert info["features"] == 0 and list(info["fields"]) == list(columns)


def test_a_table_without_georeference(tmp_path: Path) -> None:
    scene = replace(georeferenced(), crs=None, transform=None)
    path = tmp_path / doubtful_file(scene)
    assert path.name == "doubtful.csv"
    write_doubtful(path, found(), scene)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"rank": "1", "class": "tree", "predicted": "water", "doubt": "0.88", "row": "2", "col": "5"}
    with pytest.raises(OutputError, match="no coordinate system"):
        write_doubtful(tmp_path / "d.gpkg", found(), scene)


def test_pixels_of_a_swath_are_where_the_map_shows_them_or_nearest(tmp_path: Path) -> None:
    rows = np.full((20, 20), -1, np.int32)
    cols = rows.copy()
    rows[4:16, 5:15], cols[4:16, 5:15] = np.mgrid[0:12, 0:10]
    rows[6, 10] = -1  # row 2, column 5 is not in the map: a neighbour is
    swath = replace(georeferenced(), crs=None, transform=None, lookup=Lookup(rows, cols, "EPSG:32633", GRID))
    write_doubtful(tmp_path / "d.gpkg", found(), swath)
    at = shapely.get_coordinates(shapely.from_wkb(pyogrio.raw.read(tmp_path / "d.gpkg")[2]))
    np.testing.assert_array_equal(at[1], [366000 + 95, 5809600 - 55])
    assert np.abs(at[0] - [366000 + 105, 5809600 - 65]).sum() == 10
