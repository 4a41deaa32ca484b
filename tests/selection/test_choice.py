"""Which candidate is chosen, from out-of-fold scores that are made by hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from hypercaps.selection.candidates import Candidate, choose_candidates
from hypercaps.selection.choice import Choice, Losses, choose, excess, mixture_weights
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold
from support.folds import polygon_problem

LDA, LOGISTIC, FOREST, SVM, LDA_3, LDA_5, NETWORK = choose_candidates(
    ["lda", "logistic", "random-forest", "rbf-svm", "lda-3", "lda-5", "convcapsnet-1"]
)


@pytest.fixture(scope="module")
def problem() -> FoldProblem:
    """120 polygons of five pixels, in two classes."""
    return polygon_problem(polygons=120, pixels=5, classes=2)


def scored(
    problem: FoldProblem, right: npt.NDArray[np.bool_], sure: float = 0.9, wrongly_sure: float | None = None
) -> OutOfFold:
    """Scores of two classes: ``sure`` for the true one where ``right`` (M,), and for the other one elsewhere, or there
    ``wrongly_sure``."""
    of_truth = np.where(right, sure, 1 - (sure if wrongly_sure is None else wrongly_sure))
    raw = np.stack([np.where(problem.truth == k, of_truth, 1 - of_truth) for k in range(2)], axis=1)
    return OutOfFold(problem, raw.astype(np.float32), problem.folds.count)


def wrong_units(problem: FoldProblem, *units: int | range) -> npt.NDArray[np.bool_]:
    """(M,) right in all units but these."""
    listed = [number for one in units for number in ([one] if isinstance(one, int) else one)]
    return ~np.isin(problem.unit, listed)


def test_the_basic_methods_are_averaged(problem: FoldProblem) -> None:
    results = {
        LDA: scored(problem, wrong_units(problem, range(0, 20))),
        LOGISTIC: scored(problem, wrong_units(problem, range(20, 40))),
        FOREST: scored(problem, wrong_units(problem, range(40, 60))),
    }
    choice = choose(problem, results)
    assert choice.members == (LDA, LOGISTIC, FOREST)
    assert sum(choice.weights) == pytest.approx(1) and min(choice.weights) > 0.3
    # A much better one gets most of the weight.
    results[LOGISTIC] = scored(problem, wrong_units(problem, 20))
    weights = dict(zip(*(getattr(choose(problem, results), part) for part in ("members", "weights")), strict=True))
    assert weights[LOGISTIC] > 0.6 > 0.2 > weights[LDA]


def test_a_single_candidate_is_chosen(problem: FoldProblem) -> None:
    for one in (LDA, SVM, NETWORK):
        choice = choose(problem, {one: scored(problem, wrong_units(problem, range(30)))})
        assert choice.members == (one,) and choice.weights == (1.0,)


@pytest.mark.parametrize("other", [SVM, LDA_3, NETWORK], ids=lambda one: one.name)
def test_another_candidate_is_chosen_only_if_it_is_clearly_better(problem: FoldProblem, other: Candidate) -> None:
    basic = scored(problem, wrong_units(problem, range(10)))
    # Right in four of the units in which LDA is wrong, and wrong in three others.
    little = scored(problem, wrong_units(problem, range(4, 10), 20, 30, 40))
    assert Losses.of(little).mean < Losses.of(basic).mean and little.correct > basic.correct
    assert choose(problem, {LDA: basic, other: little}).members == (LDA,)
    much = scored(problem, wrong_units(problem, 8, 9))
    choice = choose(problem, {LDA: basic, other: much})
    assert choice.members[0] == other and choice.weights[0] > 0.5
    # Without a basic method it needs to be better than nothing.
    assert choose(problem, {other: little}).members == (other,)


def test_a_network_that_suits_the_scene_is_kept_unless_another_candidate_is_clearly_more_accurate(
    problem: FoldProblem,
) -> None:
    basic = scored(problem, wrong_units(problem, range(10)))
    near = scored(problem, wrong_units(problem, range(4, 10), *range(20, 28)))  # less accurate, not clearly
    assert near.correct < basic.correct
    assert choose(problem, {LDA: basic, NETWORK: near}, NETWORK) == Choice((NETWORK,), (1.0,))
    assert choose(problem, {LDA: basic, NETWORK: near}).members == (LDA,)
    far = scored(problem, wrong_units(problem, range(10, 40)))
    assert choose(problem, {LDA: basic, NETWORK: far}, NETWORK).members == (LDA,)
    # A network whose comparison was not finished can't be the default.
    assert choose(problem, {LDA: basic, NETWORK: near.first_folds(2)}, NETWORK).members == (LDA,)


def test_with_few_units_only_a_far_better_candidate_replaces_the_basic_methods() -> None:
    for polygons, chosen in ((16, LDA), (40, SVM)):
        few = polygon_problem(polygons=polygons, pixels=5, classes=2)
        wrong = range(polygons // 5)
        results = {LDA: scored(few, wrong_units(few, wrong)), SVM: scored(few, wrong_units(few, 0))}
        assert choose(few, results).members[0] == chosen
    few = polygon_problem(polygons=16, pixels=5, classes=2)
    far = {LDA: scored(few, wrong_units(few, range(9))), SVM: scored(few, wrong_units(few))}
    assert choose(few, far).members[0] == SVM


def test_clearly_better_and_near_equal_candidates_are_averaged(problem: FoldProblem) -> None:
    results = {
        LDA: scored(problem, wrong_units(problem, range(40))),
        SVM: scored(problem, wrong_units(problem, range(0, 8)), wrongly_sure=0.55),
        NETWORK: scored(problem, wrong_units(problem, range(40, 48)), wrongly_sure=0.55),
    }
    choice = choose(problem, results)
    assert set(choice.members) == {SVM, NETWORK} or set(choice.members) == {SVM, NETWORK, LDA}
    weights = dict(zip(choice.members, choice.weights, strict=True))
    assert min(weights[SVM], weights[NETWORK]) > 0.35 and sum(choice.weights) == pytest.approx(1)


def test_an_average_that_is_less_accurate_is_not_kept(problem: FoldProblem) -> None:
    results = {
        LDA: scored(problem, wrong_units(problem, range(40))),
        SVM: scored(problem, wrong_units(problem, range(0, 8))),
        NETWORK: scored(problem, wrong_units(problem, range(40, 48))),
    }
    assert len(choose(problem, results).members) == 1  # where two of them differ, an average would be a guess


def test_two_windows_of_one_method_are_not_averaged(problem: FoldProblem) -> None:
    results = {
        LDA_5: scored(problem, wrong_units(problem, range(0, 20))),
        LDA_3: scored(problem, wrong_units(problem, range(20, 39))),
    }
    assert choose(problem, results).members == (LDA_3,)


def test_a_few_units_are_no_evidence() -> None:
    """The same shares of wrong units, in a sample of twelve: LDA wrong in a quarter, the network in a sixth."""
    for polygons, chosen in ((12, LDA), (240, NETWORK)):
        problem = polygon_problem(polygons=polygons, pixels=5, classes=2)
        results = {
            LDA: scored(problem, problem.unit % 12 > 2),
            NETWORK: scored(problem, problem.unit % 12 > 1),
        }
        assert choose(problem, results).members[0] == chosen


def test_a_candidate_must_be_better_in_log_loss_and_in_accuracy(problem: FoldProblem) -> None:
    right = wrong_units(problem, range(20))
    basic, network = scored(problem, right), scored(problem, right)
    # Nearly undecided where it is wrong: a lower log loss with the same classes.
    network.raw[~right] = np.where(network.raw[~right] > 0.5, 0.51, 0.49)
    mean, error = excess(Losses.of(network), Losses.of(basic))
    assert mean < -3 * error and network.correct == basic.correct
    assert choose(problem, {LDA: basic, NETWORK: network}).members == (LDA,)


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


def test_one_unit_tells_nothing_of_the_error() -> None:
    unit = np.zeros(8, dtype=np.int64)
    assert excess(Losses(np.ones(8), unit), Losses(np.zeros(8), unit)) == (1.0, np.inf)


def test_weights_stay_near_equal_with_few_units() -> None:
    of_truth = np.tile([0.9, 0.1], (500, 1))
    few, some, many = (mixture_weights(of_truth, units, 2.0)[0] for units in (1, 20, 5000))
    assert 0.5 < few < 0.62 and few < some < many and many > 0.99
    # The bound for few units: all of them for one member, and two more for each.
    assert few <= (1 + 2) / (1 + 4) + 1e-12
    assert mixture_weights(of_truth, 20, 10.0)[0] < some  # a stronger prior
    np.testing.assert_allclose(mixture_weights(np.full((50, 3), 0.4), 7, 2.0), 1 / 3)


def test_weights_minimise_the_log_loss() -> None:
    rng = np.random.default_rng(0)
    of_truth = rng.random((400, 2)) ** [0.3, 0.8]
    grid = np.linspace(0, 1, 1001)
    losses = [-np.log(of_truth @ [w, 1 - w]).mean() for w in grid]
    assert mixture_weights(of_truth, 10**7, 2.0)[0] == pytest.approx(grid[int(np.argmin(losses))], abs=0.01)
