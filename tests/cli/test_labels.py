"""Polygons as labels on the command line: training, whole polygons per set, evaluation by class name, refusals."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import shapely
from click.testing import Result

from hypercaps.loading import load_model
from support.command import hypercaps, refused
from support.scenes import make_cube
from support.vectors import GRID, write

KINDS = ["reed", "birch", "sand"]  # the stripes of the scene from west to east, 12 columns each
FIELDS = [
    shapely.box(12 * stripe + 1, row, 12 * stripe + 11, row + 3) for stripe in range(3) for row in range(0, 36, 6)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A georeferenced scene, polygons for it, and a run on them."""
    folder = tmp_path_factory.mktemp("polygons")
    cube, _ = make_cube()
    with rasterio.open(
        folder / "scene.tif", "w", driver="GTiff", width=36, height=36, count=26, dtype="float32", crs="EPSG:32633",
        transform=rasterio.Affine(*GRID),
    ) as file:  # fmt: skip
        file.write(np.moveaxis(cube, -1, 0))
    kinds = [kind for kind in KINDS for _ in range(6)]
    write(folder / "fields.gpkg", FIELDS, {"kind": kinds, "code": [KINDS.index(kind) + 1 for kind in kinds]})
    result = hypercaps(
        "train", folder / "scene.tif", folder / "fields.gpkg", "--class-field", "kind", "--split", "polygons",
        "--train", 0.3, "--val", 0.15, "--method", "rbf-svm", "--seed", 5, "--out", folder / "run", "--no-map",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return folder


def test_training_on_whole_polygons(folder: Path) -> None:
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    assert metrics["split"] == "polygons" and metrics["oa"] > 95 and metrics["leakage"] < 0.5
    assert [row["name"] for row in metrics["per_class"]] == sorted(KINDS)
    assert (metrics["n_train"], metrics["n_val"], metrics["n_test"]) == (180, 90, 270)  # 2, 1 and 3 polygons of 30
    with np.load(folder / "run" / "split.npz") as split:
        polygons = [set(((split[name] // 36) // 6 + 6 * (split[name] % 36 // 12)).tolist()) for name in split.files]
    assert sum(map(len, polygons)) == 18 and not set.intersection(*polygons)
    classifier = load_model(folder / "run" / "model.safetensors")
    assert classifier.split_by == "polygons" and classifier.train == 0.3


def evaluate(folder: Path, *labels: Path, run: Path | None = None) -> dict[str, object]:
    model = (run or folder / "run") / "model.safetensors"
    result = hypercaps("evaluate", model, folder / "scene.tif", *labels, "--class-field", "kind", "--json", "-")
    assert result.exit_code == 0, result.output
    scores: dict[str, object] = json.loads(result.stdout)
    return scores


def test_evaluation_draws_the_same_polygons_again(folder: Path) -> None:
    scores = evaluate(folder, folder / "fields.gpkg")
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    assert {key: scores[key] for key in ("split", "n_test", "oa")} == {
        key: metrics[key] for key in ("split", "n_test", "oa")
    }


def test_evaluation_on_other_polygons_matches_class_names(folder: Path, tmp_path: Path) -> None:
    """Alone, sand would be class 1, which the model knows as birch."""
    path = write(tmp_path / "sand.geojson", [shapely.box(25, 4, 35, 6)], {"kind": ["sand"]})
    scores = evaluate(folder, path)
    assert scores["n_test"] == 20 and scores["oa"] == 100 and scores["split"] is None
    unknown = write(tmp_path / "heath.geojson", [shapely.box(25, 4, 35, 6)], {"kind": ["heath"]})
    model = folder / "run" / "model.safetensors"
    result = hypercaps("evaluate", model, folder / "scene.tif", unknown, "--class-field", "kind")
    refused(
        result, "hold classes that the model does not know, 4 heath: it knows 1 birch", nothing_at=tmp_path / "none"
    )


def test_several_label_files(folder: Path, tmp_path: Path) -> None:
    for kind, shapes in zip(KINDS, (FIELDS[:6], FIELDS[6:12], FIELDS[12:]), strict=True):
        write(tmp_path / f"{kind}.gpkg", shapes, {"kind": [kind] * 6})
    files = [tmp_path / f"{kind}.gpkg" for kind in KINDS]
    result = hypercaps(
        "train", folder / "scene.tif", *files, "--class-field", "kind", "--out", tmp_path / "run", "--no-map",
        "--method", "rbf-svm", "--split", "random",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["split"] == "random" and [row["name"] for row in metrics["per_class"]] == sorted(KINDS)
    again = evaluate(folder, *reversed(files), run=tmp_path / "run")  # its own test set, in whichever order
    assert (again["n_test"], again["oa"], again["split"]) == (metrics["n_test"], metrics["oa"], "random")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--class-field", "klass"], ["no field 'klass'", "kind (text), code (whole numbers)"]),
        ([], ["which field of", "--class-field"]),
        (
            ["--class-field", "kind", "--split", "rows"],
            ["no split 'rows': random, polygons, blocks, folds or none is expected"],
        ),
        (["--split", "polygons", "--split-file", "x.npz"], ["--split-file and --split were both given"]),
    ],
)
def test_refused_options(options: list[str], words: list[str], folder: Path, tmp_path: Path) -> None:
    args = ("train", folder / "scene.tif", folder / "fields.gpkg", "--out", tmp_path / "run", *options)
    refused(hypercaps(*args), *words, nothing_at=tmp_path / "run")


def test_labels_elsewhere_are_refused(folder: Path, tmp_path: Path) -> None:
    def train(labels: Path) -> Result:
        return hypercaps("train", folder / "scene.tif", labels, "--class-field", "kind", "--out", tmp_path / "run")

    nowhere = write(tmp_path / "nowhere.shp", FIELDS[:1], {"kind": ["reed"]}, crs=None)
    refused(train(nowhere), "nowhere.shp has no coordinate system", nothing_at=tmp_path / "run")
    far = write(tmp_path / "far.gpkg", [shapely.box(900, 900, 910, 910)], {"kind": ["reed"]})
    refused(train(far), "no feature of", "lies in scene 'scene'", nothing_at=tmp_path / "run")
    whole = (folder / "fields.gpkg").read_bytes()
    (tmp_path / "cut.gpkg").write_bytes(whole[: len(whole) // 2])
    refused(train(tmp_path / "cut.gpkg"), "truncated, damaged", nothing_at=tmp_path / "run")


def test_the_commands_of_the_page_on_labels_work(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder / "scene.tif", "scene.tif")
    shutil.copy(folder / "fields.gpkg", "fields.gpkg")
    kinds = [kind for kind in KINDS for _ in range(6)]
    write(Path("site.gpkg"), FIELDS, {"kind": kinds}, layer="plots")
    write(Path("site.gpkg"), FIELDS[:1], {"kind": ["x"]}, layer="others", append=True)
    write(Path("other.geojson"), [shapely.box(25, 4, 35, 6)], {"kind": ["sand"]})
    with rasterio.open("scene.tif") as scene:
        more = np.zeros((36, 36), np.uint8)
        more[[4, 16, 34], :12], more[[4, 16, 34], 12:24] = 7, 8  # three areas each, between the polygons
        profile = {"driver": "GTiff", "width": 36, "height": 36, "count": 1, "dtype": "uint8", "crs": scene.crs}
        with rasterio.open("more.tif", "w", transform=scene.transform, **profile) as file:
            file.write(more, 1)
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("hypercaps ")]
    assert len(lines) == 5
    for line in lines:
        args = shlex.split(line, comments=True)[1:]
        result = hypercaps(*args, *(["--method", "rbf-svm", "--no-map"] if args[0] == "train" else []))
        assert result.exit_code == 0, f"{line}\n{result.output}"
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["split"].kind == "polygons" and len(scope["labels"].legend) == 5


def test_info(folder: Path) -> None:
    result = hypercaps("info", folder / "fields.gpkg", "--json")
    about = json.loads(result.stdout)
    assert (about["kind"], about["features"], about["fields"]) == ("vector labels", 18, ["kind", "code"])
