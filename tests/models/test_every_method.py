"""One contract for every registered method, whatever it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hypercaps import ConvCapsClassifier, Labels, Scene, load_model
from hypercaps.errors import DataWarning, ModelError, ModelFileError
from hypercaps.inference.predict import map_scores
from hypercaps.models.registry import METHODS, Method
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import kind_of
from support.scenes import QUICK, make_cube

# Small enough for tests, and for the made scene's 26 bands.
SMALL = {
    "mlp": {"hidden": [64, 64]},
    "3d-cnn": {"filters": 8, "window": 6, "kernel": 2, "dropout": 0.3},
    "capsnet": {"filters": 16, "primary_arrays": 4},
}
PATCHES = {"3d-cnn": 11}  # what its smaller kernels want
SMALLER_BATCH = {"3d-cnn": 4}  # its recipe takes small steps
LONGER = {"mlp": 40, "3d-cnn": 15}  # epochs, where those of QUICK are not enough
BANDS, CLASSES = 26, 3


def made() -> tuple[Scene, Labels]:
    cube, labels = make_cube()
    return Scene.from_array(cube, name="made"), Labels.from_array(labels, name="made")


def classifier(name: str, **changes: object) -> ConvCapsClassifier:
    """A classifier of the method with settings that suit the made scene."""
    options = dict(QUICK, method=name, structure=SMALL.get(name), patch=PATCHES.get(name))
    options |= {"epochs": LONGER.get(name, QUICK["epochs"]), "batch_size": SMALLER_BATCH.get(name, QUICK["batch_size"])}
    options |= changes
    if not METHODS[name].recipe().has_epochs:
        del options["epochs"], options["batch_size"]
    return ConvCapsClassifier(**options)


@pytest.fixture(scope="module", params=METHODS)
def fitted(request: pytest.FixtureRequest) -> ConvCapsClassifier:
    """Every method, trained on the made scene; not to be changed."""
    return classifier(request.param).fit(*made())


def method_of(fitted: ConvCapsClassifier) -> Method:
    return METHODS[fitted.method]


def some_patches(fitted: ConvCapsClassifier, n: int = 12) -> torch.Tensor:
    scene, _ = made()
    pixels = np.random.default_rng(3).choice(scene.rows * scene.cols, n, replace=False)
    return PatchStore(scene, fitted.model_.preprocessing, pixels, fitted.model_.patch).gather(torch.arange(n))


def test_it_learns_the_made_scene(fitted: ConvCapsClassifier) -> None:
    assert fitted.scores_.oa > 95


def test_scores_do_not_depend_on_the_batch(fitted: ConvCapsClassifier) -> None:
    network, patches = fitted.model_.network, some_patches(fitted)
    order = torch.tensor([7, 0, 11, 3])
    with torch.inference_mode():
        whole = network(patches)
        assert whole.shape == (12, CLASSES)
        torch.testing.assert_close(network(patches[order]), whole[order], rtol=1e-4, atol=1e-5)


def test_maps_are_the_same_to_the_bit_whatever_the_window(fitted: ConvCapsClassifier) -> None:
    scene, _ = made()
    whole = map_scores(fitted.model_, scene, window=64)
    for window in (16, 20):
        np.testing.assert_array_equal(map_scores(fitted.model_, scene, window=window), whole)


def test_a_map_equals_the_scores_of_each_patch(fitted: ConvCapsClassifier) -> None:
    scene, _ = made()
    pixels = np.array([0, 17, 35, 36 * 20 + 3, 36 * 36 - 1])  # corners too
    store = PatchStore(scene, fitted.model_.preprocessing, pixels, fitted.model_.patch)
    with torch.inference_mode():
        expected = fitted.model_.confidences(fitted.model_.network(store.gather(torch.arange(5))))
    found = fitted.lengths(scene).reshape(-1, CLASSES)[pixels]
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-5)


def test_confidence_is_between_0_and_1_and_its_highest_is_the_class(fitted: ConvCapsClassifier) -> None:
    scene, _ = made()
    found = fitted.map(scene)
    assert ((found.confidence >= 0) & (found.confidence <= 1)).all()
    np.testing.assert_array_equal(fitted.classes_[fitted.predict_proba(scene).argmax(axis=2)], found.classes)


def test_scores_are_finite_even_for_extreme_input(fitted: ConvCapsClassifier) -> None:
    patches = some_patches(fitted)
    with torch.inference_mode():
        for scale in (0.0, 1.0, 1e4):
            assert torch.isfinite(fitted.model_.confidences(fitted.model_.network(scale * patches))).all()


def test_another_number_of_bands_is_refused(fitted: ConvCapsClassifier) -> None:
    other = Scene.from_array(make_cube(bands=BANDS + 1)[0])
    with pytest.raises(ModelFileError, match=f"{BANDS} bands.*has {BANDS + 1}"):
        fitted.predict(other)


def test_saved_and_loaded_it_gives_the_same_bits(fitted: ConvCapsClassifier, tmp_path: Path) -> None:
    scene, _ = made()
    fitted.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(scene), fitted.predict_proba(scene))
    assert loaded.model_.describe() == fitted.model_.describe()
    assert kind_of(loaded.model_.preprocessing) == method_of(fitted).preprocessing.split()[-1]
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_bits_and_torchs_own_generator_is_left_alone(name: str) -> None:
    changes = {"epochs": 2} if METHODS[name].recipe().has_epochs else {}
    one = classifier(name, **changes).fit(*made(), evaluate=False)
    torch.randn(3)  # another state of torch's own generator
    before = torch.get_rng_state()
    again = classifier(name, **changes).fit(*made(), evaluate=False)
    assert torch.equal(torch.get_rng_state(), before)
    for key, value in one.model_.network.state_dict().items():
        assert torch.equal(again.model_.network.state_dict()[key], value), key


@pytest.mark.parametrize("name", METHODS)
def test_one_epoch_lowers_the_loss(name: str) -> None:
    scene, labels = made()
    changes = {"epochs": 1} if METHODS[name].recipe().has_epochs else {}
    one = classifier(name, val=0.0, **changes)  # without validation the last weights are kept
    model = one.fit(scene, labels, evaluate=False).model_
    pixels = one.split_.train
    patches = PatchStore(scene, model.preprocessing, pixels, model.patch).gather(torch.arange(pixels.size))
    targets = torch.from_numpy(np.searchsorted(model.legend.labels, labels.array.ravel()[pixels]))
    structure = {**(METHODS[name].recipe().structure or {}), **SMALL.get(name, {})}
    fresh = METHODS[name].network(BANDS, CLASSES, patch=model.patch, seed=one.seed, structure=structure).eval()
    with torch.inference_mode():
        before, after = (float(METHODS[name].loss(network(patches), targets)) for network in (fresh, model.network))
    assert after < before


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].recipe().has_epochs])
def test_gradients_reach_every_weight(name: str) -> None:
    method = METHODS[name]
    structure = {**SMALL.get(name, {}), **(method.recipe().structure or {})}
    patch = PATCHES.get(name, method.patch)
    network = method.network(BANDS, CLASSES, patch=patch, seed=1, structure=structure).train()
    patches = torch.randn(12, patch, patch, BANDS, generator=torch.Generator().manual_seed(3))
    targets = torch.arange(12) % CLASSES
    if method.semi_supervised is not None:
        loss = method.semi_supervised(network, patches, targets, patches.flip(0))
    else:
        loss = method.loss(network(patches), targets)
    loss.backward()
    for key, weight in network.named_parameters():
        assert weight.grad is not None and weight.grad.abs().max() > 0, key


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.patch > 5])
def test_a_patch_larger_than_the_scene_is_refused(name: str) -> None:
    cube, labels = make_cube(rows=5, cols=30)
    with pytest.raises(ModelError, match=r"looks at patches of (\d+) x \1 pixels but scene 'strip' has 5 x 30"):
        classifier(name).fit(Scene.from_array(cube, name="strip"), Labels.from_array(labels))


def test_invalid_pixels_get_no_class_and_their_neighbours_get_one(fitted: ConvCapsClassifier) -> None:
    cube, _ = make_cube()
    cube[10, 12] = np.nan
    scene = Scene.from_array(cube)
    with pytest.warns(DataWarning, match="1 of 1296"):
        found = fitted.map(scene)
    with pytest.warns(DataWarning, match="1 of 1296"):
        lengths = fitted.lengths(scene)
    assert found.classes[10, 12] == 0 and np.isnan(found.confidence[10, 12])
    store = PatchStore(scene, fitted.model_.preprocessing, np.array([10 * 36 + 13]), fitted.model_.patch)
    with torch.inference_mode():
        expected = fitted.model_.confidences(fitted.model_.network(store.gather(torch.tensor([0])))).max()
    assert found.classes[10, 13] > 0 and lengths[10, 13].max() == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_a_training_that_exceeds_the_free_memory_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypercaps.training.memory.available_memory", lambda: 1000)
    with pytest.raises(ModelError, match=rf"^{name} needs about \d+\.\d GB to train on scene 'made'.*are free"):
        classifier(name).fit(*made())
