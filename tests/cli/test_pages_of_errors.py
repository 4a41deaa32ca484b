"""Errors that need more explanation than a sentence name the page that has it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hypercaps import ConvCapsClassifier, Scene
from hypercaps.cli import app
from support.scenes import make_fields

CUBE, TRUTH = make_fields()
WAVES = np.linspace(500, 900, CUBE.shape[2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    properties = {"plot": "a", "visit": "b"}
    point = {"type": "Feature", "properties": properties, "geometry": {"type": "Point", "coordinates": [1, 1]}}
    (folder / "points.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [point]}))
    (folder / "notes.txt").write_text("nothing that is read")
    np.save(folder / "cube.npy", CUBE)
    np.save(folder / "dead.npy", np.where(np.arange(CUBE.shape[2]) < CUBE.shape[2] // 2, 0, CUBE))
    (folder / "waves.txt").write_text("\n".join(map(str, WAVES)))
    (folder / "others.txt").write_text("\n".join(map(str, WAVES + 100)))
    scene = Scene.from_array(CUBE, wavelengths=WAVES)
    ConvCapsClassifier(method="lda", split_by="none").fit(scene, TRUTH).save(folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("data", "info notes.txt"),
        ("labels", "train cube.npy points.geojson --out run"),
        ("labels", "train cube.npy notes.txt --out run"),
        ("resampling", "map model.safetensors cube.npy --wavelengths others.txt --out map.tif"),
        ("new-scenes", "map model.safetensors dead.npy --wavelengths waves.txt --out map.tif"),
        ("cluster", "map model.safetensors cube.npy --wavelengths waves.txt --out map.tif --cluster tcp://127.0.0.1:9"),
    ],
)
def test_the_page_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, page: str, command: str) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 2 and f"docs/{page}.md" in done.stderr, done.stderr
