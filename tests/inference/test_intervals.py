from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from hypercaps.data.labels import Legend
from hypercaps.inference.intervals import Interval, map_accuracy, predicted_units, score_intervals
from hypercaps.inference.metrics import score

matrices = st.integers(2, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 50), min_size=n, max_size=n), min_size=n, max_size=n)
)


def contains(interval: Interval | None, value: float) -> bool:
    return interval is not None and interval.low - 1e-9 <= value <= interval.high + 1e-9


def kappa(confusion: np.ndarray) -> float:
    """Cohen's kappa in percent; 100 where all pixels are of one class and right."""
    shares = confusion / confusion.sum()
    by_chance = float(shares.sum(axis=0) @ shares.sum(axis=1))
    return 100.0 if by_chance == 1 else 100 * (float(np.trace(shares)) - by_chance) / (1 - by_chance)


def test_users_accuracies_have_the_units_that_were_predicted_as_the_class() -> None:
    confusion = np.array([[80, 20, 0], [0, 50, 0], [0, 0, 0]])
    found = score_intervals(confusion, np.array([100, 50, 0])).users  # single pixels
    low, high = beta.ppf([0.025, 0.975], 50.5, 20.5) * 100
    assert found[1] is not None and found[1].low == pytest.approx(low) and found[1].high == pytest.approx(high)
    assert found[0] is not None and found[0].high == 100 and found[2] is None
    polygons = score_intervals(confusion, np.array([10, 5, 0])).users[1]
    assert polygons is not None and polygons.low < low and polygons.high > high


@settings(max_examples=100, deadline=None)
@given(matrix=matrices, seed=st.integers(0, 99))
def test_intervals_contain_the_scores_and_narrow_with_units(matrix: list[list[int]], seed: int) -> None:
    confusion = np.array(matrix)
    if not confusion.any():
        return
    rng = np.random.default_rng(seed)
    units = rng.integers(1, 30, len(confusion))
    of_class, right = confusion.sum(axis=1), np.diag(confusion)
    oa, aa = 100 * right.sum() / confusion.sum(), 100 * np.mean((right / np.maximum(of_class, 1))[of_class > 0])
    few, many = score_intervals(confusion, units), score_intervals(confusion, 20 * units)
    for found in (few, many):
        assert contains(found.oa, oa) and contains(found.aa, aa) and contains(found.kappa, kappa(confusion))
        assert found.oa.low >= 0 and found.oa.high <= 100 and found.kappa.high <= 100
    assert many.oa.high - many.oa.low < few.oa.high - few.oa.low
    assert many.aa.high - many.aa.low < few.aa.high - few.aa.low
    for k, interval in enumerate(few.per_class):
        assert (interval is None) == (of_class[k] == 0)
        assert interval is None or contains(interval, 100 * right[k] / of_class[k])


def test_a_class_has_jeffreys_interval() -> None:
    found = score_intervals(np.array([[30, 10], [0, 50]]), np.array([8, 6]))
    one, other = found.per_class
    assert one is not None and other is not None
    assert (one.low, one.high) == pytest.approx(tuple(100 * beta.ppf([0.025, 0.975], 6.5, 2.5)))
    # All right in six units is no proof of 100 %.
    assert other.low == pytest.approx(100 * beta.ppf(0.025, 6.5, 0.5)) and other.low < 75 and other.high == 100
    alone = score_intervals(np.array([[600]]), np.array([6]))
    assert alone.oa.low < 75 and alone.oa.high == 100


def sample(rng: np.random.Generator, accuracy: np.ndarray, units: np.ndarray) -> np.ndarray:
    """A confusion matrix of units of 20 pixels that are all right or all wrong."""
    n = len(units)
    right = rng.binomial(units, accuracy)
    return 20 * (np.diag(right) + np.roll(np.diag(units - right), 1, axis=1)).reshape(n, n)


@pytest.mark.parametrize(
    ("accuracy", "units"),
    [
        (np.full(4, 0.9), np.full(4, 10)), (np.linspace(0.6, 1.0, 16), np.full(16, 5)),
        (np.full(16, 0.95), np.full(16, 5)), (np.full(20, 0.7), np.full(20, 3)),
        (np.linspace(0.5, 0.99, 9), np.arange(18, 0, -2)),
    ],
    ids=["four classes", "unequal classes", "many good classes", "many small classes", "unequal units"],
)  # fmt: skip
def test_95_percent_intervals_of_oa_contain_the_truth(accuracy: np.ndarray, units: np.ndarray) -> None:
    rng = np.random.default_rng(7)
    weights = units / units.sum()
    truth = 100 * float(weights @ accuracy)
    hits = naive = 0
    for _ in range(300):
        confusion = sample(rng, accuracy, units)
        hits += contains(score_intervals(confusion, units).oa, truth)
        right = np.diag(confusion) / 20
        drawn = 100 * rng.beta(right + 0.5, units - right + 0.5, (500, len(units))) @ weights
        naive += contains(Interval(*np.quantile(drawn, [0.025, 0.975])), truth)
    assert hits >= 0.88 * 300
    if len(units) > 10:  # draws of each class's own posterior are pulled towards 1/2, which adds up
        assert naive < 0.8 * 300


def test_kappa_and_its_interval_agree_with_the_scores() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(1, 5, 300), rng.integers(1, 5, 300)
    predicted[:200] = truth[:200]
    found = score(truth, predicted, Legend.of(range(1, 5)))
    assert kappa(found.confusion) == pytest.approx(found.kappa)
    narrow = score_intervals(found.confusion, np.full(4, 10**8)).kappa
    assert (narrow.low, narrow.high) == pytest.approx((found.kappa, found.kappa), abs=0.1)


def test_kappas_interval_is_that_of_its_draws_where_units_are_many() -> None:
    confusion, units = np.array([[80, 15, 5], [10, 90, 0], [4, 16, 180]]), np.array([400, 300, 500])
    rng = np.random.default_rng(0)
    right = np.array([0.8, 0.9, 0.9])
    drawn = rng.beta(units * right, units * (1 - right), (4000, 3))
    kappas = []
    for p in drawn:
        rows = confusion * ((1 - p) / (1 - right))[:, None]
        rows[np.arange(3), np.arange(3)] = p * confusion.sum(axis=1)
        kappas.append(kappa(rows))
    found = score_intervals(confusion, units).kappa
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(kappas, [0.025, 0.975])), abs=0.4)


def test_no_test_pixel() -> None:
    with pytest.raises(ValueError, match="no test pixel"):
        score_intervals(np.zeros((2, 2)), np.ones(2))


def test_map_accuracy_weights_mapped_classes_by_their_areas() -> None:
    """Two classes with as many labels each, of which the easy one covers a tenth of the map."""
    confusion = np.array([[60, 0, 0], [40, 100, 0], [0, 0, 0]])  # user's accuracies 0.6 and 1
    found = map_accuracy(confusion, np.array([900, 100, 50]), np.array([10, 10, 0]))
    assert found is not None
    accuracy, interval = found
    assert accuracy == pytest.approx(100 * (0.9 * 0.6 + 0.1 * 1.0))
    assert interval.low < accuracy < interval.high and interval.low < 45
    many = map_accuracy(confusion, np.array([900, 100, 0]), np.array([1000, 1000, 0]))
    assert many is not None and many[1].high - many[1].low < 8
    assert map_accuracy(confusion, np.array([0, 0, 50]), np.array([10, 10, 0])) is None  # nothing was tested there


def test_stray_pixels_do_not_make_a_class_well_tested() -> None:
    """Twenty units of the first class have one pixel each that was predicted as the second one."""
    confusion = np.array([[1980, 20], [0, 100]])
    units = predicted_units(confusion, np.array([20, 1]))
    assert units.tolist() == pytest.approx([19.8, 1.2])  # 21 in all, as there are
