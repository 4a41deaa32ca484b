"""Points in CSV files: map coordinates, degrees, or rows and columns; and the tables that hypercaps writes itself."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import rasterio.warp

from hypercaps.data.labels import Labels, Legend, Suggestion
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, LabelsError
from hypercaps.io.labels import csv_points
from hypercaps.io.open import open_labels, open_mask
from hypercaps.io.writers.points import write_points
from support.vectors import GRID, names, scene_on

PIXELS = [(3, 5, "tree"), (3, 6, "soil"), (39, 59, "soil")]  # row, column, class


def unplaced() -> Scene:
    return scene_on(None, crs=None)


def written(path: Path, header: str, rows: list[tuple[object, ...]], delimiter: str = ",") -> Path:
    lines = [header, *(delimiter.join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def check(labels: Labels) -> None:
    assert names(labels) == [(1, "soil"), (2, "tree")]
    assert np.argwhere(labels.array).tolist() == [[row, col] for row, col, _ in PIXELS]
    assert labels.array[labels.array > 0].tolist() == [2, 1, 1]
    assert labels.groups is not None and labels.groups[labels.array > 0].tolist() == [1, 2, 3]  # each point is a unit


def map_points() -> list[tuple[object, ...]]:
    return [(GRID[2] + 10 * (col + 0.5), GRID[5] - 10 * (row + 0.5), kind) for row, col, kind in PIXELS]


def test_map_coordinates_are_those_of_the_scene(tmp_path: Path) -> None:
    check(open_labels(written(tmp_path / "a.csv", "X,Y,kind", map_points()), scene=scene_on(), class_field="kind"))
    check(
        open_labels(
            written(tmp_path / "a.csv", "Easting,Northing,kind", map_points()), scene=scene_on(), class_field="kind"
        )
    )
    with pytest.warns(DataWarning, match="classes are taken from the field 'class'"):
        check(open_labels(written(tmp_path / "b.csv", "x,y,class", map_points()), scene=scene_on()))


@pytest.mark.parametrize("header", ["POINT_X,POINT_Y,kind", "xcoord,ycoord,kind", "Coord_X,Coord_Y,kind"])
def test_names_of_columns_that_other_programs_write(header: str, tmp_path: Path) -> None:
    check(open_labels(written(tmp_path / "a.csv", header, map_points()), scene=scene_on(), class_field="kind"))


@pytest.mark.parametrize("header", ["lon,lat,kind", "Longitude,Latitude,kind"])
def test_longitude_and_latitude(header: str, tmp_path: Path) -> None:
    x, y, kinds = zip(*map_points(), strict=True)
    lon, lat = rasterio.warp.transform("EPSG:32633", "EPSG:4326", x, y)
    path = written(tmp_path / "a.csv", header, list(zip(lon, lat, kinds, strict=True)))
    check(open_labels(path, scene=scene_on(), class_field="kind"))
    path = written(tmp_path / "b.csv", "x,y,kind", list(zip(lon, lat, kinds, strict=True)))
    with pytest.raises(LabelsError, match=r"taken in its system, EPSG:32633; name the columns lon and lat"):
        open_labels(path, scene=scene_on(), class_field="kind")


@pytest.mark.parametrize("header", ["row,col,kind", "Row,Column,kind"])
@pytest.mark.parametrize("is_placed", [True, False])
def test_rows_and_columns_count_from_0(header: str, is_placed: bool, tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", header, PIXELS)
    check(open_labels(path, scene=scene_on() if is_placed else unplaced(), class_field="kind"))
    with pytest.warns(DataWarning, match="a.csv: 3 points: 1 outside the scene, 2 used"):
        open_labels(path, scene=scene_on(shape=(39, 60)), class_field="kind")


def test_tables_of_spreadsheets(tmp_path: Path) -> None:
    rows = [(f"{x:.1f}".replace(".", ","), f"{y:.1f}".replace(".", ","), kind) for x, y, kind in map_points()]  # type: ignore[str-bytes-safe]
    path = written(tmp_path / "a.csv", "\ufeffx;y;kind", [*rows, ("", "", "")], ";")
    check(open_labels(path, scene=scene_on(), class_field="kind"))
    quoted = [(row, col, f'"{kind}"') for row, col, kind in PIXELS]
    check(
        open_labels(written(tmp_path / "b.tsv", "row\tcol\tkind", quoted, "\t"), scene=scene_on(), class_field="kind")
    )


def test_cells_that_were_written_as_text_for_spreadsheets(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "row,col,kind", [(3, 5, "'=bare"), (4, 5, "'quoted"), (5, 5, "-")])
    labels = open_labels(path, scene=scene_on(), class_field="kind")
    assert [name for _, name in names(labels)] == ["'quoted", "-", "=bare"]


def test_a_mask_of_points(tmp_path: Path) -> None:
    inside = open_mask(written(tmp_path / "a.csv", "row,col", [row[:2] for row in PIXELS]), unplaced())
    assert np.argwhere(inside).tolist() == [[row, col] for row, col, _ in PIXELS]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x,y,kind\n1,2,a\n3,four,b\n", r"line 3 of .*a.csv has 'four' as y: a number is expected"),
        ("x,y,kind\n1,,a\n", "line 2 of .* has '' as y"),
        ("x,y,kind\n1,nan,a\n", "has 'nan' as y"),
        ("x,y,kind\n\n\n1_0,2,a\n", "line 4 of .* has '1_0' as x"),
        ("row,col,kind\n1.5,2,a\n", "has '1.5' as row: a whole number"),
        ("x,y,kind\n1,2\n", "line 2 of .* has 2 cells but its header has 3"),
        (
            "north,east,kind\n1,2,a\n",
            r"columns north, east, kind: two columns named x and y .* row and column .* rename",
        ),
        ("row col kind\n1 2 a\n", "has one column, 'row col kind': .* commas, semicolons or tabs"),
        ("x,y,kind,kind\n1,2,a,b\n", "two columns of one name"),
        ("x,y,kind\n", "holds no feature"),
        ("\n", "is empty"),
        ('x,y,kind\n1,2,"a\n', r"line 2 of .* can't be read"),
        (f"x,y,kind\n1,2,{'a' * 200_000}\n", r"line 2 of .* can't be read"),
        ("x,y,kind\n1,2,\x1b[31m\n", "is no class name"),
        ("x,y,\x1b[31m\n1,2,3\n", "does not begin with the names of its columns"),
    ],
)
def test_tables_that_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(LabelsError, match=sentence):
        open_labels(tmp_path / "a.csv", scene=scene_on(), class_field="kind")


def test_text_in_another_encoding_and_long_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_bytes("x,y,kind\n1,2,Wüste\n".encode("latin-1"))
    with pytest.raises(LabelsError, match="save it again as 'CSV UTF-8'"):
        open_labels(tmp_path / "a.csv", scene=scene_on(), class_field="kind")
    (tmp_path / "b.csv").write_bytes("x;y;kind\n1;2;a\n".encode("utf-16"))  # "Unicode text" of spreadsheets
    with pytest.raises(LabelsError, match=r"b.csv is not text in UTF-8: save it again as 'CSV UTF-8'"):
        open_labels(tmp_path / "b.csv", scene=scene_on(), class_field="kind")
    monkeypatch.setattr(csv_points, "_MAX_BYTES", 10)
    with pytest.raises(LabelsError, match="CSV is read up to 10"):
        open_labels(tmp_path / "a.csv", scene=scene_on(), class_field="kind")


def test_a_table_of_too_many_cells_is_refused_before_they_take_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell of two bytes takes fifty as text: 48 MB of them took 3 GB."""
    path = written(tmp_path / "a.csv", "X,Y,kind", map_points())
    monkeypatch.setattr(csv_points, "_MAX_CELLS", 12)
    check(open_labels(path, scene=scene_on(), class_field="kind"))
    monkeypatch.setattr(csv_points, "_MAX_CELLS", 11)
    with pytest.raises(LabelsError, match=r"a.csv has more than 11 cells: save it as a GeoPackage"):
        open_labels(path, scene=scene_on(), class_field="kind")


@pytest.mark.parametrize("is_placed", [True, False])
def test_suggested_points_come_back_after_their_class_was_entered(is_placed: bool, tmp_path: Path) -> None:
    scene = scene_on() if is_placed else unplaced()
    soil, tree = Legend.of([1, 2], ["soil", "tree"])
    points = [Suggestion(n + 1, row, col, tree, soil, 0.5, 0.1) for n, (row, col, _) in enumerate(PIXELS)]
    path = tmp_path / "p.csv"
    write_points(path, points, scene, "label")
    with (
        pytest.raises(LabelsError, match=r"the field 'label' of .* is empty: enter the class"),
        pytest.warns(DataWarning),
    ):
        open_labels(path, scene=scene)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, (_, _, kind) in zip(rows[:2], PIXELS, strict=False):  # the third was not visited
        row["label"] = kind
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with pytest.warns(DataWarning) as caught:
        labels = open_labels(path, scene=scene)
    assert str(caught[-1].message) == "p.csv: 3 points: 1 without a class, 2 used"
    assert names(labels) == [(1, "soil"), (2, "tree")] and np.argwhere(labels.array).tolist() == [[3, 5], [3, 6]]


def test_class_names_that_look_like_formulas_come_back(tmp_path: Path) -> None:
    kinds = ['=HYPERLINK("http://x","y")', "'@home", "-x", "water"]
    first, second, third, fourth = Legend.of([1, 2, 3, 4], kinds)
    entries = (first, second, third, fourth)
    points = [Suggestion(k, k, k, entry, first, 0.5, 0.1) for k, entry in enumerate(entries, start=1)]
    write_points(tmp_path / "p.csv", points, scene_on())
    assert not any(cell[:1] in tuple("=+-@") for cell in _cells(tmp_path / "p.csv", "class"))
    labels = open_labels(tmp_path / "p.csv", scene=scene_on(), class_field="class")
    assert sorted(name for _, name in names(labels)) == sorted(kinds)


def _cells(path: Path, column: str) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row[column] for row in csv.DictReader(file)]
