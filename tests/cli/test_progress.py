"""Progress of a comparison of methods and of a study."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from hypercaps.cli.progress import RunProgress, StudyProgress, duration
from hypercaps.study.plan import MethodPlan, SceneSource, Setting
from hypercaps.training.loop import Progress
from support.run_records import CANDIDATES


def shown(*, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)
    with RunProgress(console) as progress:
        observer = progress.observer()
        assert observer.on_comparing is not None and observer.on_candidate is not None
        names = ("lda", "convcapsnet-7-propagated")
        for number, name in enumerate(names):
            for fold in range(1, 6):
                observer.on_comparing(name, fold, 5, 5 * number + fold, 10)
            observer.on_candidate(CANDIDATES[1])
        observer.on_candidate(CANDIDATES[0])
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_without_a_terminal_every_candidate_has_a_line_when_it_starts_and_one_when_it_ends() -> None:
    assert shown(terminal=False).splitlines() == [
        "comparing  lda  fold 1/5",
        "lda: OA 61.2 % (50.0 to 71.0), log loss 1.02, 0.3 s; left out after 1 of 5 folds",
        "comparing  convcapsnet-7-propagated  fold 1/5",
        "lda: OA 61.2 % (50.0 to 71.0), log loss 1.02, 0.3 s; left out after 1 of 5 folds",
        "rbf-svm: not run: it would take too long",
    ]


def test_a_terminal_shows_a_bar_with_candidate_and_fold() -> None:
    text = shown(terminal=True)
    last = next(line for line in reversed(text.splitlines()) if "comparing" in line)
    assert "convcapsnet-7-propagated  fold 5/5" in last
    assert "lda: OA 61.2 % (50.0 to 71.0), log loss 1.02, 0.3 s; left out after 1 of 5 folds" in text


def shown_of_a_study(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    """Two runs at a time, a step every 60 seconds; the second run is continued at 50 %."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)
    settings = [Setting(SceneSource.public("salinas-a"), MethodPlan("mlp", "tuned"), 0.2, 0.1, seed) for seed in (0, 1)]
    clock = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    with StudyProgress(console, 2) as progress:
        progress._progress.start()
        for step in range(11):
            clock = 60.0 * step
            progress.training(settings[0], Progress(10 * step, 500, 0.02 * step, 0.5, None))
            progress.training(settings[1], Progress(250 + 10 * step, 500, 0.5 + 0.02 * step, 0.25, None))
        progress._progress.refresh()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_runs_of_a_study_say_now_and_then_how_far_they_are_and_how_long_they_will_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = "salinas-a, mlp, 20 % by random split, seed 0: epoch"
    second = "salinas-a, mlp, 20 % by random split, seed 1: epoch"
    assert shown_of_a_study(monkeypatch, terminal=False).splitlines() == [
        f"{first} 10/500, about 49 min left (2 %), loss 0.5000",
        f"{second} 260/500, about 24 min left (52 %), loss 0.2500",
        f"{first} 60/500, about 44 min left (12 %), loss 0.5000",
        f"{second} 310/500, about 19 min left (62 %), loss 0.2500",
    ]


def test_a_terminal_shows_a_bar_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown_of_a_study(monkeypatch, terminal=True)
    assert "salinas-a, mlp, seed 0" in text and "epoch 100/500, about 40 min left" in text
    assert "salinas-a, mlp, seed 1" in text and "epoch 350/500, about 15 min left" in text


def test_times_are_rounded() -> None:
    assert [duration(seconds) for seconds in (0, 59, 61, 1800, 5399, 12600)] == [
        "0 s", "59 s", "1 min", "30 min", "90 min", "3.5 h",
    ]  # fmt: skip
