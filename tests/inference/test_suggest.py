"""Suggested pixels: in the largest uncertain areas, spread out, and in files that a GIS reads."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import rasterio
import shapely

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.grid import Lookup
from hypercaps.data.labels import Legend, Suggestion
from hypercaps.data.scene import Scene
from hypercaps.data.window import tile_windows
from hypercaps.errors import LabelsError, OutputError, SceneError
from hypercaps.inference.predict import MappedWindow
from hypercaps.inference.suggest import KEPT, suggest
from hypercaps.io.open import open_labels
from hypercaps.io.writers.points import write_points
from support.command import hypercaps
from support.scenes import make_cube

LEGEND = Legend.of([1, 4, 9], ["water", "soil", "tree"])
GRID = (10.0, 0.0, 366000.0, 0.0, -10.0, 5809600.0)


def windows(scores: np.ndarray, side: int = 32) -> list[MappedWindow]:
    whole = Scene.from_array(np.ones((*scores.shape[:2], 1), np.float32)).whole
    confidence, classes = scores.max(axis=2).astype(np.float32), np.zeros(scores.shape[:2], np.int16)
    return [
        MappedWindow(at, classes[at.rows, at.cols], confidence[at.rows, at.cols], scores[at.rows, at.cols].astype("f4"))
        for at in tile_windows(whole, side)
    ]


def confident(rows: int, cols: int, number: int = 0) -> np.ndarray:
    scores = np.full((rows, cols, 3), 0.01)
    scores[:, :, number] = 0.99
    return scores


def test_the_most_uncertain_pixel_comes_first_with_both_classes() -> None:
    scores = confident(40, 40)
    scores[7, 30] = (0.2, 0.5, 0.45)
    first = suggest(windows(scores), LEGEND, 3)[0]
    assert (first.rank, first.row, first.col, first.first.name, first.second.name) == (1, 7, 30, "soil", "tree")
    assert first.confidence == pytest.approx(0.5) and first.margin == pytest.approx(0.05)


def test_an_uncertain_area_comes_before_a_border_that_is_more_uncertain() -> None:
    scores = confident(60, 60)
    scores[:, 30] = (0.5, 0.499, 0.1)  # between two fields of one class
    scores[5:17, 5:17] = (0.6, 0.3, 0.1)
    first = suggest(windows(scores), LEGEND, 1)[0]
    assert 7 <= first.row < 15 and 7 <= first.col < 15  # inside, where a label speaks for most of it


def test_a_model_that_is_sure_of_everything_suggests_where_it_is_least_sure() -> None:
    scores = np.zeros((40, 40, 3))
    scores[:, :, 0], scores[20:24, 20:24, 1] = 1.0, 1e-9
    first = suggest(windows(scores), LEGEND, 1)[0]
    assert 20 <= first.row < 24 and 20 <= first.col < 24


def test_points_are_spread_over_what_is_uncertain() -> None:
    rng = np.random.default_rng(0)
    scores = confident(100, 100)
    scores[:, 50:] = confident(100, 50, 1)
    scores[20:80, :50, 2] = scores[20:80, 50:, 2] = 0.6
    scores += 0.001 * rng.random(scores.shape)
    found = suggest(windows(scores), LEGEND, 10)
    places = np.array([(s.row, s.col) for s in found])
    apart = np.hypot(*(places[:, None] - places).transpose(2, 0, 1))[~np.eye(10, dtype=bool)]
    assert apart.min() > 5 and ((places[:, 0] >= 20) & (places[:, 0] < 80)).all()
    assert sum(s.first.name == "soil" for s in found) == 5
    assert [s.rank for s in found] == list(range(1, 11))


def test_points_in_small_fields_keep_away_from_each_other_and_from_labels() -> None:
    scores = confident(120, 120)
    scores[50:58, 50:58] = (0.2, 0.5, 0.4)
    labelled = np.zeros((120, 120), dtype=bool)
    labelled[54, 54] = True
    found = suggest(windows(scores), LEGEND, 3, labelled=labelled)
    places = np.array([(54, 54), *((point.row, point.col) for point in found)])
    distances = np.linalg.norm(places[:, None] - places, axis=2)
    assert distances[np.triu_indices(4, k=1)].min() > 3


def test_all_uncertain_pixels_are_suggested_if_there_are_no_more() -> None:
    scores = np.full((300, 300, 3), np.nan)  # cells of 3 x 3 pixels
    for row, col in ((10, 10), (10, 11), (299, 299)):
        scores[row, col] = (0.2, 0.5, 0.4)
    found = suggest(windows(scores, 300), LEGEND, 10)
    assert {(point.row, point.col) for point in found} == {(10, 10), (10, 11), (299, 299)}


def test_a_point_speaks_only_for_what_is_mapped_as_its_class() -> None:
    scores = confident(60, 60)
    scores[20:28, 20:28] = (0.6, 0.3, 0.1)
    scores[28:36, 20:28] = (0.3, 0.6, 0.1)
    one, other = suggest(windows(scores), LEGEND, 2)
    assert {one.first.name, other.first.name} == {"water", "soil"} and abs(one.row - other.row) < 15
    labelled = np.zeros((60, 60), bool)
    labelled[24, 24] = True
    assert suggest(windows(scores), LEGEND, 1, labelled=labelled)[0].first.name == "soil"


def test_a_label_outside_of_what_is_mapped_speaks_for_every_class() -> None:
    scores = confident(60, 60)
    scores[10:18, 10:18] = (0.6, 0.35, 0.1)
    scores[40:47, 40:47] = (0.3, 0.6, 0.1)
    labelled = np.zeros((60, 60), bool)
    labelled[14, 14] = True
    scores[labelled] = np.nan
    assert suggest(windows(scores), LEGEND, 1)[0].first.name == "water"
    assert suggest(windows(scores), LEGEND, 1, labelled=labelled)[0].first.name == "soil"


def test_labelled_pixels_and_their_neighbours_are_not_suggested() -> None:
    scores = confident(60, 60)
    scores[20:24, 20:24] = scores[50, 50] = (0.5, 0.45, 0.1)
    labelled = np.zeros((60, 60), bool)
    labelled[20:24, 20:23] = True
    found = suggest(windows(scores), LEGEND, 1, labelled=labelled)
    assert (found[0].row, found[0].col) == (50, 50)
    with pytest.raises(SceneError, match="no pixel left to suggest"):
        suggest(windows(scores), LEGEND, 1, labelled=np.ones((60, 60), bool))


def test_pixels_without_data_are_never_suggested() -> None:
    scores = np.full((8, 8, 3), np.nan)
    scores[2, 3] = scores[6, 6] = (0.5, 0.4, 0.1)
    found = suggest(windows(scores), LEGEND, 20)
    assert {(s.row, s.col) for s in found} == {(2, 3), (6, 6)}


def test_a_large_map_keeps_a_bounded_number_of_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    from hypercaps.inference import suggest as module

    largest = 0
    thinned = module._thinned

    def watched(found: module._Candidates, most: int) -> module._Candidates:
        nonlocal largest
        kept = thinned(found, most)
        largest = max(largest, len(kept))
        return kept

    monkeypatch.setattr(module, "_thinned", watched)
    scores = confident(600, 400) + 0.001 * np.random.default_rng(1).random((600, 400, 3))
    scores[100:140, 300:340, 1] = 0.9
    found = suggest(windows(scores, 16), LEGEND, 5)
    assert largest <= KEPT
    assert 110 < found[0].row < 130 and 310 < found[0].col < 330
    assert found == suggest(windows(scores, 16), LEGEND, 5)


# ---- files -----------------------------------------------------------------------------------------------------------


def two_suggestions() -> list[Suggestion]:
    water, soil, tree = LEGEND.entries
    return [Suggestion(1, 2, 3, water, soil, 0.61, 0.02), Suggestion(2, 9, 5, tree, water, 0.7, 0.1)]


def georeferenced() -> Scene:
    return replace(Scene.from_array(np.ones((12, 10, 1), np.float32), name="s"), crs="EPSG:32633", transform=GRID)


def test_a_geopackage_has_points_in_the_scenes_system(tmp_path: Path) -> None:
    write_points(tmp_path / "p.gpkg", two_suggestions(), georeferenced())
    meta, _, geometry, fields = pyogrio.raw.read(tmp_path / "p.gpkg")
    assert meta["crs"] == "EPSG:32633"
    columns = dict(zip(meta["fields"], fields, strict=True))
    assert list(columns) == ["rank", "class", "second", "confidence", "margin", "row", "col"]
    assert columns["class"].tolist() == ["water", "tree"] and columns["second"].tolist() == ["soil", "water"]
    assert shapely.get_coordinates(shapely.from_wkb(geometry)).tolist() == [[366035, 5809575], [366055, 5809505]]
    assert [path.name for path in tmp_path.iterdir()] == ["p.gpkg"]


def test_geojson_has_longitude_and_latitude(tmp_path: Path) -> None:
    write_points(tmp_path / "p.geojson", two_suggestions(), georeferenced())
    features = json.loads((tmp_path / "p.geojson").read_text())["features"]
    lon, lat = features[0]["geometry"]["coordinates"]
    projected = rasterio.warp.transform("EPSG:4326", "EPSG:32633", [lon], [lat])
    assert (projected[0][0], projected[1][0]) == pytest.approx((366035, 5809575), abs=0.1)
    assert features[1]["properties"]["rank"] == 2


def test_csv_has_coordinates_where_there_are_any(tmp_path: Path) -> None:
    write_points(tmp_path / "p.csv", two_suggestions(), georeferenced())
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["x"] == "366035.0" and (rows[1]["row"], rows[1]["col"], rows[1]["class"]) == ("9", "5", "tree")
    unreferenced = replace(georeferenced(), crs=None, transform=None)
    write_points(tmp_path / "q.csv", two_suggestions(), unreferenced)
    assert "x" not in (tmp_path / "q.csv").read_text().splitlines()[0].split(",")
    with pytest.raises(OutputError, match=r"has no coordinate system.*\.csv"):
        write_points(tmp_path / "q.gpkg", two_suggestions(), unreferenced)


def test_points_of_a_swath_use_its_lookup_table(tmp_path: Path) -> None:
    rows = np.full((20, 20), -1, np.int32)
    cols = rows.copy()
    rows[4:16, 5:15], cols[4:16, 5:15] = np.mgrid[0:12, 0:10]
    swath = replace(georeferenced(), crs=None, transform=None, lookup=Lookup(rows, cols, "EPSG:32633", GRID))
    write_points(tmp_path / "p.gpkg", two_suggestions(), swath)
    geometry = pyogrio.raw.read(tmp_path / "p.gpkg")[2]
    assert shapely.get_coordinates(shapely.from_wkb(geometry))[0].tolist() == [366085, 5809535]


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(trained: ConvCapsClassifier, tmp_path: Path) -> tuple[Path, Path]:
    trained.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "cube.npy", make_cube()[0])
    np.save(tmp_path / "gt.npy", make_cube()[1])
    (tmp_path / "waves.txt").write_text("\n".join(str(400 + 10 * i) for i in range(26)))
    return tmp_path / "model.safetensors", tmp_path / "cube.npy"


def test_suggest_writes_points_outside_the_labels(files: tuple[Path, Path], tmp_path: Path) -> None:
    options = ["--wavelengths", tmp_path / "waves.txt", "--labels", tmp_path / "gt.npy", "--n", 7]
    result = hypercaps("suggest", *files, "--out", tmp_path / "p.csv", *options)
    assert result.exit_code == 0, result.output
    assert "7 pixels to label next" in " ".join(result.output.split())
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels = make_cube()[1]
    assert len(rows) == 7 and len({row["class"] for row in rows}) > 1
    assert not any(labels[int(row["row"]), int(row["col"])] for row in rows)


def test_suggest_refuses_bad_output_names_in_one_sentence(files: tuple[Path, Path], tmp_path: Path) -> None:
    for name, sentence in (("p.gpkg", "no coordinate system"), ("p.txt", "must end in .csv or .geojson or .gpkg")):
        result = hypercaps("suggest", *files, "--wavelengths", tmp_path / "waves.txt", "--out", tmp_path / name)
        assert result.exit_code == 2 and sentence in " ".join(result.output.split()), result.output
        assert not (tmp_path / name).exists()


def test_the_predictions_of_suggest_are_no_labels(tmp_path: Path) -> None:
    """The points get an empty field for the user's classes; their predicted classes are never taken for labels."""
    scene, path = georeferenced(), tmp_path / "points.gpkg"
    write_points(path, two_suggestions(), scene, "kind")
    fields = dict(zip(pyogrio.read_info(path)["fields"], pyogrio.read_info(path)["dtypes"], strict=True))
    assert fields["kind"] == "object" and list(pyogrio.raw.read(path, columns=["kind"])[3][0]) == ["", ""]
    write_points(path, two_suggestions(), scene)
    with pytest.raises(LabelsError, match=r"which field of .* holds the class.*--class-field"):
        open_labels(path, scene=scene)
    with pytest.raises(OutputError, match="have a field 'Rank' already"):
        write_points(path, two_suggestions(), scene, "Rank")
