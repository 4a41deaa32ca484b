"""Training time and parameters of 1D-ConvCapsNet as shares of CapsNet's, beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypercaps.study.document import Table
from hypercaps.study.groups import Column, Groups, scene_title
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.paper import paper_scenes
from hypercaps.study.records import FinishedRun
from hypercaps.study.summary import time_text
from hypercaps.study.tables import MISSING, count_text, figure_of, paper_figures

METHODS = ("convcapsnet", "capsnet")
Environment = tuple[str | None, int | None]  # machine and threads
Pair = tuple[float | None, float | None]  # a figure of 1D-ConvCapsNet and of CapsNet


@dataclass(frozen=True)
class Comparison:
    """The runs of both methods that were timed on the same machine with the same number of threads.

    Without such runs, ``threads`` is None and both lists are empty.
    """

    threads: int | None
    small: tuple[FinishedRun, ...] = ()
    large: tuple[FinishedRun, ...] = ()

    @classmethod
    def of(cls, small: Column, large: Column) -> Comparison:
        ours, theirs = _by_environment(small), _by_environment(large)
        common = [environment for environment in ours if environment in theirs]
        if not common:
            return cls(None)
        most = max(common, key=lambda environment: len(ours[environment]) + len(theirs[environment]))
        return cls(most[1], ours[most], theirs[most])

    @property
    def same_epochs(self) -> bool:
        return len({run.epochs for run in (*self.small, *self.large)}) == 1

    @property
    def seconds(self) -> Pair:
        """The shortest trainings, as in the paper; of one epoch if their numbers of epochs differ."""
        return self._shortest(self.small), self._shortest(self.large)

    @property
    def texts(self) -> list[str]:
        ending = "" if self.same_epochs or not self.small else " per epoch"
        return [time_text(seconds) + ending for seconds in self.seconds]

    def _shortest(self, runs: tuple[FinishedRun, ...]) -> float | None:
        return min((run.train_seconds / (1 if self.same_epochs else run.epochs) for run in runs), default=None)


def _by_environment(column: Column) -> Mapping[Environment, tuple[FinishedRun, ...]]:
    by_environment: dict[Environment, tuple[FinishedRun, ...]] = {}
    for run in column.records:
        if run.epochs and not run.cut_short:
            key = run.machine, run.threads
            by_environment[key] = (*by_environment.get(key, ()), run)
    return by_environment


def speed_table(groups: Groups) -> Table | None:
    """One row for each scene and label budget with runs of both methods."""
    rows: list[list[str]] = []
    trained: dict[str, None] = {}  # in order, each once
    for (scene, budget), columns in groups.items():
        pairs = [(small, large) for small in columns for large in columns if (small.method, large.method) == METHODS]
        for small, large in pairs:
            # Their training is in the caption, and in the row only if the row needs it to be told from another.
            words = f"{small.title}: {small.trained}; {large.title}: {large.trained}"
            place = f"{scene_title(scene)}, {budget.short}" + (f" ({words})" if len(pairs) > 1 else "")
            rows.append([place, *_row(scene, budget, small, large)])
            trained[words] = None
    head = ["Scene and labels", "Threads", "Time, 1D-ConvCapsNet", "Time, CapsNet", "Ratio of times"]
    head += ["Ratio of times, paper", "Parameters, 1D-ConvCapsNet", "Parameters, CapsNet"]
    head += ["Ratio of parameters", "Ratio of parameters, paper"]
    caption = (
        f"Ratio: 1D-ConvCapsNet's figure as a share of CapsNet's, {_paper_range()} in the paper. Time: the shortest "
        "training of the runs on the same machine with the same number of threads; where the numbers of epochs "
        f"differ, the time of an epoch. Trained: {' | '.join(trained)}."
    )
    return Table("Training time and parameters", head, rows, caption) if rows else None


def _row(scene: str, budget: LabelBudget, small: Column, large: Column) -> list[str]:
    compared = Comparison.of(small, large)
    papers = [paper_figures(scene, column.method, budget) for column in (small, large)]
    their_times, their_counts = ([figure_of(paper, name) for paper in papers] for name in ("seconds", "parameters"))
    stats = [column.stat("parameters") for column in (small, large)]
    medians = [None if stat is None else stat.median for stat in stats]
    return [
        MISSING if compared.threads is None else str(compared.threads),
        *compared.texts,
        _ratio(*compared.seconds),
        _ratio(*their_times),
        *map(count_text, stats),
        _ratio(*medians),
        _ratio(*their_counts),
    ]


def _ratio(small: float | None, large: float | None) -> str:
    return f"{100 * small / large:.1f} %" if small and large else MISSING


def _paper_range() -> str:
    """The smallest and the largest ratio of the paper's times and parameters, "4–7 %"."""
    ratios = []
    for scene in paper_scenes():
        figures = {result.method: result for result in scene.results if result.seconds and result.parameters}
        small, large = (figures[method] for method in METHODS)
        ratios += [getattr(small, name) / getattr(large, name) for name in ("seconds", "parameters")]
    return f"{100 * min(ratios):.0f}–{100 * max(ratios):.0f} %"
