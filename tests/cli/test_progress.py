"""Progress of a comparison of methods."""

from __future__ import annotations

import io

from rich.console import Console

from hypercaps.cli.progress import RunProgress
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
        "lda: OA 61.2 %, log loss 1.02, 0.3 s",
        "comparing  convcapsnet-7-propagated  fold 1/5",
        "lda: OA 61.2 %, log loss 1.02, 0.3 s",
        "rbf-svm: not run: it would take too long",
    ]


def test_a_terminal_shows_a_bar_with_candidate_and_fold() -> None:
    text = shown(terminal=True)
    last = next(line for line in reversed(text.splitlines()) if "comparing" in line)
    assert "convcapsnet-7-propagated  fold 5/5" in last
    assert "lda: OA 61.2 %, log loss 1.02, 0.3 s" in text
