"""The recipe ``best``: a network that is trained on the labels and on pseudo-labels propagated from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hypercaps import ConvCapsClassifier, Labels, Scene, Split
from hypercaps.compute.devices import threads_in_use, use_threads
from hypercaps.errors import DataWarning
from hypercaps.inference.metrics import score
from hypercaps.models.recipes import SelfTraining
from hypercaps.models.registry import get_method
from hypercaps.training.loop import Progress
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PREPROCESSINGS, PCAWhitening
from hypercaps.training.window_lda import window_lda

QUICK = {"epochs": 6, "batch_size": 32}


def fields(seed: int = 0) -> tuple[Scene, Labels, Split]:
    """Six fields of two crops in much noise, whose spectra drift from field to field, and four labels in each field.

    Too few labels to learn a field's spectrum; the scene shows where a field ends.
    """
    rng = np.random.default_rng(seed)
    rows, cols, bands = 24, 48, 26
    field = (np.arange(cols) // 8)[None].repeat(rows, axis=0)
    truth = field % 2 + 1
    waves = np.linspace(0, 1, bands)
    crops = np.stack([np.sin(2 * np.pi * waves), np.sin(4 * np.pi * waves)])
    drift = np.stack([np.cos(2 * np.pi * (k + 1) * waves) for k in range(6)])
    noise = 45 * rng.standard_normal((rows, cols, bands))
    cube = 1000 + 40 * crops[truth - 1] + 60 * drift[field] + noise
    labels = Labels.from_array(truth.astype(np.int16))
    train = [r * cols + c + 8 * f for f in range(6) for r in (2, 12) for c in (2, 5)]
    val = [20 * cols + c for c in range(2, cols, 4)]
    test = np.setdiff1d(np.arange(rows * cols), [*train, *val])
    return (
        Scene.from_array(cube.astype(np.float32), name="fields"),
        labels,
        Split.from_indices(labels, train, val, test),
    )


def test_with_few_labels_it_beats_the_papers_recipe() -> None:
    scene, labels, split = fields()
    found = {
        recipe: ConvCapsClassifier(recipe=recipe, batch_size=16, epochs=20).fit(scene, labels, split).scores_.oa
        for recipe in ("best", "paper")
    }
    assert found["best"] > found["paper"] + 5 and found["best"] > 90, found


def test_the_guide_is_lda_on_the_means_of_patches() -> None:
    scene, labels, split = fields()
    lda = ConvCapsClassifier(method="lda", patch=7).fit(scene, labels, split, evaluate=False)
    expected = lda.lengths(scene).reshape(-1, 2)
    whitening = PREPROCESSINGS["centred whitening"](scene)
    assert isinstance(whitening, PCAWhitening)
    everything = np.concatenate([split.train, np.setdiff1d(np.arange(labels.array.size), split.train)])
    store = PatchStore(scene, whitening, everything, 7)
    targets = torch.from_numpy(labels.array.ravel()[split.train].astype(np.int64) - 1)
    found = window_lda(store, whitening, torch.arange(split.train.size), targets, 2)
    np.testing.assert_allclose(found, expected[everything], atol=1e-3)
    assert 0.5 < found.max(axis=1).mean() < 1


def test_the_guide_takes_part_in_the_second_stage_only() -> None:
    scene, labels, split = fields()
    plain, guided = (
        ConvCapsClassifier(recipe=recipe, **QUICK).fit(scene, labels, split) for recipe in ("best", "guided")
    )
    losses = [[record.loss for record in fitted.history_] for fitted in (plain, guided)]
    assert losses[0][:6] == losses[1][:6] and losses[0][6:] != losses[1][6:]
    assert guided.model_.recipe.name == "guided" and guided.scores_.oa > 85


def test_the_model_records_how_it_was_trained() -> None:
    scene, labels, split = fields()
    fitted = ConvCapsClassifier(**QUICK).fit(scene, labels, split)
    record = fitted.model_.recipe
    assert (record.name, record.epochs, record.second_epochs, record.extra) == ("best", 6, 6, 1000)
    assert record.best_epoch == 12 == len(fitted.history_)
    assert [record.stage for record in fitted.history_] == [1] * 6 + [2] * 6


def test_threads_change_no_bit() -> None:
    scene, labels, split = fields()
    before = threads_in_use()
    try:
        weights = []
        for threads in (1, 3):
            use_threads(threads)
            fitted = ConvCapsClassifier(**QUICK | {"epochs": 2}).fit(scene, labels, split, evaluate=False)
            weights.append(fitted.model_.network.state_dict())
    finally:
        use_threads(before)
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_progress_continues_through_both_stages() -> None:
    steps: list[Progress] = []
    scene, labels, split = fields()
    ConvCapsClassifier(**QUICK).fit(scene, labels, split, evaluate=False, on_progress=steps.append)
    done = [step.done for step in steps]
    assert done == sorted(done) and done[-1] == pytest.approx(1)
    assert [step.epoch for step in steps] == sorted(step.epoch for step in steps)
    assert steps[-1].last is not None and steps[-1].last.epoch == 12 == steps[-1].epochs
    assert steps[-1].last.stage == 2


@pytest.mark.parametrize("stop_at", [3, 6.5, 7, 9])
def test_ctrl_c_keeps_a_model_of_either_stage(stop_at: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(now: Progress) -> None:
        if now.epoch == stop_at:
            raise KeyboardInterrupt

    if stop_at == 6.5:  # between the stages

        def propagate(*args: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("hypercaps.training.label_propagation.propagate", propagate)
    scene, labels, split = fields()
    fitted = ConvCapsClassifier(**QUICK).fit(scene, labels, split, on_progress=stop)
    history = fitted.history_
    assert history.interrupted and len(history) == {3: 2, 6.5: 6, 7: 6, 9: 8}[stop_at]
    kept = history[history.best_epoch - 1]
    truth, predicted = labels.array.ravel()[split.val], fitted.predict(scene).ravel()[split.val]
    assert score(truth, predicted, labels.legend).oa == pytest.approx(kept.val_oa)  # the weights are that epoch's
    if stop_at == 9:
        assert kept.val_oa >= history[5].val_oa
    # The model records pseudo-labelled pixels only if the network that was kept was trained on them.
    assert bool(fitted.model_.recipe.extra) == bool(fitted.model_.recipe.second_epochs) == (kept.stage == 2)


def test_nodata_pixels_are_not_used() -> None:
    scene, labels, split = fields()
    cube = scene.read(slice(0, 24), slice(0, 48)).values.copy()
    cube[0, :, :] = np.nan
    known = labels.array.copy()
    known[0] = 0
    labels = Labels.from_array(known)
    split = Split.from_indices(labels, split.train, split.val, split.test[split.test >= 48])
    with pytest.warns(DataWarning, match="hold NaN"):
        fitted = ConvCapsClassifier(**QUICK).fit(Scene.from_array(cube), labels, split)
        assert (fitted.predict(Scene.from_array(cube))[1:] > 0).all()


def test_in_a_larger_scene_only_pixels_near_the_labels_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, labels, split = fields()
    monkeypatch.setattr(
        "hypercaps.training.label_propagation.region_near_labels.__defaults__", (200,)
    )  # less than a tile: nothing
    alone = ConvCapsClassifier(**QUICK).fit(scene, labels, split, evaluate=False)
    assert alone.model_.recipe.second_epochs == 0 and len(alone.history_) == 6  # the first network is all there is


class TestStages:
    recipe = get_method("convcapsnet").recipe("best")

    @pytest.mark.parametrize(
        ("pixels", "first", "second", "extra"),
        [
            (160, 40, 17, 1000),
            (300, 40, 15, 1000),
            (512, 40, 20, 1000),
            (1024, 29, 22, 1024),
            (2045, 15, 11, 2045),
            (40_000, 8, 6, 40_000),
        ],
    )
    def test_many_labels_need_fewer_epochs(self, pixels: int, first: int, second: int, extra: int) -> None:
        assert isinstance(self.recipe, SelfTraining)
        found = self.recipe.stages(pixels, 200_000, self.recipe.epochs_for(pixels))
        assert found == (first, second, extra)

    def test_the_users_epochs_are_those_of_the_first_stage(self) -> None:
        assert isinstance(self.recipe, SelfTraining)
        assert self.recipe.stages(1000, 5000, 100) == (100, 75, 1000)
        assert self.recipe.stages(1000, 5000, 1) == (1, 1, 1000)
        assert self.recipe.stages(160, 5000, 20) == (20, 9, 1000)  # half of 40 epochs: half of the least second stage
        assert self.recipe.stages(1000, 10, 20)[2] == 10 and self.recipe.stages(1000, 0, 20) == (20, 0, 0)
