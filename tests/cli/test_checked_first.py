"""Options are checked before anything is read: at once, without torch, and with a suggestion for near misses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.errors import ModelError
from hypercaps.models.registry import METHODS
from support.vectors import write_scene_and_labels

# Options of train, each with a part of its message; none of the files that are named exists.
REFUSED = {
    "--train 20": "20 % is 0.2",
    "--val 3": "shares of 0.2 for training and 3.0",
    "--per-class 0": "per_class is 0",
    "--folds 1": "the number of folds is 1",
    "--split fold": "did you mean folds?",
    "--method convcaps": "did you mean convcapsnet?",
    "--method LDA": "did you mean lda?",
    "--recipe papers": "did you mean paper?",
    "--whitening dampd": "did you mean damped?",
    "--candidates ldaa": "did you mean lda?",
    "--patch 4": "an odd number",
    "--method mlp --patch 3": "looks at single pixels",
    "--method 3d-cnn --patch 7": "takes patches of 25 or 27",
    "--epochs 0": "epochs is 0",
    "--batch-size 0": "batch_size is 0",
    "--method lda --epochs 3": "it has no epochs",
    "--method lda --split random --budget 3": "it has no budget",
    "--coverage 2": "--coverage is 2",
    "--memory much": "memory is 'much'",
    "--threads 999999": "not in the range 1<=x<=1024",
}
ASK = """
import json, sys
from typer.testing import CliRunner
from hypercaps.cli import app
runs = [CliRunner().invoke(app, ["train", "no.npy", "no-labels.npy", "--out", "run", *options.split()])
        for options in json.loads(sys.argv[1])]
print(json.dumps({"runs": [[run.exit_code, run.output] for run in runs],
                  "imported": sorted({"torch", "rasterio", "sklearn", "matplotlib"} & set(sys.modules))}))
"""


def test_options_are_refused_before_anything_is_read_and_before_torch_is_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(list(REFUSED))],
        capture_output=True, text=True, check=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["imported"] == []
    for (code, output), (options, message) in zip(answer["runs"], REFUSED.items(), strict=True):
        assert code == 2 and message in " ".join(output.split()), (options, output)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [["--device", "abacus"], ["--precision", "float31"]])
def test_so_are_devices(options: list[str]) -> None:
    for command in (["train", "no.npy", "no.npy", "--out", "run"], ["map", "no", "no.npy", "--out", "map.tif"]):
        result = CliRunner().invoke(app, [*command, *options])
        assert result.exit_code == 2 and options[1] in result.output, result.output


def test_names_of_scenes_files_and_studies_are_suggested(tmp_path: Path) -> None:
    def output(*arguments: object) -> str:
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == 2
        return " ".join(result.output.split())

    assert "did you mean indian-pines?" in output("info", "Indian_Pines")
    (tmp_path / "scene.tif").write_bytes(b"")
    assert output("info", tmp_path / "scene.tiff").endswith("did you mean scene.tif?")
    assert "did you mean" not in output("info", tmp_path / "other.npy")
    study = ("study", "quick", "--out", tmp_path / "study")
    assert "did you mean quick?" in output("study", "quik", "--out", tmp_path / "study")
    assert "did you mean salinas-a?" in output(*study, "--scenes", "salinas_a")
    assert "did you mean capsnet?" in output(*study, "--methods", "capsnets")


@pytest.mark.parametrize("command", ["map", "evaluate"])
def test_a_model_is_looked_for_before_the_scene_and_suggested(command: str, tmp_path: Path) -> None:
    for name in ("first", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "first" / "model.safetensors").touch()
    more = ["--out", str(tmp_path / "map.tif")] if command == "map" else []

    def said(model: Path) -> str:
        result = CliRunner().invoke(app, [command, str(model), str(tmp_path / "no-scene.npy"), *more])
        assert result.exit_code == 2
        return " ".join(result.output.split())

    assert said(tmp_path / "frist").endswith("a finished run, or its model.safetensors; did you mean first?")
    sentence = f"there is no model file {tmp_path}/empty/model.safetensors: give the folder of a finished run"
    assert sentence in said(tmp_path / "empty")
    assert "no-scene.npy" in said(tmp_path / "first")


def test_class_fields_are_suggested(tmp_path: Path) -> None:
    write_scene_and_labels(tmp_path)
    files = [str(tmp_path / name) for name in ("scene.tif", "fields.gpkg")]
    result = CliRunner().invoke(app, ["train", *files, "--class-field", "kinds", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2 and result.output.rstrip().endswith("did you mean kind?"), result.output


@pytest.mark.parametrize("name", METHODS)
def test_the_description_of_a_method_accepts_the_patches_that_its_network_accepts(name: str) -> None:
    def accepts(patch: int, *, described: bool) -> bool:
        try:
            METHODS[name].check_patch(patch) if described else METHODS[name].blueprint(200, 3, patch=patch)
        except ModelError:
            return False
        return True

    for patch in range(1, 32):
        assert accepts(patch, described=True) == accepts(patch, described=False), patch
