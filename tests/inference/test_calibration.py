"""Probabilities that are what they say, and sets that hold the truth as often as was asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import ModelFileError
from hypercaps.inference.calibration import (
    FITS,
    Calibration,
    cross_calibrate,
    fit_calibration,
    fit_temperature,
    isotonic,
)
from hypercaps.inference.metrics import RejectionRow, calibration_error, rejection_table, reliability
from hypercaps.inference.model_file import read_model, write_model
from hypercaps.inference.predict import WindowOutputs, map_scores, map_windows, windows_of
from support.scenes import QUICK, make_cube

Floats = npt.NDArray[np.float32]


def made_scores(n: int, seed: int, *, classes: int = 6, bend: float = 0.3) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Scores whose true probabilities are known: p ** bend, which is not a probability, and classes drawn by p."""
    rng = np.random.default_rng(seed)
    logits = 2.2 * rng.standard_normal((n, classes))
    likely = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = (likely.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return (likely**bend).astype(np.float32), truth


def error_of(confidence: npt.NDArray[np.floating], right: npt.NDArray[np.bool_]) -> float:
    return calibration_error(reliability(confidence, right))


def test_a_bent_scale_is_straightened() -> None:
    scores, truth = made_scores(3000, 0)
    found = fit_calibration(scores, truth)
    assert found.temperature == pytest.approx(0.3, rel=0.1)  # what bent it
    fresh, fresh_truth = made_scores(5000, 1)
    right = fresh.argmax(axis=1) == fresh_truth
    likely = found(fresh)
    assert error_of(fresh.max(axis=1), right) > 0.15 and error_of(likely.max(axis=1), right) < 0.03
    np.testing.assert_allclose(likely.sum(axis=1), 1, atol=1e-5)


def test_isotonic_is_taken_where_a_temperature_can_not_help() -> None:
    """Pixels that seem all but certain are right in three of four, those that seem to be in doubt a little less."""
    rng = np.random.default_rng(0)
    certain = rng.random(4000) < 0.5
    of_winner = np.where(certain, 0.99, 0.62) + 0.005 * rng.random(4000)
    scores = np.stack([of_winner, (1 - of_winner) / 2, (1 - of_winner) / 2], axis=1)
    truth = np.where(rng.random(4000) < np.where(certain, 0.75, 0.62), 0, rng.integers(1, 3, 4000))
    found = fit_calibration(scores, truth)
    assert found.kind == "isotonic"
    right = truth == 0
    assert error_of(found(scores).max(axis=1), right) < 0.05
    assert fit_calibration(scores[:20], truth[:20]).kind != "isotonic"  # too few for more than one number


def test_all_right_does_not_mean_certain() -> None:
    for n in (5, 60):
        truth = np.arange(n) % 3
        scores = np.full((n, 3), 0.1, np.float32)
        scores[np.arange(n), truth] = 0.9
        confidence = fit_calibration(scores, truth)(scores).max()
        assert 0.8 < confidence < 1 - 0.1 / n


def vote_scores(n: int, seed: int, *, accuracy: float) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Scores as an SVM of three classes gives them: shares of won pairs, which don't sum to 1.

    The winner's score is about the accuracy: as a confidence, it needs no calibration.
    """
    rng = np.random.default_rng(seed)
    order = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1)  # winner, second, last
    scores = np.empty((n, 3), np.float32)
    for place, score in enumerate((accuracy, 0.5, 0.1)):
        scores[np.arange(n), order[:, place]] = score + 0.02 * rng.uniform(-1, 1, n)
    return scores, np.where(rng.random(n) < accuracy, order[:, 0], order[:, 1])


@pytest.mark.parametrize("pixels", [2, 5, 12, 21, 60])
def test_few_pixels_do_no_harm_to_good_scores(pixels: int) -> None:
    fresh, truth = vote_scores(4000, 10**6, accuracy=0.97)
    right = fresh.argmax(axis=1) == truth
    found = [fit_calibration(*vote_scores(pixels, seed, accuracy=0.97))(fresh).max(axis=1) for seed in range(30)]
    after = [error_of(confidence, right) for confidence in found]
    assert error_of(fresh.max(axis=1), right) < 0.02 and np.mean(after) < 0.03 and max(after) < 0.1
    assert min(confidence.min() for confidence in found) > 0.8  # --reject 0.6 removes nothing


def test_too_few_pixels_keep_the_scores() -> None:
    scores, truth = made_scores(9, 0)
    found = fit_calibration(scores, truth)
    assert found.kind == "none" and found.pixels == 9 and found.conformity.size == 9
    likely = found(scores)
    unequal = scores.max(axis=1) > 0.6  # elsewhere another class would get more than the winner
    np.testing.assert_array_equal(likely.max(axis=1)[unequal], scores.max(axis=1)[unequal])
    np.testing.assert_allclose(likely.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(likely.argmax(axis=1), scores.argmax(axis=1))


def test_more_pixels_improve_bad_scores_more() -> None:
    """Scores that are far off are calibrated, the better the more pixels there are."""
    fresh, fresh_truth = made_scores(5000, 10**6)
    right = fresh.argmax(axis=1) == fresh_truth
    errors = [
        np.mean([error_of(fit_calibration(*made_scores(n, seed))(fresh).max(axis=1), right) for seed in range(10)])
        for n in (5, 40, 160, 2000)
    ]
    assert errors[0] > 0.15 and errors == sorted(errors, reverse=True) and errors[-1] < 0.03


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.05, 20),
    st.lists(st.floats(0, 1), min_size=0, max_size=5),
    st.sampled_from([1.0, 1e-3, 0.0]),
)
def test_the_winner_stays_the_winner(seed: int, temperature: float, shares: list[float], spread: float) -> None:
    rng = np.random.default_rng(seed)
    knots = np.sort(np.array(shares))
    calibration = Calibration(temperature, 9, np.linspace(0, 1, len(knots)), knots)
    scores = np.clip(0.5 + spread * (rng.random((50, 5)) - 0.5), 0, 1).astype(np.float32)
    scores[rng.random((50, 5)) < 0.2] = 0
    found = calibration(scores)
    np.testing.assert_array_equal(found.argmax(axis=1), scores.argmax(axis=1))
    assert (found >= 0).all() and (found <= 1).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["none", "temperature", "isotonic"])
def test_a_pixel_gets_the_same_bits_whatever_is_beside_it(kind: str) -> None:
    scores, _ = made_scores(40_000, 3, classes=16)
    knots = np.linspace(0, 1, 30) if kind == "isotonic" else np.empty(0)
    calibration = Calibration(0.37, 100, knots, knots**2, keeps_scores=kind == "none")
    whole = calibration(scores)
    for start, stop in ((0, 1), (7, 24), (16_380, 16_391), (39_999, 40_000)):
        np.testing.assert_array_equal(calibration(scores[start:stop]), whole[start:stop])
    np.testing.assert_array_equal(calibration(scores[::-3]), whole[::-3])


@pytest.fixture(scope="module")
def twenty() -> list[tuple[Calibration, Floats, npt.NDArray[np.int64]]]:
    """Of each seed, a calibration by its validation pixels, and probabilities and true classes of its test pixels."""
    found = []
    for seed in range(20):
        calibration = fit_calibration(*made_scores(400, 2 * seed))
        scores, truth = made_scores(1000, 2 * seed + 1)
        found.append((calibration, calibration(scores), truth))
    return found


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_sets_hold_the_truth_as_often_as_was_asked_for(
    coverage: float, twenty: list[tuple[Calibration, Floats, npt.NDArray[np.int64]]]
) -> None:
    covered = [calibration.covers(likely, truth, coverage).mean() for calibration, likely, truth in twenty]
    sizes = [calibration.sets(likely, coverage).mean() for calibration, likely, _ in twenty]
    assert np.mean([(likely.argmax(axis=1) == truth).mean() for _, likely, truth in twenty]) < 0.8  # one is not enough
    assert abs(np.mean(covered) - coverage) < 0.02
    assert 1.2 < np.mean(sizes) < 4


def hazy_scene(seed: int) -> tuple[Scene, Labels]:
    """40 x 40 x 26, four classes in squares of 10; noise is larger than what sets them apart, and all is labelled."""
    rng = np.random.default_rng(seed)
    square = np.arange(40) // 10
    truth = (square[:, None] + 2 * square) % 4 + 1
    spectra = np.stack([np.sin((k + 1) * np.linspace(0, 3, 26)) for k in range(4)])
    cube = 100 + 2 * spectra[truth - 1] + 9 * rng.standard_normal((40, 40, 26))
    return Scene.from_array(cube.astype(np.float32)), Labels.from_array(truth.astype(np.int16))


def test_sets_on_a_made_scene_hold_the_truth_as_often_as_was_asked_for() -> None:
    """From training to the test set, over 20 seeds of scene, split and network."""
    found = []
    for seed in range(20):
        classifier = ConvCapsClassifier(
            recipe="paper", epochs=8, batch_size=16, train=0.15, val=0.25, seed=seed, patch=3
        )
        found.append(classifier.fit(*hazy_scene(seed)).scores_.to_json())
    assert 60 < np.mean([figures["oa"] for figures in found]) < 80  # it has learned, and one class is not enough
    for row, coverage in enumerate((0.8, 0.9, 0.95)):
        rows = [figures["sets"][row] for figures in found]
        assert all(r["coverage"] == coverage for r in rows)
        assert abs(np.mean([r["held"] for r in rows]) - coverage) < 0.02, coverage
        assert 1.1 < np.mean([r["size"] for r in rows]) < 3


def test_the_place_of_the_threshold() -> None:
    ranks = np.arange(1, 100) / 100
    few = Calibration(1.0, 99, conformity=ranks)
    assert few.threshold(0.9) == 0.1  # ten of a hundred places lie below
    assert few.threshold(0.99) == 0.01
    assert few.threshold(0.995) == 0.0  # 99 pixels don't say that much: all classes
    many = Calibration(1.0, 2000, conformity=np.arange(1, 1001) / 1000)  # every second one
    assert many.threshold(0.9) == 0.1 and many.threshold(0.9999) == 0.0
    likely = np.array([[0.09, 0.91, 0.0], [0.5, 0.3, 0.2]], dtype=np.float32)
    assert few.sets(likely, 0.9).tolist() == [1, 3]
    assert few.covers(likely, np.array([0, 2]), 0.9).tolist() == [False, True]
    sure = Calibration(1.0, 9, conformity=np.full(9, 0.99))
    assert sure.sets(likely, 0.5).tolist() == [1, 1]  # never empty
    assert sure.covers(likely, np.array([1, 1]), 0.5).tolist() == [True, False]


def test_tables() -> None:
    confidence, right = np.array([0.0, 0.5, 0.55, 1.0, 1.0]), np.array([False, True, False, True, True])
    table = reliability(confidence, right)
    assert [row.count for row in table] == [1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 2]
    assert table[7].confidence == 0.5 and table[7].accuracy == 1.0 and table[1].accuracy is None
    assert calibration_error(table) == pytest.approx((0.5 + 0.55) / 5)
    kept = {row.threshold: (row.kept, row.accuracy) for row in rejection_table(confidence, right)}
    assert kept[0.5] == (0.8, 0.75) and kept[0.6] == (0.4, 1.0)
    assert rejection_table(np.zeros(3), np.ones(3, dtype=bool))[0] == RejectionRow(0.5, 0.0, None)


def noisy() -> tuple[Scene, Labels]:
    """A scene whose classes overlap: about four of five pixels can be told."""
    cube, labels = make_cube(rows=60, cols=60)
    noise = np.random.default_rng(5).standard_normal(cube.shape)
    return Scene.from_array(cube + 60 * noise, name="noisy"), Labels.from_array(labels, name="noisy")


@pytest.fixture(scope="module")
def unsure() -> ConvCapsClassifier:
    return ConvCapsClassifier(recipe="paper", train=0.1, val=0.3, epochs=4, batch_size=16, patch=1).fit(*noisy())


def test_from_fit_to_map(unsure: ConvCapsClassifier) -> None:
    scene, _ = noisy()
    figures = unsure.scores_.to_json()
    assert figures["oa"] < 85 and figures["calibration"] in ("temperature", "isotonic")
    assert figures["ece_after"] < 0.06 and figures["ece_after"] < figures["ece_before"]
    assert abs(figures["coverage_90"] - 0.9) < 0.06  # of one split
    raw, likely, found = unsure.lengths(scene), unsure.predict_proba(scene), unsure.map(scene)
    assert unsure.model_.calibration is not None
    np.testing.assert_array_equal(unsure.model_.calibration(raw.reshape(-1, 3)).reshape(raw.shape), likely)
    np.testing.assert_array_equal(found.confidence, likely.max(axis=2))
    np.testing.assert_array_equal(found.classes, unsure.classes_[raw.argmax(axis=2)])
    np.testing.assert_array_equal(map_scores(unsure.model_, scene, window=16), likely)
    windows = windows_of(scene, 32)
    sets = np.zeros((60, 60), dtype=np.uint8)
    for part in map_windows(unsure.model_, scene, windows, WindowOutputs(coverage=0.9)):
        assert part.sets is not None and part.scores is None
        sets[part.at.rows, part.at.cols] = part.sets
    np.testing.assert_array_equal(sets.ravel(), unsure.model_.calibration.sets(likely.reshape(-1, 3), 0.9))
    assert sets.min() >= 1 and sets.max() > 1
    table = {row["threshold"]: row for row in figures["rejection"]}
    assert table[0.9]["kept"] < table[0.5]["kept"] and table[0.9]["accuracy"] > figures["oa"] / 100


def test_it_goes_through_the_model_file(unsure: ConvCapsClassifier, tmp_path) -> None:  # type: ignore[no-untyped-def]
    unsure.save(tmp_path / "m.safetensors")
    before, after = unsure.model_.calibration, read_model(tmp_path / "m.safetensors").calibration
    assert before is not None and after is not None and before.describe() == after.describe()
    for part, values in before.arrays().items():
        np.testing.assert_array_equal(after.arrays()[part], values)
    write_model(tmp_path / "old.safetensors", replace(unsure.model_, calibration=None))
    old = read_model(tmp_path / "old.safetensors")
    assert old.calibration is None
    scene, _ = noisy()
    np.testing.assert_array_equal(map_scores(old, scene), unsure.lengths(scene))
    with pytest.raises(ModelFileError, match="is not calibrated and a set of classes needs that: train it again"):
        next(map_windows(old, scene, windows_of(scene, 64), WindowOutputs(coverage=0.9)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 0.0}, {"temperature": float("nan")}, {"pixels": 0}, {"conformity": np.array([0.5])},
        {"at": np.array([0.1, 0.2]), "share": np.array([0.5])}, {"at": np.array([0.2, 0.1]), "share": np.zeros(2)},
        {"at": np.array([0.2, np.nan]), "share": np.zeros(2)}, {"at": np.zeros(1), "share": np.array([1.5])},
        {"conformity": np.zeros(3, dtype=np.float32)}, {"at": np.zeros(1), "share": np.zeros(1), "keeps_scores": True},
    ],
)  # fmt: skip
def test_what_no_fit_gives_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="calibration"):
        Calibration(**({"temperature": 1.0, "pixels": 3} | wrong))  # type: ignore[arg-type]


def test_scores_that_were_kept_go_through_the_model_file(trained: ConvCapsClassifier, tmp_path) -> None:  # type: ignore[no-untyped-def]
    kept = Calibration(1.0, 3, conformity=np.array([0.1, 0.5, 0.9]), keeps_scores=True)
    write_model(tmp_path / "m.safetensors", replace(trained.model_, calibration=kept))
    found = read_model(tmp_path / "m.safetensors").calibration
    assert found is not None and found.kind == "none" and found.describe() == kept.describe()
    scores, _ = made_scores(20, 0)
    np.testing.assert_array_equal(found(scores), kept(scores))


def test_without_validation_pixels_nothing_is_calibrated() -> None:
    cube, labels = make_cube()
    scene = Scene.from_array(cube)
    bare = ConvCapsClassifier(**(QUICK | {"val": 0.0, "epochs": 2})).fit(scene, Labels.from_array(labels))
    figures = bare.scores_.to_json()
    assert bare.model_.calibration is None and 0 <= figures["ece_before"] <= 1
    for key in ("calibration", "ece_after", "rejection", "coverage_90", "set_size_90"):
        assert figures[key] is None
    np.testing.assert_array_equal(bare.predict_proba(scene), bare.lengths(scene))


@pytest.mark.parametrize("kind", ["temperature", "isotonic"])
def test_a_pixel_is_calibrated_without_its_own_fold(kind: str) -> None:
    scores, truth = made_scores(600, 3)
    fold = np.arange(600) * 7 % 4
    before = cross_calibrate(scores, truth, fold, FITS[kind])
    for k in range(4):
        own = fold == k
        other_truth = np.where(own, (truth + 1) % 6, truth)
        after = cross_calibrate(scores, other_truth, fold, FITS[kind])
        np.testing.assert_array_equal(after[own], before[own])
        for other in set(range(4)) - {k}:  # to whose calibrations these labels belong
            assert (after[fold == other] != before[fold == other]).any(axis=1).mean() > 0.9
        other_scores = np.where(own[:, None], scores[:, ::-1], scores)
        after = cross_calibrate(other_scores, truth, fold, FITS[kind])
        np.testing.assert_array_equal(after[own], before[own][:, ::-1])


def test_a_single_fold_is_calibrated_by_itself() -> None:
    scores, truth = made_scores(300, 4)
    likely = cross_calibrate(scores, truth, np.zeros(300, dtype=int))
    np.testing.assert_array_equal(likely, fit_temperature(scores, truth)(scores))


@pytest.mark.parametrize("seed", range(6))
def test_isotonic_regression_is_scikit_learns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 400))
    at = rng.random(n).astype(np.float32).astype(np.float64)
    at[rng.random(n) < 0.3] = at[0]  # the same place several times
    values = np.where(rng.random(n) < at, 1.0, rng.random(n))
    expected = IsotonicRegression(y_min=0.0, y_max=0.9).fit_transform(at, values)
    np.testing.assert_array_equal(np.clip(isotonic(at, values), 0.0, 0.9), expected)
