"""Maps of linear classifiers: without patches, equal to the network, the same bits for every window."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hypercaps.compute import native
from hypercaps.compute.devices import use_threads
from hypercaps.data.labels import Legend
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning
from hypercaps.inference import linear_map
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import map_scene, map_scores
from hypercaps.models.registry import get_method
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PREPROCESSINGS
from support.scenes import make_cube

compiled = pytest.mark.skipif(not native.available(), reason="hypercaps was installed without compiled kernels")
ROWS, COLS = 45, 39


def cube() -> np.ndarray:
    return make_cube(rows=ROWS, cols=COLS, bands=26)[0]


def with_holes() -> Scene:
    values = cube()
    values[np.random.default_rng(5).random((ROWS, COLS)) < 0.05] = np.nan
    values[20:30, 10:14] = np.nan
    return Scene.from_array(values)


def model(scene: Scene, patch: int, preprocessing: str = "standardising") -> TrainedModel:
    network = get_method("lda").network(scene.bands, 3, patch=patch)
    network.weight.normal_(generator=torch.Generator().manual_seed(1))
    network.bias.normal_(generator=torch.Generator().manual_seed(2))
    return TrainedModel("lda", patch, {}, network, PREPROCESSINGS[preprocessing](scene), Legend.of([2, 5, 7]))


def scores_by_patches(found: TrainedModel, scene: Scene) -> np.ndarray:
    store = PatchStore(scene, found.preprocessing, np.arange(ROWS * COLS), found.patch)
    with torch.inference_mode():
        return found.confidences(found.network(store.gather(torch.arange(ROWS * COLS)))).numpy().reshape(ROWS, COLS, 3)


@compiled
@pytest.mark.parametrize("preprocessing", PREPROCESSINGS)
@pytest.mark.parametrize("patch", [1, 5])
def test_a_map_is_what_the_network_says_of_each_patch(patch: int, preprocessing: str) -> None:
    scene = Scene.from_array(cube())
    made = model(scene, patch, preprocessing)
    assert linear_map.is_usable(made)
    np.testing.assert_allclose(map_scores(made, scene), scores_by_patches(made, scene), atol=1e-5)


@compiled
@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
@pytest.mark.parametrize("patch", [1, 3, 7])
def test_invalid_pixels_are_mirrored_as_in_patches(patch: int) -> None:
    scene = with_holes()
    made = model(scene, patch)
    valid = scene.read().valid
    found = map_scores(made, scene)
    assert np.isnan(found[~valid]).all()
    np.testing.assert_allclose(found[valid], scores_by_patches(made, scene)[valid], atol=1e-5)


@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
@pytest.mark.parametrize("kernels", ["", "off"])
@pytest.mark.parametrize("patch", [1, 7])
def test_bits_depend_neither_on_windows_nor_on_threads(
    patch: int, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPERCAPS_NATIVE", kernels)
    scene = with_holes()
    made = model(scene, patch)
    whole = map_scores(made, scene, window=10_000)
    before = torch.get_num_threads()
    try:
        for threads, window in ((1, 16), (2, 32), (2, 48)):
            use_threads(threads)
            np.testing.assert_array_equal(map_scores(made, scene, window=window), whole)
    finally:
        use_threads(before)


@compiled
def test_a_pixel_alone_has_the_bits_of_the_map() -> None:
    scene = with_holes()
    with pytest.warns(DataWarning):
        made = model(scene, 5)
    with pytest.warns(DataWarning):
        whole = map_scene(made, scene)
    only = np.zeros((ROWS, COLS), dtype=bool)
    only[3, 7] = only[33, 20] = True
    only &= scene.read().valid
    found = map_scene(made, scene, only=only)
    np.testing.assert_array_equal(found.confidence[only], whole.confidence[only])
    np.testing.assert_array_equal(found.classes[only], whole.classes[only])


@compiled
def test_without_kernels_the_map_is_the_same_up_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene.from_array(cube())
    made = model(scene, 3)
    expected = map_scores(made, scene)
    monkeypatch.setenv("HYPERCAPS_NATIVE", "off")
    assert not linear_map.is_usable(made)
    np.testing.assert_allclose(map_scores(made, scene), expected, atol=1e-5)
