"""Which candidate is chosen, from out-of-fold scores that are made by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from hypercaps.selection.candidates import choose_candidates
from hypercaps.selection.choice import Losses, can_replace, choose, excess, mixture_weights
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold
from support.folds import polygon_problem

LDA, LOGISTIC, FOREST, LDA_3, NETWORK = choose_candidates(
    ["lda", "logistic", "random-forest", "lda-3", "convcapsnet-1"]
)


@pytest.fixture(scope="module")
def problem() -> FoldProblem:
    """120 polygons of five pixels, in two classes."""
    return polygon_problem(polygons=120, pixels=5, classes=2)


def scored(problem: FoldProblem, right: npt.NDArray[np.bool_], sure: float = 0.9) -> OutOfFold:
    """Scores of two classes: ``sure`` for the true one where ``right`` (M,), for the other one elsewhere."""
    of_truth = np.where(right, sure, 1 - sure)
    raw = np.stack([np.where(problem.truth == k, of_truth, 1 - of_truth) for k in range(2)], axis=1)
    return OutOfFold(problem, raw.astype(np.float32), problem.folds.count)


def wrong_units(problem: FoldProblem, *units: int | range) -> npt.NDArray[np.bool_]:
    """(M,) right in all units but these."""
    listed = [number for one in units for number in ([one] if isinstance(one, int) else one)]
    return ~np.isin(problem.unit, listed)


def test_a_clearly_better_candidate_is_chosen_alone(problem: FoldProblem) -> None:
    good, bad = wrong_units(problem, range(6)), wrong_units(problem, range(50))
    for first, second in ((LDA, LOGISTIC), (LOGISTIC, LDA)):
        choice = choose(problem, {first: scored(problem, good), second: scored(problem, bad)})
        assert choice.members == (first,) and choice.weights == (1.0,)


def test_near_equals_are_averaged(problem: FoldProblem) -> None:
    results = {
        LDA: scored(problem, wrong_units(problem, range(0, 20))),
        LOGISTIC: scored(problem, wrong_units(problem, range(20, 40))),
        FOREST: scored(problem, wrong_units(problem, range(40, 60))),
    }
    choice = choose(problem, results)
    assert set(choice.members) == {LDA, LOGISTIC, FOREST}
    assert sum(choice.weights) == pytest.approx(1) and min(choice.weights) > 0.25


def test_two_windows_of_one_method_are_not_averaged(problem: FoldProblem) -> None:
    results = {
        LDA: scored(problem, wrong_units(problem, range(0, 20))),
        LDA_3: scored(problem, wrong_units(problem, range(20, 39))),
    }
    assert choose(problem, results).members == (LDA_3,)


def test_members_that_make_the_average_worse_are_left_out(problem: FoldProblem) -> None:
    """The same errors, but less sure where it is right: nothing is gained."""
    right = wrong_units(problem, range(10))
    results = {LDA: scored(problem, right), LOGISTIC: scored(problem, right)}
    assert choose(problem, results).members == (LDA,)


def test_a_network_must_be_clearly_better_than_the_best_simple_method(problem: FoldProblem) -> None:
    simple = scored(problem, wrong_units(problem, range(10)))
    # Right in four of the units in which LDA is wrong, and wrong in three others.
    little = scored(problem, wrong_units(problem, range(4, 10), 20, 30, 40))
    assert Losses.of(little).mean < Losses.of(simple).mean and little.correct > simple.correct
    assert NETWORK not in choose(problem, {LDA: simple, NETWORK: little}).members
    much = scored(problem, wrong_units(problem, 8, 9))
    assert NETWORK in choose(problem, {LDA: simple, NETWORK: much}).members
    # Without a simple method it needs to be better than nothing.
    assert choose(problem, {NETWORK: little}).members == (NETWORK,)


def test_a_network_must_also_be_right_more_often(problem: FoldProblem) -> None:
    right = wrong_units(problem, range(20))
    simple, network = scored(problem, right), scored(problem, right)
    # Nearly undecided where it is wrong: a lower log loss with the same classes.
    network.raw[~right] = np.where(network.raw[~right] > 0.5, 0.51, 0.49)
    mean, error = excess(Losses.of(network), Losses.of(simple))
    assert mean < -error and network.correct == simple.correct
    assert not can_replace(network, Losses.of(network), simple, Losses.of(simple))


def test_candidates_that_were_given_up_are_not_chosen(problem: FoldProblem) -> None:
    perfect = scored(problem, wrong_units(problem)).first_folds(2)
    assert not perfect.is_complete
    assert choose(problem, {LDA: scored(problem, wrong_units(problem, 3)), LOGISTIC: perfect}).members == (LDA,)


def test_the_standard_error_is_that_of_units() -> None:
    """By hand: differences of 1 in one of four units of two pixels, 0 in the others."""
    unit = np.repeat(np.arange(4), 2)
    one, other = Losses(np.where(unit == 0, 1.0, 0.0), unit), Losses(np.zeros(8), unit)
    sums = np.array([2 * (1 - 0.25), -0.5, -0.5, -0.5])
    assert excess(one, other) == (0.25, pytest.approx(np.sqrt((sums**2).sum() * 4 / 3) / 8))
    # As many pixels, each a unit of its own, tell more.
    pixels = np.arange(8)
    assert excess(Losses(one.loss, pixels), Losses(other.loss, pixels))[1] < excess(one, other)[1]


def test_weights_stay_near_equal_with_few_units() -> None:
    of_truth = np.tile([0.9, 0.1], (500, 1))
    few, some, many = (mixture_weights(of_truth, units)[0] for units in (1, 20, 5000))
    assert 0.5 < few < 0.62 and few < some < many and many > 0.99
    # The bound for few units: all of them for one member, and two more for each.
    assert few <= (1 + 2) / (1 + 4) + 1e-12
    np.testing.assert_allclose(mixture_weights(np.full((50, 3), 0.4), 7), 1 / 3)


def test_weights_minimise_the_log_loss() -> None:
    rng = np.random.default_rng(0)
    of_truth = rng.random((400, 2)) ** [0.3, 0.8]
    grid = np.linspace(0, 1, 1001)
    losses = [-np.log(of_truth @ [w, 1 - w]).mean() for w in grid]
    assert mixture_weights(of_truth, 10**7)[0] == pytest.approx(grid[int(np.argmin(losses))], abs=0.01)
