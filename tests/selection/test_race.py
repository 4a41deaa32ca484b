"""The comparison of candidates: which are run on how many folds, with scores made by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hypercaps.errors import ModelError
from hypercaps.inference.run_metrics import CandidateRow
from hypercaps.selection.candidates import Candidate, choose_candidates
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold
from hypercaps.selection.race import Race, RaceSettings
from hypercaps.training.spec import TrainingSpec
from support.folds import polygon_problem

Ran = list[tuple[str, int | None, str | None]]  # method, patch and recipe of each fold that was run


@pytest.fixture(scope="module")
def problem() -> FoldProblem:
    return polygon_problem(polygons=100, pixels=7, classes=2, bands=26)


def fake_folds(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[TrainingSpec], float], later: float = 0.0) -> Ran:
    """Scores that are wrong in a share of the units, given for each training, in place of trainings.

    later : what is added to the share after the first fold
    """
    ran: Ran = []

    def run_fold(problem: FoldProblem, spec: TrainingSpec, into: OutOfFold, first: OutOfFold | None = None) -> None:
        held = problem.fold == into.done
        truth, unit = problem.truth[held], problem.unit[held]
        share = (unit * 37 % 100) / 100  # of units, in an order that is mixed over the folds
        of_truth = np.where(share < wrong(spec) + (later if into.done else 0.0), 0.1, 0.9).astype(np.float32)
        scores = np.stack([np.where(truth == k, of_truth, 1 - of_truth) for k in range(2)], axis=1)
        ran.append((spec.method, spec.patch, spec.recipe))
        for one in (into, first):
            if one is not None:
                one.add(scores, 0.25)

    monkeypatch.setattr("hypercaps.selection.race.run_fold", run_fold)
    return ran


def race_of(problem: FoldProblem, *names: str, seconds: float | None = None) -> tuple[Race, list[CandidateRow]]:
    told: list[CandidateRow] = []
    candidates = choose_candidates(names)
    return Race(problem, RaceSettings(TrainingSpec(), candidates, seconds, on_candidate=told.append)), told


def by_name(race: Race, rows: tuple[CandidateRow, ...]) -> dict[str, CandidateRow]:
    assert [row.name for row in rows] == [one.name for one in race.settings.candidates]
    return {row.name: row for row in rows}


def test_a_network_is_given_up_after_a_fold_in_which_it_is_clearly_behind(
    problem: FoldProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = fake_folds(monkeypatch, lambda spec: 0.1 if spec.method == "lda" else 0.5)
    race, told = race_of(problem, "lda", "convcapsnet-7")
    choice = race.run()
    assert [one.name for one in choice.members] == ["lda"]
    assert [method for method, *_ in ran] == ["lda"] * 5 + ["convcapsnet"]
    rows = by_name(race, race.rows(choice))
    assert rows["lda"].outcome == "chosen" and rows["lda"].folds == 5 and rows["lda"].seconds == 1.25
    network = rows["convcapsnet-7"]
    assert network.outcome == "behind after 1 of 5 folds, where lda has 90.0 %"
    assert (network.folds, network.seconds) == (1, 0.25)
    assert network.oa is not None and network.oa_interval is not None and network.oa < 75
    assert network.oa_interval[0] < network.oa < network.oa_interval[1]
    assert [row.name for row in told] == ["lda", "convcapsnet-7"]


def test_a_network_that_is_given_up_is_compared_on_the_folds_that_it_was_run_on(
    problem: FoldProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_folds(monkeypatch, lambda spec: 0.1 if spec.method == "lda" else 0.5, later=0.3)
    race, _ = race_of(problem, "lda", "convcapsnet-7")
    rows = by_name(race, race.rows(race.run()))
    assert rows["lda"].oa is not None and rows["lda"].oa < 80  # on all folds
    assert rows["convcapsnet-7"].outcome == "behind after 1 of 5 folds, where lda has 90.0 %"


def test_a_simple_method_that_is_behind_runs_to_the_end(problem: FoldProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = fake_folds(monkeypatch, lambda spec: 0.1 if spec.method == "lda" else 0.5)
    race, _ = race_of(problem, "lda", "rbf-svm")
    assert by_name(race, race.rows(race.run()))["rbf-svm"].outcome == "compared"
    assert len(ran) == 10


def test_a_network_that_leads_runs_all_folds_and_is_chosen(
    problem: FoldProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = fake_folds(monkeypatch, lambda spec: 0.4 if spec.method == "lda" else 0.05)
    race, _ = race_of(problem, "lda", "convcapsnet-7")
    assert [one.name for one in race.run().members] == ["convcapsnet-7"]
    assert len(ran) == 10


def fake_propagation(monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    """LDA with label propagation is wrong in this share of the units."""

    def propagated(problem: FoldProblem, base: TrainingSpec) -> OutOfFold:
        of_truth = np.where((problem.unit * 37 % 100) / 100 < wrong, 0.1, 0.9).astype(np.float32)
        raw = np.stack([np.where(problem.truth == k, of_truth, 1 - of_truth) for k in range(2)], axis=1)
        return OutOfFold(problem, raw, problem.folds.count)

    monkeypatch.setattr("hypercaps.selection.race.propagated_lda", propagated)


FIELDS = {1: 0.3, 3: 0.1, 5: 0.2, 7: 0.25}  # share of the units in which LDA on windows of this side is wrong
EASY_FIELDS = {1: 0.3, 3: 0.2, 5: 0.2, 7: 0.03}
MIXED = {1: 0.1, 3: 0.2, 5: 0.3, 7: 0.4}


@pytest.mark.parametrize(
    ("lda", "propagated", "chosen"),
    [
        (FIELDS, 0.05, "convcapsnet-7-propagated"),
        (FIELDS, 0.5, "convcapsnet-3-damped"),
        (EASY_FIELDS, 0.05, "convcapsnet-7-guided"),
        (MIXED, 0.05, "convcapsnet-1-damped"),  # propagation seems to help, but windows harm
    ],
)
def test_only_the_network_that_lda_favours_is_run(
    lda: dict[int, float], propagated: float, chosen: str, problem: FoldProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = fake_folds(monkeypatch, lambda spec: lda[spec.patch or 0] if spec.method == "lda" else 0.02)
    fake_propagation(monkeypatch, propagated)
    race, _ = race_of(problem, "lda", "lda-3", "lda-5", "lda-7", "convcapsnet")
    rows = by_name(race, race.rows(race.run()))
    networks = {name: row for name, row in rows.items() if row.method == "convcapsnet"}
    run = {name for name, row in networks.items() if row.folds}
    # The first stage of a propagated network is scored without a training of its own.
    fields = chosen in ("convcapsnet-7-propagated", "convcapsnet-7-guided")
    assert run == ({chosen, "convcapsnet-7"} if fields else {chosen})
    assert (race.default is not None and race.default.name == chosen) == fields
    assert len({one for one in ran if one[0] == "convcapsnet"}) == 1
    assert {row.outcome for name, row in networks.items() if name not in run} == {f"not run: LDA favours {chosen}"}
    assert sum(one[0] == "convcapsnet" for one in ran) == 5


@pytest.mark.parametrize(
    ("lda", "propagated", "fields"),
    [
        ({1: 0.3, 3: 0.3, 5: 0.4, 7: 0.5}, 0.05, True),
        ({1: 0.3, 3: 0.2, 5: 0.3, 7: 0.3}, 0.29, False),  # a polygon more: by chance
        ({1: 0.04, 3: 0.0, 5: 0.04, 7: 0.04}, 0.04, True),  # nothing left to gain
        ({1: 0.04, 3: 0.0, 5: 0.04, 7: 0.04}, 0.1, False),
    ],
)
def test_propagation_must_help_clearly_in_a_scene_of_fields(
    lda: dict[int, float], propagated: float, fields: bool, problem: FoldProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_folds(monkeypatch, lambda spec: lda[spec.patch or 0] if spec.method == "lda" else 0.3)
    fake_propagation(monkeypatch, propagated)
    race, _ = race_of(problem, "lda", "lda-3", "lda-5", "lda-7", "convcapsnet")
    race.run()
    assert (race.default is not None) == fields


@pytest.mark.parametrize(("wrong", "kept"), [(0.12, True), (0.6, False)])
def test_in_a_scene_of_fields_a_network_is_given_up_only_if_it_is_clearly_worse(
    wrong: float, kept: bool, problem: FoldProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = fake_folds(monkeypatch, lambda spec: FIELDS[spec.patch or 0] if spec.method == "lda" else wrong)
    fake_propagation(monkeypatch, 0.05)
    race, _ = race_of(problem, "lda", "lda-3", "lda-5", "lda-7", "convcapsnet")
    choice = race.run()
    assert (choice.members[0].name == "convcapsnet-7-propagated") == kept
    assert (sum(one[0] == "convcapsnet" for one in ran) == 5) == kept


def test_without_evidence_a_propagated_network_is_no_default(
    problem: FoldProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_folds(monkeypatch, lambda spec: 0.2 if spec.method == "convcapsnet" else 0.1)
    race, _ = race_of(problem, "logistic", "convcapsnet-7-propagated")
    assert race.run().members[0].name == "logistic" and race.default is None


def test_the_time_limit(problem: FoldProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("hypercaps.selection.race.time.perf_counter", lambda: clock[0])

    def wrong(spec: TrainingSpec) -> float:
        clock[0] += 0.25  # what fake_folds says that a fold takes
        return 0.1

    fake_folds(monkeypatch, wrong)
    race, _ = race_of(problem, "lda", "logistic", "convcapsnet-7", seconds=1.9)
    race.started = 0.0
    choice = race.run()
    rows = by_name(race, race.rows(choice))
    assert rows["lda"].outcome == "chosen"
    assert rows["logistic"].outcome == "time limit after 2 of 5 folds" and rows["logistic"].folds == 2
    assert rows["convcapsnet-7"].outcome == "time limit after 0 of 5 folds"  # less than half of the time was left
    late, _ = race_of(problem, "lda", seconds=0.5)
    late.started = clock[0]
    with pytest.raises(ModelError, match="too short for one candidate on 5 folds: allow more"):
        late.run()


def test_progress_names_the_candidate_and_its_fold(problem: FoldProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_folds(monkeypatch, lambda spec: 0.2)
    seen: list[tuple[str, int, int, int, int]] = []
    candidates: tuple[Candidate, ...] = choose_candidates(["lda", "logistic"])
    settings = RaceSettings(TrainingSpec(), candidates, on_comparing=lambda *step: seen.append(step))
    Race(problem, settings).run()
    assert seen == [(one.name, fold, 5, done, 2) for done, one in enumerate(candidates) for fold in range(1, 6)]


def test_candidates_that_the_scene_does_not_suit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four columns are too few for patches of 5."""
    small = polygon_problem(polygons=100, pixels=4, classes=2, bands=4)
    ran = fake_folds(monkeypatch, lambda spec: 0.2)
    race, _ = race_of(small, "lda", "lda-5", "convcapsnet-7")
    choice = race.run()
    assert {(method, patch) for method, patch, _ in ran} == {("lda", 1)}
    rows = by_name(race, race.rows(choice))
    for name, patch in (("lda-5", 5), ("convcapsnet-7", 7)):
        assert f"looks at patches of {patch} x {patch} pixels but scene" in rows[name].outcome
    alone, _ = race_of(small, "convcapsnet-7")
    with pytest.raises(ModelError, match="looks at patches of 7 x 7 pixels but scene"):
        alone.run()
