"""The plugin in QGIS itself, on a real scene: every algorithm by qgis_process, and layers that are no files.

``make test-qgis`` installs QGIS and runs these; elsewhere they are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pyogrio
import pytest
import rasterio
import rasterio.features
import shapely.geometry

import hypercaps
from hypercaps.io.open import open_labels, open_scene

ROOT = Path(__file__).resolve().parents[2]
GRID = rasterio.Affine(20, 0, 497000, 0, -20, 4479000)  # metres, in Indiana
CRS = "EPSG:32616"
# Debian's qgis_process of QGIS 3.22 is a script that adds an option which its program does not know.
QGIS_PROCESS = shutil.which("qgis_process.bin") or shutil.which("qgis_process")
QGIS_PYTHON = os.environ.get("QGIS_PYTHON", "/usr/bin/python3")

pytestmark = [
    pytest.mark.skipif(not os.environ.get("HYPERCAPS_TEST_QGIS"), reason="make test-qgis runs it"),
    pytest.mark.skipif(QGIS_PROCESS is None, reason="QGIS is not installed"),
    pytest.mark.timeout(600),
]


@dataclass(frozen=True)
class Desk:
    """A user's files, and QGIS with the plugin installed."""

    data: Path  # the user's scene and labels
    out: Path
    profile: Path  # of QGIS
    program: Path  # the hypercaps to use

    @property
    def scene(self) -> Path:
        return self.data / "scene, June.tif"

    @property
    def labels(self) -> Path:
        return self.data / "labels.gpkg"

    @property
    def plugins(self) -> Path:
        return self.profile / "profiles" / "default" / "python" / "plugins"

    @property
    def model(self) -> Path:
        return self.out / "run" / "model.safetensors"

    def environment(self, *, with_program: bool = True) -> dict[str, str]:
        path = ["/usr/bin", "/bin", *([str(self.program.parent)] if with_program else [])]
        return {
            "PATH": os.pathsep.join(path),
            "HOME": str(self.profile),
            "QGIS_CUSTOM_CONFIG_PATH": str(self.profile),
            "QT_QPA_PLATFORM": "offscreen",
            "XDG_RUNTIME_DIR": str(self.profile),
        }

    def qgis(self, *words: object, with_program: bool = True) -> subprocess.CompletedProcess[str]:
        assert QGIS_PROCESS is not None
        environment = self.environment(with_program=with_program)
        return subprocess.run(
            [QGIS_PROCESS, *map(str, words)], env=environment, capture_output=True, encoding="utf-8", timeout=500
        )

    def run(self, name: str, **parameters: object) -> tuple[dict[str, Any], str]:
        """The results of an algorithm, and its log."""
        words = [f"--{key}={value}" for key, value in parameters.items()]
        done = self.qgis("--json", "run", f"hypercaps:{name}", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout)
        return found["results"], json.dumps(found["log"]) + done.stderr


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("qgis")
    desk = Desk(folder / "data", folder / "out", folder / "profile", folder / "env" / "bin" / "hypercaps")
    for path in (desk.data, desk.out, desk.profile, desk.program.parent):
        path.mkdir(mode=0o700, parents=True)
    desk.program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{Path(hypercaps.__file__).parents[1]}" exec "{sys.executable}" -m hypercaps "$@"\n'
    )
    desk.program.chmod(0o755)
    _write_scene(desk.scene)
    _write_polygons(desk.labels)
    subprocess.run([sys.executable, ROOT / "qgis" / "build_plugin.py", folder / "plugin.zip"], check=True)
    with zipfile.ZipFile(folder / "plugin.zip") as archive:
        archive.extractall(desk.plugins)
    enabled = desk.qgis("plugins", "enable", "hypercaps_qgis")
    assert enabled.returncode == 0, enabled.stdout + enabled.stderr
    return desk


def _write_scene(path: Path) -> None:
    scene = open_scene("indian-pines")
    cube, _ = scene.read(slice(0, scene.rows), slice(0, scene.cols))
    rows, cols, bands = cube.shape
    with rasterio.open(
        path, "w", driver="GTiff", height=rows, width=cols, count=bands, dtype="uint16", crs=CRS, transform=GRID
    ) as file:
        file.write(np.moveaxis(cube, -1, 0).astype("uint16"))


def _write_polygons(path: Path) -> None:
    """The labelled fields as polygons in one layer, and a point of each in another."""
    truth = open_labels("indian-pines")
    names = {entry.label: entry.name for entry in truth.legend}
    array = truth.array.astype("int16")
    found = list(rasterio.features.shapes(array, mask=array > 0, transform=GRID))
    polygons = [shapely.geometry.shape(geometry) for geometry, _ in found]
    crops = np.array([names[int(label)] for _, label in found], dtype=object)
    for layer, shapes in (("fields", polygons), ("points", [polygon.representative_point() for polygon in polygons])):
        wkb = np.array([shape.wkb for shape in shapes], dtype=object)
        pyogrio.raw.write(
            path, wkb, [crops], ["crop"], layer=layer, geometry_type=shapes[0].geom_type, crs=CRS, driver="GPKG",
            append=path.exists(),
        )  # fmt: skip


@pytest.fixture(scope="module")
def trained(desk: Desk) -> tuple[dict[str, Any], str]:
    """A run with the capsule network, a few epochs long."""
    return desk.run(
        "train", SCENE=desk.scene, LABELS=f"{desk.labels}|layername=fields", FIELD="crop", METHOD="convcapsnet",
        SPLIT=2, EPOCHS=6, OPTIONS="--recipe paper", OUTPUT=desk.model.parent,
    )  # fmt: skip


def test_train_gives_map_model_report_and_score(desk: Desk, trained: tuple[dict[str, Any], str]) -> None:
    results, log = trained
    assert Path(results["MODEL"]) == desk.model and desk.model.exists()
    assert Path(results["MAP"]).name == "map.tif" and Path(results["REPORT"]).name == "report.html"
    metrics = json.loads((desk.model.parent / "metrics.json").read_text())
    assert results["OA"] == pytest.approx(metrics["oa"]) and results["OA"] > 50
    assert "epoch 6/6" in log


def test_train_on_folds_with_a_linear_method_into_a_temporary_folder(desk: Desk) -> None:
    results, log = desk.run(
        "train", SCENE=desk.scene, LABELS=f"{desk.labels}|layername=fields", FIELD="crop", METHOD="lda",
        MORE_LABELS=f"{desk.labels}|layername=points", OUTPUT="TEMPORARY_OUTPUT",
    )  # fmt: skip
    assert results["OA"] > 20 and "MAP" in results
    assert f"{desk.labels}:fields {desk.labels}:points" in log
    assert "spatial folds for the score" in log


def test_map_writes_the_rasters_that_were_asked_for(desk: Desk, trained: object) -> None:
    target = desk.out / "maps" / "pines.tif"
    results, _ = desk.run(
        "map", MODEL=desk.model, SCENE=desk.scene, OUTPUT=target, CONFIDENCE=desk.out / "confidence.tif", REJECT=0.5
    )
    assert results == {"OUTPUT": str(target), "CONFIDENCE": str(desk.out / "confidence.tif")}
    assert target.with_suffix(".qml").exists() and not (desk.out / "familiarity.tif").exists()
    with rasterio.open(target) as file:
        assert file.crs == CRS and file.transform == GRID and file.shape == (145, 145)


def test_evaluate_gives_the_scores_of_the_training(desk: Desk, trained: tuple[dict[str, Any], str]) -> None:
    results, log = desk.run(
        "evaluate", MODEL=desk.model, SCENE=desk.scene, LABELS=f"{desk.labels}|layername=fields", FIELD="crop",
        OUTPUT=desk.out / "scores.json",
    )  # fmt: skip
    assert results["OA"] == pytest.approx(trained[0]["OA"])
    assert json.loads((desk.out / "scores.json").read_text())["oa"] == pytest.approx(results["OA"])
    assert "Corn-notill" in log  # the table of classes


def test_suggest_gives_points(desk: Desk, trained: object) -> None:
    target = desk.out / "points.gpkg"
    results, _ = desk.run(
        "suggest", MODEL=desk.model, SCENE=desk.scene, NUMBER=7, LABELS=f"{desk.labels}|layername=fields",
        FIELD="crop", OUTPUT=target,
    )  # fmt: skip
    assert results == {"OUTPUT": str(target)}
    info = pyogrio.read_info(target)
    assert info["features"] == 7 and info["crs"] == CRS and "crop" in info["fields"]


def test_errors_of_hypercaps_are_shown(desk: Desk, trained: object) -> None:
    done = desk.qgis(
        "run", "hypercaps:evaluate", f"--MODEL={desk.model}", f"--SCENE={desk.out / 'run' / 'map.tif'}",
        f"--LABELS={desk.labels}|layername=fields", "--FIELD=crop", f"--OUTPUT={desk.out / 'none.json'}",
    )  # fmt: skip
    assert done.returncode != 0 and "bands" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr and not (desk.out / "none.json").exists()


def test_the_program_can_be_set_once_and_is_asked_for(desk: Desk, trained: object) -> None:
    words = ["run", "hypercaps:suggest", f"--MODEL={desk.model}", f"--SCENE={desk.scene}", "--NUMBER=2"]
    words.append(f"--OUTPUT={desk.out / 'two.gpkg'}")
    missing = desk.qgis(*words, with_program=False)
    said = missing.stdout + missing.stderr
    assert missing.returncode != 0 and "hypercaps was not found: install it" in said, said
    settings = desk.profile / "profiles" / "default" / "QGIS" / "QGIS3.ini"
    before = settings.read_text()
    environment = desk.program.parents[1]
    settings.write_text(f"{before}\n[Processing]\nConfiguration\\HYPERCAPS_PROGRAM={environment}\n")
    try:
        done = desk.qgis(*words, with_program=False)
    finally:
        settings.write_text(before)
    assert done.returncode == 0 and (desk.out / "two.gpkg").exists(), done.stdout + done.stderr


@pytest.fixture(scope="module")
def inside(desk: Desk, trained: object) -> dict[str, Any]:
    """What in_qgis.py found."""
    folder = desk.out / "inside"
    folder.mkdir()
    script = Path(__file__).with_name("in_qgis.py")
    command = [QGIS_PYTHON, script, desk.plugins, desk.scene, desk.labels, desk.model, folder]
    done = subprocess.run(
        list(map(str, command)), env=desk.environment(), capture_output=True, encoding="utf-8", timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    picture = os.environ.get("HYPERCAPS_QGIS_PICTURE")
    if picture:
        shutil.copy(folder / "result.png", picture)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_map_is_loaded_with_the_names_and_colours_of_its_classes(inside: dict[str, Any], desk: Desk) -> None:
    names = [name for name, _ in inside["classes"]]
    expected = [entry.name for entry in open_labels("indian-pines").legend]
    assert [name for name in names if name in expected] == sorted(expected) and len(names) == len(expected)
    assert len({color for _, color in inside["classes"]}) == len(expected)
    assert inside["classes of training"] == inside["classes"]
    picture = matplotlib.image.imread(desk.out / "inside" / "result.png")
    drawn = (255 * picture[:, : picture.shape[1] // 2, :3]).round().astype(int)  # the map; the legend is on the right
    colors, counts = np.unique(drawn.reshape(-1, 3), axis=0, return_counts=True)
    large = {f"#{r:02x}{g:02x}{b:02x}" for (r, g, b), count in zip(colors, counts, strict=True) if count > 200}
    assert len(large & {color for _, color in inside["classes"]}) > 10


def test_labels_that_differ_from_their_file_are_exported(inside: dict[str, Any], desk: Desk) -> None:
    found = inside["labels"]
    assert found["file"] == f"{desk.labels}:fields"
    assert found["memory"] == [found["all"], CRS, "Alfalfa"]
    assert found["edits"] == [found["all"] - 1, CRS, "Alfalfa"]
    assert found["filter"][0] < found["all"] and found["filter"][1:] == [CRS, "Corn-notill"]
    assert found["other CRS"] == [found["all"], "EPSG:32617", "Alfalfa"]


def test_algorithms_run_on_layers_in_memory_and_on_selected_features(inside: dict[str, Any], desk: Desk) -> None:
    assert inside["runs"]["oa"] > 50
    assert any("features written to" in text for text in inside["runs"]["info"])
    assert any(text.startswith("classifying") for text in inside["runs"]["progress"])
    scores = json.loads((desk.out / "inside" / "s.json").read_text())
    tested = [row["name"] for row in scores["per_class"] if row["test"]]
    assert tested == ["Woods"]


def test_layers_that_are_no_files_are_refused_and_another_crs_is_reported(inside: dict[str, Any]) -> None:
    assert "'zipped' is not a file on this computer" in inside["refused"]["zipped"]
    (warning,) = (text for text in inside["other CRS"] if "coordinate system" in text)
    assert "EPSG:32617" in warning and CRS in warning


def test_cancel_ends_a_training(inside: dict[str, Any], desk: Desk) -> None:
    assert inside["cancelled"]["results"] == [] and not (desk.out / "inside" / "c").exists()
    assert inside["cancelled"]["progress"] and inside["cancelled"]["seconds"] < 120
    assert inside["unloaded"]


def test_nothing_was_written_beside_the_data(desk: Desk, inside: dict[str, Any]) -> None:
    """But for the statistics of bands that QGIS itself writes when it opens a raster."""
    of_qgis = desk.scene.with_name(f"{desk.scene.name}.aux.xml")
    assert set(desk.data.iterdir()) - {of_qgis} == {desk.scene, desk.labels}
    assert not of_qgis.exists() or "STATISTICS_MAXIMUM" in of_qgis.read_text()
