"""Averages of models: what their maps are, that no pixel depends on its window, and their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.compute.tensors import tensors_digest
from hypercaps.errors import DataWarning, ModelFileError
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import read_model, write_model
from hypercaps.inference.predict import map_scene, map_scores
from hypercaps.inference.scoring import pixel_scores
from hypercaps.loading import load_model
from support.averages import WEIGHTS, as_member, make_average, opened

Json = dict[str, Any]


@pytest.fixture(scope="module")
def average() -> TrainedModel:
    return make_average()[0]


@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
class TestMaps:
    def test_it_is_the_weighted_sum_of_calibrated_probabilities(self, average: TrainedModel) -> None:
        scene, _ = opened()
        raw = map_scores(average, scene, raw=True)
        valid = scene.read().valid
        assert (~np.isnan(raw[..., 0]) == valid).all() and 0 < (~valid).sum() < 50
        expected = np.zeros((int(valid.sum()), 3))
        for member, weight in zip(average.members, WEIGHTS, strict=True):
            assert member.partners == () and member.own_calibration is not None and member.weight == weight
            probabilities = member.own_calibration(map_scores(member, scene, raw=True)[valid])
            np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
            expected += weight * probabilities.astype(np.float64)
        np.testing.assert_array_equal(raw[valid], expected.astype(np.float32))
        classes = map_scene(average, scene).classes
        np.testing.assert_array_equal(classes[valid], average.legend.labels[raw[valid].argmax(axis=1)])
        # Each member has a say: none alone gives these classes.
        for member in average.members:
            assert (map_scene(member, scene).classes != classes).any()

    def test_a_pixel_does_not_depend_on_the_window(self, average: TrainedModel) -> None:
        scene, _ = opened()
        whole = map_scores(average, scene, window=64)
        for window in (16, 48):
            np.testing.assert_array_equal(map_scores(average, scene, window=window), whole)
            classes, confidence = map_scene(average, scene, window=window)
            np.testing.assert_array_equal(confidence, whole.max(axis=2))
            np.testing.assert_array_equal(classes > 0, ~np.isnan(whole[..., 0]))

    def test_the_order_of_patches_does_not_matter(self, average: TrainedModel) -> None:
        """The member of the largest patch first: the others read less around the window."""
        scene, _ = opened()
        last, *others = average.members[::-1]
        turned = replace(last, partners=tuple(others))
        assert turned.halo == average.halo == 3
        np.testing.assert_allclose(map_scores(turned, scene), map_scores(average, scene, raw=True), atol=1e-6)
        np.testing.assert_array_equal(map_scores(turned, scene, window=16), map_scores(turned, scene, window=48))

    def test_pixels_alone_are_as_in_the_map(self, average: TrainedModel) -> None:
        scene, labels = opened()
        pixels = np.flatnonzero(labels.array)[::7]
        whole = map_scores(average, scene, raw=True).reshape(-1, 3)
        np.testing.assert_array_equal(pixel_scores(average, scene, pixels), whole[pixels])

    def test_its_file_gives_the_same_map(self, average: TrainedModel, tmp_path: Path) -> None:
        scene, _ = opened()
        write_model(tmp_path / "m.safetensors", average)
        loaded = load_model(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(loaded.predict_proba(scene), map_scores(average, scene))
        np.testing.assert_array_equal(loaded.predict(scene), map_scene(average, scene).classes)


def test_a_loaded_average_is_a_classifier_of_method_auto(average: TrainedModel, tmp_path: Path) -> None:
    write_model(tmp_path / "m.safetensors", average)
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.method == "auto" and loaded.get_params()["method"] == "auto"
    assert loaded.candidates == ("lda", "lda-5")  # what a new fit compares: no candidate is trained as the network was
    assert ConvCapsClassifier(**loaded.get_params()).get_params() == loaded.get_params()
    model = loaded.model_
    assert [member.method for member in model.members] == ["lda", "lda", "convcapsnet"]
    assert [member.patch for member in model.members] == [1, 5, 7] and model.halo == 3
    assert [member.weight for member in model.members] == list(WEIGHTS)
    assert model.title == "average of lda, lda and convcapsnet"
    assert model.describe() == average.describe() and model.parameters == average.parameters
    write_model(tmp_path / "again.safetensors", model)
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


def header_of(path: Path) -> Json:
    with safetensors.safe_open(path, framework="np") as file:
        header: Json = json.loads(file.metadata()["hypercaps-model"])
    return header


def test_an_average_is_named_after_all_its_methods(average: TrainedModel) -> None:
    assert average.title == "average of lda, lda and convcapsnet"
    assert average.heading == "average of LDA, LDA (patches of 5 x 5) and 1D-ConvCapsNet"
    assert average.members[0].heading == "LDA"


def test_only_averages_need_a_new_version(average: TrainedModel, tmp_path: Path) -> None:
    single = replace(average.members[0], weight=1.0, own_calibration=None)
    for model, version in ((single, 2), (average, 3)):
        write_model(tmp_path / "m.safetensors", model)
        assert header_of(tmp_path / "m.safetensors")["format_version"] == version
    assert "weight" in header_of(tmp_path / "m.safetensors")["description"]
    write_model(tmp_path / "m.safetensors", single)
    assert not {"weight", "partners", "own_calibration"} & set(header_of(tmp_path / "m.safetensors")["description"])


def forge(path: Path, change: Callable[[Json, dict[str, torch.Tensor]], object], *, digest: bool = True) -> Path:
    """Change description and arrays of a file, with the digest that belongs to them or with the old one."""
    with safetensors.safe_open(path, framework="pt") as file:
        arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    header = header_of(path)
    change(header["description"], arrays)
    if digest:
        header["digest"] = tensors_digest(arrays, header["description"])
    safetensors.torch.save_file(arrays, path, metadata={"hypercaps-model": json.dumps(header)})
    return path


@pytest.mark.parametrize(
    "key", ["partner-0.network.", "partner-1.whitening.mean", "partner-1.wavelengths", "partner-1.network."]
)
def test_damaged_arrays_of_a_partner_are_noticed(average: TrainedModel, tmp_path: Path, key: str) -> None:
    write_model(tmp_path / "m.safetensors", average)

    def damage(about: Json, arrays: dict[str, torch.Tensor]) -> None:
        name = next(name for name in arrays if name.startswith(key))
        arrays[name] = arrays[name].clone()
        arrays[name].view(-1)[0] += 0.25

    with pytest.raises(ModelFileError, match="damaged or was altered"):
        read_model(forge(tmp_path / "m.safetensors", damage, digest=False))


@pytest.mark.parametrize(
    "change",
    [
        lambda about, arrays: arrays.pop("partner-1.whitening.mean"),
        lambda about, arrays: arrays.pop("partner-0.own_calibration.at"),
        lambda about, arrays: about["partners"].append(about["partners"][0]),  # whose arrays are not there
        lambda about, arrays: about["partners"][0].pop("own_calibration"),
        lambda about, arrays: about["partners"][0].update(partners=[about["partners"][1]]),
        lambda about, arrays: about["partners"][1]["classes"][0].update(label=9),
        lambda about, arrays: about["partners"][1].update(patch=9),
        lambda about, arrays: about["partners"][1].update(weight=0.0),
        lambda about, arrays: about["partners"][1].update(weight=0.9),  # together more than 1
        lambda about, arrays: about.update(weight="half"),
        lambda about, arrays: about.pop("own_calibration"),
        lambda about, arrays: about.update(own_calibration=None),
        lambda about, arrays: about.update(partners=7),
    ],
)
def test_averages_that_no_training_gives_are_refused(
    average: TrainedModel, tmp_path: Path, change: Callable[[Json, dict[str, torch.Tensor]], object]
) -> None:
    write_model(tmp_path / "m.safetensors", average)
    with pytest.raises(ModelFileError, match="does not describe a model") as refusal:
        read_model(forge(tmp_path / "m.safetensors", change))
    assert "\n" not in str(refusal.value)


def test_partners_for_other_bands_are_refused(average: TrainedModel, tmp_path: Path) -> None:
    with pytest.warns(DataWarning):
        scene, labels = opened(bands=27)
        other = ConvCapsClassifier(method="lda").fit(scene, labels, evaluate=False).model_
        mixed = replace(average, partners=(*average.partners[:1], as_member(other, 0.2, scene, labels)))
    write_model(tmp_path / "m.safetensors", mixed)
    with pytest.raises(ModelFileError, match="does not describe a model"):
        read_model(tmp_path / "m.safetensors")
