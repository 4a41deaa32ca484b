"""How long the runs that are left will take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hypercaps.cli.progress import estimate_lines
from hypercaps.study.estimate import Estimate, estimate_time
from hypercaps.study.plan import MethodPlan, SceneSource, Setting
from support.study_records import failed, record

SCENE = SceneSource("indian-pines", "indian-pines", "indian-pines")
SETTING = Setting(SCENE, MethodPlan("convcapsnet", "paper"), 0.2, 0.1, seed=5)


def test_runs_take_as_long_as_finished_ones_that_differ_only_in_the_seed() -> None:
    like = [record(seed=i, train_seconds=s) for i, s in enumerate((10.0, 30.0, 500.0))]
    other = [
        record(train_share=0.1, train_seconds=1.0),
        record(scene="salinas-a", train_seconds=1.0),
        record(recipe="best", train_seconds=1.0),
        record(changed={"epochs": 5}, train_seconds=1.0),
        record(cut_short=True, train_seconds=1.0),
        failed("convcapsnet", "no memory"),
    ]
    assert estimate_time([SETTING], [*other, *like]) == Estimate(1, 30.0)
    assert estimate_time([SETTING], other) == Estimate(1, unknown={"indian-pines convcapsnet 20 %": 1})


def test_without_finished_runs_the_study_file_tells_the_minutes() -> None:
    setting = replace(SETTING, method=replace(SETTING.method, minutes=34))
    assert estimate_time([setting], []) == Estimate(1, 34 * 60)
    assert estimate_time([setting], [record(train_seconds=7.0)]).seconds == 7.0


@pytest.mark.parametrize(("runs", "at_once", "seconds"), [(4, 2, 20.0), (3, 2, 15.0), (1, 2, 10.0), (0, 2, 0.0)])
def test_runs_at_once_share_the_time(runs: int, at_once: int, seconds: float) -> None:
    settings = [replace(SETTING, seed=seed) for seed in range(runs)]
    assert estimate_time(settings, [record(train_seconds=10.0)], at_once).seconds == seconds


def test_the_estimate_in_words() -> None:
    assert estimate_lines(Estimate()) == []
    assert estimate_lines(Estimate(3, 7200.0, 2, {"a mlp 20 %": 1})) == [
        "About 2.0 h for 2 runs, 2 at a time, by the times of earlier runs.",
        "No estimate for 1 run, because none like it is finished: a mlp 20 % (1).",
    ]
