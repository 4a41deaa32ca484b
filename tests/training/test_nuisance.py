"""Changes of light, calibration and wavelength: their covariance, and models that survive them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from hypercaps import ConvCapsClassifier, Labels, Scene, open_labels, open_scene, split_by_share
from hypercaps.training import nuisance
from hypercaps.training.preprocessing import PCAWhitening, robust_whitening

Cube = npt.NDArray[np.float32]


def half_a_band(cube: Cube) -> Cube:
    shifted = cube.copy()
    shifted[:, :, :-1] = (cube[:, :, :-1] + cube[:, :, 1:]) / 2
    return shifted


CHANGES = {
    "darker": lambda cube: np.float32(0.9) * cube,
    "brighter": lambda cube: np.float32(1.1) * cube,
    "offset": lambda cube: cube + np.float32(0.02) * cube.mean(),
    "half a band": half_a_band,
}


@pytest.fixture(scope="module")
def scene() -> Scene:
    return open_scene("indian-pines")


def cube_of(scene: Scene) -> Cube:
    return scene.read(slice(None), slice(None)).values


def test_the_covariance_is_that_of_changed_spectra() -> None:
    rng = np.random.default_rng(0)
    bands, count = 6, 400_000
    spectra = rng.normal(size=(count, bands)) @ rng.normal(size=(bands, bands)) + np.arange(5, 5 + bands)
    mean, covariance = spectra.mean(axis=0), np.cov(spectra.T)
    gain = nuisance.GAIN * rng.normal(size=(count, 1)) * spectra
    offset = nuisance.OFFSET * mean.mean() * rng.normal(size=(count, 1))
    up = np.concatenate([spectra[:, 1:], spectra[:, -1:]], axis=1)
    down = np.concatenate([spectra[:, :1], spectra[:, :-1]], axis=1)
    neighbour = np.where(rng.random((count, 1)) < 0.5, up, down)
    change = gain + offset + rng.choice([-1, 1], size=(count, 1)) * nuisance.SHIFT * (neighbour - spectra)
    expected = nuisance.nuisance_covariance(mean, covariance)
    assert np.abs(change.T @ change / count - expected).max() < 0.01 * np.abs(expected).max()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_whole_scene_moves_no_component_far(scene: Scene, change: str) -> None:
    cube = cube_of(scene)
    moved = (CHANGES[change](cube) - cube).reshape(-1, scene.bands).mean(axis=0, dtype=np.float64)
    plain, robust = PCAWhitening.fit(scene), robust_whitening(scene)
    far, near = (float(np.linalg.norm(moved @ whitening.matrix)) for whitening in (plain, robust))
    assert near < 1.5 and far > 20 * near  # in standard deviations


def test_a_trained_network_survives_changes(scene: Scene) -> None:
    labels = open_labels("indian-pines")
    part = np.s_[60:, :70]
    cube = cube_of(scene)[part]
    own = Labels.from_array(labels.array[part])
    split = split_by_share(own, 0.2, 0.1, seed=100)
    trained = ConvCapsClassifier(recipe="augmented", epochs=6).fit(Scene.from_array(cube), own, split)
    tested = split.test_mask(own)

    def accuracy(changed: Cube) -> float:
        return float((trained.predict(Scene.from_array(changed))[tested] == own.array[tested]).mean())

    unchanged = accuracy(cube)
    assert unchanged > 0.9
    for name, change in CHANGES.items():
        assert accuracy(change(cube)) > unchanged - (0.06 if name == "half a band" else 0.01)
