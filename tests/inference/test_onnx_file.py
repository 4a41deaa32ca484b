"""Exported models: another program gives the same probabilities."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.cli import app
from hypercaps.compute import native
from hypercaps.errors import ModelFileError
from hypercaps.inference.calibration import FITS, Calibration
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.onnx_file import to_onnx
from hypercaps.inference.portable import PortableCalibration, PortableModel
from hypercaps.inference.predict import map_scores
from support.averages import make_average
from support.scenes import make_cube

Floats = np.ndarray[Any, np.dtype[np.float32]]

METHODS: dict[str, dict[str, Any]] = {
    "convcapsnet": {"epochs": 1, "recipe": "best"},
    "c-cnn": {"epochs": 1},
    "capsnet": {"epochs": 1, "structure": {"filters": 8, "primary_arrays": 2}},
    "mlp": {"epochs": 1, "structure": {"hidden": [16, 8]}},
    "se-2d-cnn": {"epochs": 1},
    "3d-cnn": {"epochs": 1, "patch": 27, "structure": {"filters": 2, "window": 4}},
    "rbf-svm": {},
    "rbf-svm-window": {},
    "random-forest": {"patch": 3},
    "lda": {},
    "logistic": {"patch": 3},
}


def patches_of(cube: Floats, side: int) -> Floats:
    """Patches (rows * cols, D, D, C), mirrored at the border."""
    halo = side // 2
    around = np.pad(cube, ((halo, halo), (halo, halo), (0, 0)), mode="reflect")
    views = np.lib.stride_tricks.sliding_window_view(around, (side, side), axis=(0, 1))
    return np.ascontiguousarray(views.transpose(0, 1, 3, 4, 2)).reshape(-1, side, side, cube.shape[2])


def outside(content: bytes, patches: Floats) -> Floats:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found: Floats = session.run(["probabilities"], {"patches": patches})[0]
    assert np.abs(session.run(None, {"patches": patches[:1]})[0] - found[:1]).max() < 1e-6  # any number of patches
    return found


def check_equal(model: TrainedModel, cube: Floats) -> onnxruntime.InferenceSession:
    content = to_onnx(model)
    ours = map_scores(model, Scene.from_array(cube)).reshape(-1, len(model.legend))
    some = np.random.default_rng(0).permutation(len(ours))[:64]
    found = outside(content, patches_of(cube, 2 * model.halo + 1)[some])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ours[some], atol=1e-5)
    np.testing.assert_array_equal(found.argmax(axis=1), ours[some].argmax(axis=1))
    return onnxruntime.InferenceSession(content)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_probabilities(method: str) -> None:
    cube, labels = make_cube(rows=40, cols=36)
    scene = Scene.from_array(cube, name="made", wavelengths=np.arange(26) * 10.0 + 400)
    classifier = ConvCapsClassifier(method=method, **METHODS[method])
    classifier.fit(scene, Labels.from_array(labels), evaluate=False)
    session = check_equal(classifier.model_, cube)
    side = classifier.model_.patch
    assert session.get_inputs()[0].shape == ["N", side, side, 26] and session.get_outputs()[0].shape == ["N", 3]
    about = session.get_modelmeta().custom_metadata_map
    assert about["hypercaps.method"] == method and json.loads(about["hypercaps.wavelengths"])[1] == 410
    assert [entry["label"] for entry in json.loads(about["hypercaps.classes"])] == [1, 2, 3]
    assert json.loads(about["hypercaps.bands"]) == 26 and json.loads(about["hypercaps.patch"]) == side


def test_an_average_takes_the_largest_patch() -> None:
    average, scene, _ = make_average()
    cube = scene.read().values.copy()
    cube[~scene.read().valid] = 1000.0  # patches without data are not for other programs
    assert check_equal(average, cube).get_inputs()[0].shape == ["N", 7, 7, 26]


@pytest.mark.parametrize("kind", FITS)
def test_calibrations_agree(kind: str) -> None:
    rng = np.random.default_rng(1)
    scores = rng.random((400, 4)).astype(np.float32)
    truth = np.where(rng.random(400) < 0.7, scores.argmax(axis=1), rng.integers(0, 4, 400))
    fitted = FITS[kind](scores, truth)
    assert fitted.kind == kind
    check_calibration(fitted, np.concatenate([scores, np.eye(4, dtype=np.float32), np.full((1, 4), 0.3, "f4")]))


def test_an_isotonic_calibration_of_one_knot() -> None:
    fitted = Calibration(0.7, 100, at=np.array([0.8]), share=np.array([0.9]))
    check_calibration(fitted, np.random.default_rng(0).random((50, 3)).astype(np.float32))


def check_calibration(fitted: Calibration, scores: Floats) -> None:
    import torch

    found = PortableCalibration(fitted)(torch.from_numpy(scores)).numpy()
    np.testing.assert_allclose(found, fitted(scores), atol=1e-6)
    np.testing.assert_array_equal(found.argmax(axis=1), scores.argmax(axis=1))


def test_nothing_is_computed_by_the_compiled_kernels(
    trained: ConvCapsClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def fail(*given: object) -> None:
        raise AssertionError("compiled kernels were called")

    monkeypatch.setattr(native, "run", fail)
    PortableModel(trained.model_)(torch.rand(2, 7, 7, 26))


class TestCommand:
    def test_it_writes_a_file(self, trained: ConvCapsClassifier, tmp_path: Path) -> None:
        trained.save(tmp_path / "model.safetensors")
        out = tmp_path / "new" / "model.onnx"
        result = CliRunner().invoke(app, ["export", str(tmp_path / "model.safetensors"), "--onnx", str(out)])
        assert result.exit_code == 0 and "patches (N, 7, 7, 26) to probabilities (N, 3)" in result.output
        assert onnxruntime.InferenceSession(out.read_bytes()).get_inputs()[0].name == "patches"

    @pytest.mark.parametrize("name", ["model.tif", "model.safetensors"])
    def test_other_names_are_refused(self, name: str, trained: ConvCapsClassifier, tmp_path: Path) -> None:
        trained.save(tmp_path / "model.safetensors")
        before = (tmp_path / "model.safetensors").read_bytes()
        result = CliRunner().invoke(
            app, ["export", str(tmp_path / "model.safetensors"), "--onnx", str(tmp_path / name)]
        )
        assert result.exit_code == 2 and ".onnx" in result.output
        assert (tmp_path / "model.safetensors").read_bytes() == before and len(list(tmp_path.iterdir())) == 1

    def test_without_onnx(self, trained: ConvCapsClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(ModelFileError, match=r"pip install 'hypercaps\[onnx\]'"):
            to_onnx(trained.model_)


def test_the_lines_of_the_documentation_work(
    trained: ConvCapsClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    cube, _ = make_cube(rows=40, cols=36)
    np.save(tmp_path / "cube.npy", cube)
    (tmp_path / "model.onnx").write_bytes(to_onnx(trained.model_))
    monkeypatch.chdir(tmp_path)
    exec(page.split("```python\n")[1].split("```")[0], {})
    name, confidence = capsys.readouterr().out.rsplit(maxsplit=1)
    mapped = trained.map(Scene.from_array(cube))
    assert name == trained.legend_.entries[mapped.classes[20, 30] - 1].name
    assert abs(float(confidence) - mapped.confidence[20, 30]) < 1e-5
