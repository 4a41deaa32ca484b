"""``--progress json``: what programs that run hypercaps read from stderr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from click.testing import Result

from hypercaps.cli import events
from support.command import hypercaps
from support.scenes import make_cube

JSON = ("--progress", "json")


def events_of(result: Result) -> list[dict[str, Any]]:
    """The objects on stderr; fails if there is anything else."""
    return [json.loads(line) for line in result.stderr.splitlines()]


def only(found: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [one for one in found if one["event"] == event]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("data")
    cube, labels = make_cube()
    np.save(folder / "cube.npy", cube)
    scipy.io.savemat(folder / "gt.mat", {"gt": labels})
    return folder / "cube.npy", folder / "gt.mat"


@pytest.fixture(scope="module")
def trained(files: tuple[Path, Path]) -> tuple[Path, Result]:
    out = files[0].parent / "out"
    result = hypercaps("train", *files, "--out", out, "--train", 0.2, "--epochs", 3, *JSON)
    assert result.exit_code == 0, result.output
    return out, result


def test_a_training_reports_its_stages_and_names_its_files(trained: tuple[Path, Result]) -> None:
    out, result = trained
    found = events_of(result)
    progress = only(found, "progress")
    assert {one["stage"] for one in progress} == {"training", "classifying"}
    for one in progress:
        assert 0 <= one["done"] <= one["total"] and set(one) == {
            "event", "stage", "done", "total", "seconds_left", "text",
        }  # fmt: skip
    last = [one for one in progress if one["stage"] == "training"][-1]
    assert last["done"] == last["total"] and last["text"].startswith("epoch ")
    assert found[-1]["event"] == "result"
    names = found[-1]["files"]
    assert Path(names["classes"]) == out / "map.tif" and Path(names["model"]) == out / "model.safetensors"
    assert all(Path(path).exists() for path in names.values())
    metrics = json.loads((out / "metrics.json").read_text())
    assert found[-1]["scores"] == {key: metrics[key] for key in ("oa", "aa", "kappa")}


def test_stdout_is_as_without_it(trained: tuple[Path, Result]) -> None:
    assert "OA" in trained[1].stdout and "model.safetensors" in trained[1].stdout
    assert '"event"' not in trained[1].stdout


def test_map_evaluate_and_suggest_report_too(files: tuple[Path, Path], trained: tuple[Path, Result]) -> None:
    scene, labels = files
    out, folder = trained[0], scene.parent
    mapped = events_of(hypercaps("map", out, scene, "--out", folder / "map.tif", *JSON))
    assert mapped[0]["stage"] == "classifying" and mapped[0]["done"] == 0
    assert mapped[-1]["files"] == {"classes": str(folder / "map.tif"), "style": str(folder / "map.qml")}
    scored = events_of(hypercaps("evaluate", out, scene, labels, "--json", folder / "scores.json", *JSON))
    assert scored[-1]["files"] == {"json": str(folder / "scores.json")}
    assert scored[-1]["scores"]["oa"] == json.loads((folder / "scores.json").read_text())["oa"]
    suggested = events_of(hypercaps("suggest", out, scene, "--n", 3, "--out", folder / "points.csv", *JSON))
    assert [one["event"] for one in suggested][-2:] == ["progress", "result"]
    assert suggested[-1]["files"] == {"points": str(folder / "points.csv")}


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
def test_warnings_are_messages(files: tuple[Path, Path], tmp_path: Path) -> None:
    cube = make_cube()[0]
    cube[2, 3, 4] = np.nan
    np.save(tmp_path / "holes.npy", cube)
    arguments = (tmp_path / "holes.npy", files[1], "--out", tmp_path / "out", "--train", 0.2, "--method", "lda")
    first = events_of(hypercaps("train", *arguments, *JSON))[0]
    assert (first["event"], first["level"]) == ("message", "warning")
    assert "1 of 1296 pixels" in first["text"] and "Warning" not in first["text"]


@pytest.mark.parametrize("written", [("--progress", "json"), ("--progress=json",)])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("map", "no-model", "no-scene.tif", "--out", "map.tif"), "no-model"),
        (("map", "no-model", "no-scene.tif"), "--out"),
        (("map", "--nonsense"), "--nonsense"),
        (("suggest", "no-model", "scene.tif", "--out", "points.gpkg", "--n", "few"), "--n"),
    ],
)
def test_errors_are_one_object(
    arguments: tuple[str, ...], text: str, written: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = hypercaps(*arguments, *written)
    (error,) = events_of(result)
    assert result.exit_code == 2 and error["event"] == "error" and text in error["text"]


def test_a_command_that_is_stopped_says_so_in_an_error(
    files: tuple[Path, Path], trained: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hypercaps.inference.suggest.suggest", stopped)
    out = tmp_path / "points.csv"
    result = hypercaps("suggest", trained[0], files[0], "--out", out, *JSON)
    assert result.exit_code == 130 and not out.exists()
    assert [one["text"] for one in only(events_of(result), "error")] == ["Stopped. Nothing was written."]


def test_without_it_an_error_is_a_sentence() -> None:
    assert hypercaps("map", "--nonsense", *JSON).exit_code == 2
    result = hypercaps("map", "no-model", "no-scene.tif", "--out", "map.tif")
    assert result.stderr.startswith("Error: ")


def test_other_values_and_quiet_are_refused() -> None:
    assert "auto or json" in hypercaps("map", "m", "s", "--out", "map.tif", "--progress", "xml").stderr
    (error,) = events_of(hypercaps("map", "m", "s", "--out", "map.tif", "--quiet", *JSON))
    assert "--quiet and --progress" in error["text"]


def test_a_stage_is_reported_a_few_times_per_second_and_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[float] = []
    monkeypatch.setattr(events, "write_event", lambda event, **fields: written.append(fields["done"]))
    stages = events.StageEvents()
    for done in range(101):
        stages.update("classifying", done, 100)
    assert written[0] == 0 and written[-1] == 100 and len(written) < 20
