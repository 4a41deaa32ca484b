"""The final model: what is recorded of its training."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from hypercaps.selection import final
from hypercaps.selection.candidates import choose_candidates
from hypercaps.selection.final import Member, train_final
from hypercaps.selection.out_of_fold import OutOfFold, run_fold
from hypercaps.training.spec import TrainingSpec
from support.folds import polygon_problem


def test_the_time_of_an_average_is_that_of_all_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = polygon_problem(polygons=20, pixels=4, classes=2, bands=6)
    members = []
    for candidate, weight in zip(choose_candidates(("lda", "logistic")), (0.4, 0.6), strict=True):
        result = OutOfFold.empty(problem)
        while not result.is_complete:
            run_fold(problem, candidate.spec(TrainingSpec()), result)
        members.append(Member(candidate.spec(TrainingSpec()), weight, result))
    trained, seconds = final.fit_model, count(2)

    def timed(*args: Any, **options: Any) -> Any:
        fitted = trained(*args, **options)
        return replace(fitted, history=replace(fitted.history, seconds=float(next(seconds))))

    monkeypatch.setattr(final, "fit_model", timed)
    whole = train_final(problem, members, problem.folds.split(0, 1))
    assert [member.weight for member in whole.model.members] == [0.6, 0.4]
    assert whole.history.seconds == 2 + 3
