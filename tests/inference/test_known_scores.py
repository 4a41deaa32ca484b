"""Each pixel of a scene is classified once by a training: for calibration, test and map together."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.models.capsules.compiled import CompiledConvCapsNet
from support.scenes import QUICK, make_cube


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of pixels that capsule networks have classified without gradients, call by call."""
    numbers: list[int] = []
    lengths = CompiledConvCapsNet.lengths

    def counting(self: CompiledConvCapsNet, spectra: np.ndarray, places: np.ndarray) -> np.ndarray:
        numbers.append(len(places))
        return lengths(self, spectra, places)

    monkeypatch.setattr(CompiledConvCapsNet, "lengths", counting)
    return numbers


def with_holes() -> tuple[Scene, Labels]:
    cube, labels = make_cube()
    cube[2:4, 5:9] = np.nan
    labels[2:4, 5:9] = 0
    return Scene.from_array(cube), Labels.from_array(labels)


@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
def test_every_pixel_is_classified_once_with_the_same_bits(counted: list[int]) -> None:
    scene, labels = with_holes()
    fitted = ConvCapsClassifier(**QUICK).fit(scene, labels)
    assert sum(counted) == fitted.split_.val.size + fitted.split_.test.size
    found = fitted.map(scene)
    valid = int(scene.read().valid.sum())
    assert sum(counted) == valid
    again = fitted.map(scene)
    assert sum(counted) == valid

    alone = copy.copy(fitted)
    alone._known = None
    expected = alone.map(scene)
    assert sum(counted) == 2 * valid
    for one in (found, again):
        for ours, theirs in zip(one, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert fitted.scores_.to_json() == alone.evaluate(scene, labels, fitted.split_).to_json()


@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
def test_they_are_of_one_scene_and_one_network(counted: list[int]) -> None:
    scene, labels = with_holes()
    fitted = ConvCapsClassifier(**QUICK).fit(scene, labels)
    fitted.map(scene)
    done = sum(counted)
    other = Scene.from_array(scene.read().values[::-1].copy())
    assert not np.array_equal(fitted.predict(other), fitted.predict(scene))
    assert sum(counted) == 2 * done
    fitted.set_params(seed=4).fit(scene, labels, evaluate=False)
    before = sum(counted)
    fitted.predict(scene)
    assert sum(counted) - before == done - fitted.split_.val.size
    with torch.no_grad():
        fitted.model_.module.classcaps.viewpoints.mul_(0.5)
    before = sum(counted)
    fitted.predict(scene)
    assert sum(counted) - before == done
    assert pickle.loads(pickle.dumps(fitted))._known is None
