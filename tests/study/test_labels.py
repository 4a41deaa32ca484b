"""Studies whose labels are not on the scene's grid: polygons, and rasters with larger pixels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rasterio
from click.testing import Result
from rasterio.windows import Window

from support.command import hypercaps
from support.vectors import write_scene_and_labels

pytestmark = pytest.mark.xdist_group("processes")

SCENES = {
    "polygons": '{ name = "polygons", cube = "scene.tif", labels = "fields.gpkg", class_field = "kind" }',
    "coarse": '{ name = "coarse", cube = "scene.tif", labels = "coarse.tif" }',
}
LABELLED = {"polygons": 3 * 10 * 34, "coarse": 36 * 36}  # pixels of the scene
NAMES = {"polygons": ["soil", "tree", "water"], "coarse": ["class 1", "class 2", "class 3"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scene, its labels as polygons and in larger pixels, and a study of each kind of labels."""
    write_scene_and_labels(tmp_path)
    for name, scene in SCENES.items():
        (tmp_path / f"{name}.toml").write_text(
            f"scenes = [{scene}]\ntrain_shares = [0.1]\nrepeats = 2\n[methods.rbf-svm]\n"
        )
    return tmp_path


def run(folder: Path, kind: str, *options: object) -> Result:
    return hypercaps("study", folder / f"{kind}.toml", "--out", folder / "out", *options)


@pytest.mark.filterwarnings("always::hypercaps.errors.DataWarning")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["polygons", "coarse"])
def test_a_study_opens_its_labels_with_the_scene_and_the_class_field(folder: Path, kind: str, workers: int) -> None:
    result = run(folder, kind, "--workers", workers)
    # The warning is shown once, when the study starts, and not again by its runs.
    assert result.stderr.count("the nearest label of a pixel is taken") == (kind == "coarse"), result.output
    assert result.exit_code == 0 and "Missing" not in result.output, result.output
    records = json.loads((folder / "out" / "results.json").read_text())
    assert [(record["seed"], record["error"]) for record in records] == [(0, None), (1, None)]
    for record in records:
        assert record["oa"] > 90
        assert [row["name"] for row in record["per_class"]] == NAMES[kind]
        assert record["n_train"] + record["n_val"] + record["n_test"] == LABELLED[kind]
    assert [path.name for path in (folder / "out").glob("maps-*.png")] == [f"maps-{kind}-10pct.png"]


@pytest.mark.parametrize("cube", ["north.tif, south.tif", "@tiles.txt"])
def test_a_scene_of_a_study_can_be_several_tiles(folder: Path, cube: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with rasterio.open(folder / "scene.tif") as scene:
        half = scene.height // 2
        for name, row, height in (("north.tif", 0, half), ("south.tif", half, scene.height - half)):
            size = {"height": height, "transform": scene.transform @ rasterio.Affine.translation(0, row)}
            with rasterio.open(folder / name, "w", **(scene.profile | size)) as tile:
                tile.write(scene.read(window=Window(0, row, scene.width, height)))
    (folder / "tiles.txt").write_text("north.tif\nsouth.tif\n")
    study = folder / "polygons.toml"
    study.write_text(study.read_text().replace("scene.tif", cube))
    monkeypatch.chdir("/")  # tiles are relative to the study's file
    result = run(folder, "polygons")
    assert result.exit_code == 0 and "Missing" not in result.output, result.output


def test_labels_that_cant_be_opened_make_their_scene_missing(folder: Path) -> None:
    study = folder / "polygons.toml"
    study.write_text(study.read_text().replace('"kind"', '"sort"'))
    result = run(folder, "polygons")
    assert result.exit_code == 2, result.output
    assert "Missing polygons" in result.output and "sort" in result.output, result.output
