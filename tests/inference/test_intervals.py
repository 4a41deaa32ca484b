from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from hypercaps.data.labels import Legend
from hypercaps.inference.intervals import Interval, score_intervals, weighted_scores
from hypercaps.inference.metrics import score

matrices = st.integers(2, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 50), min_size=n, max_size=n), min_size=n, max_size=n)
)


def contains(interval: Interval | None, value: float) -> bool:
    return interval is not None and interval.low - 1e-9 <= value <= interval.high + 1e-9


@settings(max_examples=100, deadline=None)
@given(matrix=matrices, seed=st.integers(0, 99))
def test_intervals_contain_the_scores_and_narrow_with_units(matrix: list[list[int]], seed: int) -> None:
    confusion = np.array(matrix)
    if not confusion.any():
        return
    rng = np.random.default_rng(seed)
    weights, units = rng.random(len(confusion)) + 0.01, rng.integers(1, 30, len(confusion))
    for w in (None, weights):
        oa, aa, kappa = weighted_scores(confusion, w)
        few, many = score_intervals(confusion, units, w), score_intervals(confusion, 20 * units, w)
        for found in (few, many):
            assert contains(found.oa, oa) and contains(found.aa, aa) and contains(found.kappa, kappa)
            assert found.oa.low >= 0 and found.oa.high <= 100 and found.kappa.high <= 100
        assert many.oa.high - many.oa.low < few.oa.high - few.oa.low
        assert many.aa.high - many.aa.low < few.aa.high - few.aa.low
        of_class = confusion.sum(axis=1)
        for k, interval in enumerate(few.per_class):
            assert (interval is None) == (of_class[k] == 0)
            assert interval is None or contains(interval, 100 * confusion[k, k] / of_class[k])


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
    weights = np.full(len(units), 1 / len(units))
    truth = 100 * float(weights @ accuracy)
    hits = naive = 0
    for _ in range(300):
        confusion = sample(rng, accuracy, units)
        hits += contains(score_intervals(confusion, units, weights).oa, truth)
        right = np.diag(confusion) / 20
        drawn = 100 * rng.beta(right + 0.5, units - right + 0.5, (500, len(units))) @ weights
        naive += contains(Interval(*np.quantile(drawn, [0.025, 0.975])), truth)
    assert hits >= 0.88 * 300
    if len(units) > 10:  # draws of each class's own posterior are pulled towards 1/2, which adds up
        assert naive < 0.8 * 300


def test_weighted_scores_without_weights_are_the_scores() -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(1, 5, 300), rng.integers(1, 5, 300)
    predicted[:200] = truth[:200]
    found = score(truth, predicted, Legend.of(range(1, 5)))
    assert weighted_scores(found.confusion, None) == pytest.approx((found.oa, found.aa, found.kappa))
    assert weighted_scores(np.array([[7]]), None) == (100.0, 100.0, 100.0)


def test_weights_are_those_of_the_ground() -> None:
    confusion = np.array([[90, 10, 0], [40, 60, 0], [0, 0, 0]])
    oa, aa, kappa = weighted_scores(confusion, np.array([0.1, 0.3, 0.6]))  # the third class is not tested
    assert (oa, aa) == pytest.approx((0.25 * 90 + 0.75 * 60, 75))
    mapped = np.array([0.25 * 0.9 + 0.75 * 0.4, 0.25 * 0.1 + 0.75 * 0.6])
    by_chance = mapped @ [0.25, 0.75]
    assert kappa == pytest.approx(100 * (0.675 - by_chance) / (1 - by_chance))


def test_kappas_interval_is_that_of_its_draws_where_units_are_many() -> None:
    confusion, units = np.array([[80, 15, 5], [10, 90, 0], [4, 16, 180]]), np.array([400, 300, 500])
    weights = np.array([0.2, 0.3, 0.5])
    rng = np.random.default_rng(0)
    right = np.array([0.8, 0.9, 0.9])
    drawn = rng.beta(units * right, units * (1 - right), (4000, 3))
    kappas = []
    for p in drawn:
        rows = confusion / confusion.sum(axis=1, keepdims=True)
        rows = rows * ((1 - p) / (1 - right))[:, None]
        rows[np.arange(3), np.arange(3)] = p
        kappas.append(weighted_scores(1e6 * rows, weights)[2])
    found = score_intervals(confusion, units, weights).kappa
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(kappas, [0.025, 0.975])), abs=0.4)


def test_no_test_pixel() -> None:
    with pytest.raises(ValueError, match="no test pixel"):
        score_intervals(np.zeros((2, 2)), np.ones(2))
