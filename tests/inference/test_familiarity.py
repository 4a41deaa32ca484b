"""Familiarity: what was labelled is told from what was not, on the scale of known ground, to the same bits anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypercaps import ConvCapsClassifier, Labels, Scene, SceneCache, Split, load_model, split_by_share
from hypercaps.compute.devices import use_threads
from hypercaps.data.splits.folds import draw_folds
from hypercaps.data.splits.units import label_units
from hypercaps.data.window import tile_windows
from hypercaps.errors import ModelFileError
from hypercaps.inference.familiarity import Familiarity
from hypercaps.inference.familiarity_fit import auroc, fit_familiarity
from hypercaps.inference.predict import map_familiarity
from hypercaps.training.patches import read_with_halo
from support.scenes import make_cube, make_fields


def fields() -> tuple[Scene, Labels]:
    """Fields of four classes; the ground between them looks like theirs."""
    cube, truth = make_fields(rows=60, cols=60, classes=4)
    return Scene.from_array(cube), Labels.from_array(truth)


def without(labels: Labels, label: int) -> Labels:
    return labels.only_pixels(np.flatnonzero((labels.array > 0) & (labels.array != label)))


def of_scene(found: Familiarity, scene: Scene) -> np.ndarray:
    return found.of_window(read_with_halo(scene, scene.whole, found.halo), np.ones(scene.shape[:2], dtype=bool))


@pytest.mark.parametrize("left_out", [1, 2, 3, 4])
def test_a_class_that_was_not_labelled_is_unfamiliar(left_out: int) -> None:
    scene, labels = fields()
    known = without(labels, left_out)
    split = split_by_share(known, 0.2, 0.1)
    familiarity = of_scene(fit_familiarity(SceneCache(scene), known, split, None, 0), scene)
    of_known, of_unknown = familiarity.ravel()[split.test], familiarity[labels.array == left_out]
    assert auroc(-of_known.astype(float), -of_unknown.astype(float)) > 0.99
    assert 0.01 < (of_known < 0.1).mean() < 0.25  # a tenth, give or take the few validation pixels
    assert (of_unknown < 0.1).mean() > 0.95


def test_pixels_without_validation_are_compared_with_other_units() -> None:
    cube, truth = make_fields(rows=60, cols=60, classes=4)
    own = np.random.default_rng(1).normal(scale=60, size=(6, 6, cube.shape[2]))  # every field has a look of its own
    scene = Scene.from_array(cube + np.repeat(np.repeat(own, 10, axis=0), 10, axis=1).astype(np.float32))
    labels = Labels.from_array(truth)
    nothing = np.empty(0, dtype=np.int64)
    all_labels = Split(np.flatnonzero(truth), nothing, nothing, shape=labels.shape)
    alone = fit_familiarity(SceneCache(scene), labels, all_labels, None, 0)
    by_units = fit_familiarity(SceneCache(scene), labels, all_labels, draw_folds(labels, label_units(labels)), 0)
    assert of_scene(by_units, scene).mean() > of_scene(alone, scene).mean() + 0.2
    assert np.median(by_units.known) > 2 * np.median(alone.known)


@pytest.mark.parametrize("of_each_class", [3, 8])
@pytest.mark.parametrize("with_folds", [True, False])
def test_known_ground_is_familiar_to_a_few_labels(of_each_class: int, with_folds: bool) -> None:
    cube, truth = make_fields(rows=60, cols=60, classes=4, bands=60)
    rng = np.random.default_rng(2)
    cube = cube + rng.normal(scale=cube.std() / 2, size=cube.shape).astype(np.float32)  # noise in every component
    flat = truth.ravel()
    train = np.sort(np.concatenate([rng.permutation(np.flatnonzero(flat == c))[:of_each_class] for c in (1, 2, 3, 4)]))
    labels = Labels.from_array(truth).only_pixels(train)
    folds = draw_folds(labels, label_units(labels)) if with_folds else None
    nothing = np.empty(0, dtype=np.int64)
    split = Split(train, nothing, nothing, shape=labels.shape)
    scene = Scene.from_array(cube)
    familiarity = of_scene(fit_familiarity(SceneCache(scene), labels, split, folds, 0), scene)
    others = np.setdiff1d(np.flatnonzero(flat), train)
    # A tenth of known ground, give or take what so few labels can tell.
    assert (familiarity.ravel()[others] < 0.1).mean() < 0.3


def test_one_pixel_of_each_class_is_enough() -> None:
    scene, labels = fields()
    flat = labels.array.ravel()
    train = np.sort([np.flatnonzero(flat == label)[0] for label in (1, 2, 3, 4)])
    nothing = np.empty(0, dtype=np.int64)
    found = fit_familiarity(SceneCache(scene), labels, Split(train, nothing, nothing, shape=labels.shape), None, 0)
    familiarity = of_scene(found, scene)
    assert len(found.prototypes) == 4 and ((familiarity > 0) & (familiarity <= 1)).all()


def test_a_window_is_not_larger_than_the_scene() -> None:
    cube, truth = make_fields(rows=60, cols=60)
    scene, labels = Scene.from_array(cube[:6]), Labels.from_array(truth[:6])
    assert fit_familiarity(SceneCache(scene), labels, split_by_share(labels, 0.3, 0.1), None, 0).window <= 6


@pytest.mark.parametrize("kernels", ["", "off"])
def test_the_bits_depend_neither_on_the_window_nor_on_threads(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_NATIVE", kernels)
    cube, truth = make_cube(rows=50, cols=47)
    labels = Labels.from_array(truth)
    found = fit_familiarity(SceneCache(Scene.from_array(cube)), labels, split_by_share(labels, 0.3, 0.1), None, 0)
    found = replace(found, window=7)
    cube[20:24, 10:18] = np.nan
    scene = Scene.from_array(cube)
    whole = of_scene(found, scene)
    assert np.isnan(whole).sum() == 0  # all pixels were asked for; a map leaves the invalid ones out
    rng = np.random.default_rng(0)
    for side, threads in ((1, 1), (16, 2), (33, 1)):
        use_threads(threads)
        windows = list(tile_windows(scene.whole, side))
        for at in windows if side > 1 else [windows[i] for i in rng.choice(len(windows), 40)]:
            inside = np.ones((at.r1 - at.r0, at.c1 - at.c0), dtype=bool)
            part = found.of_window(read_with_halo(scene, at, found.halo), inside)
            np.testing.assert_array_equal(part, whole[at.rows, at.cols])


def test_kernels_and_torch_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, labels = fields()
    found = fit_familiarity(SceneCache(scene), labels, split_by_share(labels, 0.2, 0.1), None, 0)
    compiled = of_scene(found, scene)
    monkeypatch.setenv("HYPERCAPS_NATIVE", "off")
    np.testing.assert_allclose(of_scene(found, scene), compiled, atol=2 / found.known.size)


def test_shares_of_known_ground() -> None:
    known = np.array([1.0, 2.0, 3.0, 4.0])
    found = Familiarity(1, np.zeros(2), np.eye(2), np.zeros((1, 2)), known)
    np.testing.assert_allclose(found.shares(np.array([0.0, 1.0, 2.5, 4.0, 8.0])), [1.0, 1.0, 0.6, 0.4, 0.1])
    np.testing.assert_allclose(found.distances(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32)), [25.0, 0.0])


def test_a_model_tells_it_of_any_scene(trained: ConvCapsClassifier) -> None:
    cube = make_cube()[0]
    cube[3, 4] = np.nan
    cube[20:30, 20:30] = 3000 - cube[20:30, 20:30]
    found = trained.familiarity(Scene.from_array(cube, wavelengths=np.arange(26) * 10 + 400))
    assert found.shape == (36, 36) and found.dtype == np.float32 and np.isnan(found[3, 4])
    assert np.isnan(found).sum() == 1 and found[22:28, 22:28].max() < 0.01 < np.nanmedian(found[:15, :15])


def test_two_fits_agree_to_the_bit() -> None:
    scene, labels = fields()
    split = split_by_share(labels, 0.2, 0.1)
    use_threads(1)
    one = fit_familiarity(SceneCache(scene), labels, split, None, 3)
    use_threads(2)
    other = fit_familiarity(SceneCache(scene), labels, split, None, 3)
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name])


def test_an_older_model_says_that_it_has_none(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    old = ConvCapsClassifier()
    old.model_ = replace(trained.model_, familiarity=None)
    old.save(tmp_path / "old.safetensors")
    with pytest.raises(ModelFileError, match="too old to tell: train it again"):
        load_model(tmp_path / "old.safetensors").familiarity(Scene.from_array(make_cube()[0]))
    with pytest.raises(ModelFileError, match="too old to tell"):
        map_familiarity(old.model_, Scene.from_array(make_cube()[0]))
