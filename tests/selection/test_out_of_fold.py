"""Out-of-fold predictions, the model that is kept, and that neither depends on what it must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from threadpoolctl import threadpool_limits

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.compute.devices import use_threads
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning
from hypercaps.inference.model import TrainedModel
from hypercaps.pipeline.evaluate import run_metrics
from hypercaps.selection import final, out_of_fold
from hypercaps.selection.fit import FittedModel
from hypercaps.training.job import TrainingJob
from support.scenes import make_fields


def opened(**options: Any) -> tuple[Scene, Labels]:
    cube, labels = make_fields(**options)
    return Scene.from_array(cube, name="fields"), Labels.from_array(labels, name="fields")


class Recorder:
    """The trainings of folds and of the final model, and which pixels each model of a fold was asked about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folds: list[tuple[TrainingJob, TrainedModel]] = []
        self.final: list[TrainingJob] = []
        self.scored: list[tuple[TrainedModel, npt.NDArray[np.int64], npt.NDArray[np.float32]]] = []
        fit_fold, fit_final, score = out_of_fold.fit_model, final.fit_model, out_of_fold.pixel_scores

        def fold(job: TrainingJob, **options: Any) -> FittedModel:
            fitted = fit_fold(job, **options)
            self.folds.append((job, fitted.model))
            return fitted

        def last(job: TrainingJob, **options: Any) -> FittedModel:
            self.final.append(job)
            return fit_final(job, **options)

        def scores(model: TrainedModel, scene: Scene, pixels: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
            found = score(model, scene, pixels)
            self.scored.append((model, pixels, found))
            return found

        monkeypatch.setattr(out_of_fold, "fit_model", fold)
        monkeypatch.setattr(final, "fit_model", last)
        monkeypatch.setattr(out_of_fold, "pixel_scores", scores)


@pytest.mark.parametrize(("folds", "count"), [(None, 5), (3, 3), (16, 16)])
def test_every_pixel_is_predicted_by_a_model_that_has_not_seen_its_unit(
    folds: int | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorder(monkeypatch)
    scene, labels = opened()
    fitted = ConvCapsClassifier(method="lda", split_by="folds", folds=folds).fit(scene, labels)
    assert fitted.folds_ is not None and fitted.folds_.count == count == len(recorded.folds)
    units = fitted.folds_.units
    unit_of = dict(zip(units.pixels.tolist(), units.unit.tolist(), strict=True))
    assert units.count == 16  # the fields
    asked = []
    for (job, model), (scoring, pixels, _) in zip(recorded.folds, recorded.scored, strict=True):
        assert scoring is model
        trained = {unit_of[pixel] for pixel in job.split.train.tolist()}
        assert trained.isdisjoint(unit_of[pixel] for pixel in pixels.tolist())
        assert np.isin(job.split.train, units.pixels).all() and job.split.val.size == 0
        asked.append(pixels)
    # Each labelled pixel once
    np.testing.assert_array_equal(np.sort(np.concatenate(asked)), np.flatnonzero(labels.array))


def test_the_score_is_that_of_the_out_of_fold_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorder(monkeypatch)
    scene, labels = opened(noise=150.0)
    fitted = ConvCapsClassifier(method="lda", split_by="folds").fit(scene, labels)
    confusion = np.zeros((3, 3), dtype=int)
    for _, pixels, scores in recorded.scored:
        np.add.at(confusion, (labels.array.ravel()[pixels] - 1, scores.argmax(axis=1)), 1)
    assert 0.5 < np.trace(confusion) / confusion.sum() < 0.99  # or a perfect score could come from anywhere
    np.testing.assert_array_equal(fitted.scores_.confusion, confusion)
    assert fitted.scores_.n_test == (labels.array > 0).sum()
    assert fitted.scores_.oa == pytest.approx(100 * np.trace(confusion) / confusion.sum())
    # The kept model has seen them all and does better on them.
    with pytest.warns(DataWarning, match="the score is too high"):
        assert fitted.evaluate(scene, labels).oa > fitted.scores_.oa
    fitted.evaluate(Scene.from_array(scene.read().values + 1, name=scene.name), labels)  # of another scene: no warning


def test_the_kept_model_is_that_of_all_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorder(monkeypatch)
    scene, labels = opened(noise=100.0)
    folded = ConvCapsClassifier(method="lda", split_by="folds", seed=3).fit(scene, labels)
    every = np.flatnonzero(labels.array)
    assert len(recorded.final) == 1
    np.testing.assert_array_equal(recorded.final[0].split.train, every)
    assert run_metrics(folded).n_train == folded.model_.split.n_train == every.size
    plain = ConvCapsClassifier(method="lda", split_by="none", seed=3).fit(scene, labels)
    assert_same_model(folded.model_, plain.model_)
    np.testing.assert_array_equal(folded.lengths(scene), plain.lengths(scene))
    assert folded.model_.calibration is not None and plain.model_.calibration is None
    assert not hasattr(plain, "scores_") and plain.baseline_ is None


def assert_same_model(one: TrainedModel, other: TrainedModel) -> None:
    for key, value in one.network.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), other.network.state_dict()[key].numpy(), err_msg=key)
    for key, array in one.preprocessing.arrays().items():
        np.testing.assert_array_equal(array, other.preprocessing.arrays()[key], err_msg=key)


def test_units_that_only_train_are_no_part_of_the_sample() -> None:
    labels, groups = np.zeros((26, 6), dtype=np.int16), np.zeros((26, 6), dtype=np.int32)
    for polygon in range(13):  # six of each of two classes, one of the third
        labels[2 * polygon, :3], groups[2 * polygon, :3] = 3 if polygon == 12 else 1 + polygon % 2, polygon + 1
    cube = np.random.default_rng(0).normal(size=(26, 6, 5)) + 3 * labels[:, :, None]
    with pytest.warns(DataWarning, match="can't be tested"):
        fitted = ConvCapsClassifier(method="lda", split_by="folds").fit(cube, Labels.from_array(labels, groups=groups))
    metrics = run_metrics(fitted)
    assert (metrics.units, metrics.n_units, metrics.n_test, metrics.n_train) == ("polygons", 12, 36, 39)


@pytest.mark.parametrize("pixels", [1, 9])
def test_a_class_with_one_unit_is_trained_and_not_tested(pixels: int) -> None:
    cube, labels = make_fields()
    cube[20:23, 6:9] += 400
    labels[20:23, 6:9] = 0
    labels[20:23, 6:9].flat[:pixels] = 7
    labels[20:23, 6:9] = np.where(np.arange(9).reshape(3, 3) < pixels, 7, 0)
    scene, truth = Scene.from_array(cube), Labels.from_array(labels)
    with pytest.warns(DataWarning, match="can't be tested"):
        fitted = ConvCapsClassifier(method="lda", split_by="folds").fit(scene, truth)
    metrics = run_metrics(fitted)
    name = truth.legend.entries[3].name
    assert fitted.classes_.tolist() == [1, 2, 3, 7] and metrics.untested == (name,)
    row = fitted.scores_.per_class[3]
    assert (row.label, row.test, row.accuracy) == (7, 0, None)
    assert metrics.n_test == (labels > 0).sum() - pixels and metrics.n_train == (labels > 0).sum()
    assert (fitted.predict(scene)[20:23, 6:9] == 7).all()  # trained


def test_auto_compares_on_the_same_folds_and_keeps_all_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorder(monkeypatch)
    scene, labels = opened(noise=150.0)
    fitted = ConvCapsClassifier(method="auto", candidates=("lda", "logistic"), split_by="folds").fit(scene, labels)
    assert [job.method.name for job, _ in recorded.folds] == ["lda"] * 5 + ["logistic"] * 5
    for k in range(5):
        lda, logistic = (recorded.folds[first + k][0].split for first in (0, 5))
        np.testing.assert_array_equal(lda.train, logistic.train)
    assert fitted.selection_ is not None
    chosen = [row for row in fitted.selection_.rows if row.outcome == "chosen" or "weight" in row.outcome]
    assert {job.method.name for job in recorded.final} == {row.method for row in chosen}
    assert all(job.split.train.size == (labels.array > 0).sum() for job in recorded.final)
    assert fitted.baseline_ is not None and fitted.baseline_.oa == fitted.selection_.rows[0].oa


def test_auto_with_a_random_split_compares_on_its_training_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorder(monkeypatch)
    scene, labels = opened(noise=150.0)
    fitted = ConvCapsClassifier(method="auto", candidates=("lda", "logistic"), train=0.5).fit(scene, labels)
    seen = np.concatenate([job.split.train for job, _ in recorded.folds] + [pixels for _, pixels, _ in recorded.scored])
    assert np.isin(seen, fitted.split_.train).all()
    assert not np.isin(seen, fitted.split_.test).any()
    assert fitted.scores_.n_test == fitted.split_.test.size


@pytest.mark.usefixtures("restored_threads")
@pytest.mark.parametrize(
    "options",
    [
        {"method": "lda"},
        {"method": "logistic"},
        {"method": "random-forest"},
        {"method": "auto", "candidates": ("lda", "logistic", "random-forest")},
    ],
    ids=lambda options: options["method"],
)
def test_nothing_depends_on_the_number_of_threads(options: dict[str, Any]) -> None:
    scene, labels = opened(rows=30, cols=30, bands=40, noise=200.0)
    found: list[ConvCapsClassifier] = []
    for threads in (1, 2, 3):
        use_threads(threads)
        with threadpool_limits(threads, user_api="blas"):
            found.append(ConvCapsClassifier(split_by="folds", folds=2, **options).fit(scene, labels))
    one = found[0]
    assert one.selection_ is not None
    for two in found[1:]:
        assert two.selection_ is not None
        np.testing.assert_array_equal(one.selection_.final.raw, two.selection_.final.raw)
        for first, second in zip(one.model_.members, two.model_.members, strict=True):
            assert (first.method, first.weight) == (second.method, second.weight)
            assert_same_model(first, second)
        assert one.scores_.to_json() == two.scores_.to_json()
        assert [row.log_loss for row in one.selection_.rows] == [row.log_loss for row in two.selection_.rows]
        np.testing.assert_array_equal(one.predict_proba(scene), two.predict_proba(scene))


def test_pieces_of_one_area_are_one_sample() -> None:
    """Three large areas, cut into many pieces: the interval is that of one or two areas of a class, not of pieces."""
    cube = np.random.default_rng(0).normal(size=(60, 60, 8)).astype(np.float32)
    array = np.zeros((60, 60), dtype=np.int16)
    array[:40, :20], array[:20, 40:], array[40:, 40:] = 1, 2, 2
    cube[array == 2] += 4
    labels = Labels.from_array(array)
    fitted = ConvCapsClassifier(method="lda", split_by="folds", block=8).fit(Scene.from_array(cube), labels)
    selection, scores = fitted.selection_, fitted.scores_
    assert selection is not None and scores is not None and scores.oa_interval is not None
    problem = selection.problem
    assert (problem.folds.units.per_class() > 10).all()
    assert problem.samples(problem.truth, 2).tolist() == [1, 2]
    assert scores.oa > 95 and scores.oa_interval[0] < 60
