"""Progress of trainings, maps, studies and downloads: bars on a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from hypercaps.cli import events
from hypercaps.cli.messages import console_err

if TYPE_CHECKING:  # these import torch, which 'hypercaps scenes' must not wait for
    from hypercaps.inference.run_metrics import CandidateRow
    from hypercaps.pipeline.requests import RunObserver
    from hypercaps.study.estimate import Estimate
    from hypercaps.study.plan import Setting
    from hypercaps.study.records import Record
    from hypercaps.study.study import StudyStart
    from hypercaps.training.loop import Progress as TrainingProgress

_EVERY = 10  # epochs between lines, without a terminal
# Seconds; of a run of a study, without a terminal
_ESTIMATE_AFTER = 5.0
_FIRST_LINE = 30.0
_LINE_EVERY = 300.0


class RunProgress:
    """Bars for training (loss, validation accuracy, time left) and mapping; plain lines without a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=False,
        )
        self._tasks: dict[str, TaskID] = {}
        self._events = events.StageEvents()
        self._shown_epoch = 0
        self._shown_candidate: str | None = None

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def observer(self) -> RunObserver:
        """The functions that a job calls."""
        from hypercaps.pipeline.requests import RunObserver

        return RunObserver(self.training, self.mapping, self.second_training, self.comparing, self.candidate_done)

    def second_training(self, split: str) -> None:
        self._console.print(f"Training a second time, with --split {split}, by the same recipe.", soft_wrap=True)

    def training(self, now: TrainingProgress) -> None:
        figures = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.4f}"
        if now.last is not None and now.last.val_oa is not None:
            figures += f"  validation {now.last.val_oa:.2f} %"
        self._update("training", now.done, 1.0, figures)
        finished = now.last is not None and now.last.epoch == now.epoch
        due = now.epoch % _EVERY == 0 or now.epoch in (1, now.epochs)
        if not self._console.is_terminal and finished and due and now.epoch != self._shown_epoch:
            self._shown_epoch = now.epoch
            self._console.print(f"training  {figures}")

    def comparing(self, name: str, fold: int, folds: int, done: int, total: int) -> None:
        """Show which candidate is trained on which fold (from 1), and the progress of the whole comparison."""
        figures = f"{escape(name)}  fold {fold}/{folds}"
        self._update("comparing", done, total, figures)
        if not self._console.is_terminal and name != self._shown_candidate:
            self._shown_candidate = name
            self._console.print(f"comparing  {figures}", soft_wrap=True)

    def candidate_done(self, row: CandidateRow) -> None:
        """Print a line for a finished candidate: its scores, or why it has none."""
        from hypercaps.report import wording  # imports numpy, which '--help' must not wait for

        log_loss = "" if row.log_loss is None else f", log loss {row.log_loss:.2f}"
        oa = wording.score_text(row.oa, row.oa_interval)
        scores = "" if row.oa is None else f"OA {oa}{log_loss}, {row.seconds:.1f} s"
        said = "; ".join(part for part in (scores, row.outcome) if part)
        self._console.print(f"{escape(row.name)}: {escape(said)}", soft_wrap=True, highlight=False)

    def mapping(self, done: int, total: int) -> None:
        self._update("classifying", done, total, f"{done:,} of {total:,} pixels")

    def _update(self, name: str, done: float, total: float, figures: str) -> None:
        # A second pass of the same kind (test set, then map) gets a new bar.
        task = self._tasks.get(name)
        if task is None or (self._progress.tasks[task].finished and done < total):
            task = self._tasks[name] = self._progress.add_task(name, total=total, figures=figures)
        self._progress.update(task, completed=done, figures=figures)
        left = self._progress.tasks[task].time_remaining
        self._events.update(name, done, total, left, Text.from_markup(figures).plain)


class _DownloadBar:
    """The part of tqdm's interface that pooch uses, drawn by rich."""

    def __init__(self, console: Console, name: str, size: int) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=28),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=events.are_enabled(),
        )
        self._name, self._events = name, events.StageEvents()
        self._task = self._progress.add_task(escape(name), total=size or None)
        self._progress.start()
        self._total = size

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value
        self._progress.update(self._task, total=value or None)

    def update(self, amount: int) -> None:
        self._progress.advance(self._task, amount)
        task = self._progress.tasks[self._task]
        self._events.update("downloading", task.completed, self._total, task.time_remaining, self._name)

    def reset(self) -> None:  # pooch resets, then adds the whole size again
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()


def download_bar(console: Console) -> Callable[[str, int], _DownloadBar]:
    """A function that makes the bar of a download, for the catalogue."""
    return lambda name, size: _DownloadBar(console, name, size)


class _RunClock:
    """Progress and remaining time of one run of a study."""

    def __init__(self, done: float) -> None:
        self.started, self.done_at_start = time.monotonic(), done  # above 0 for a resumed run
        self.next_line = self.started + _FIRST_LINE

    def left(self, done: float) -> float | None:
        """Remaining seconds of the training at its average speed so far; None: too early to estimate."""
        now, share = time.monotonic() - self.started, done - self.done_at_start
        return now * (1 - done) / share if now > _ESTIMATE_AFTER and share > 0 else None


class StudyProgress:
    """A line for every finished run of a study, and the progress of current ones: bars on a terminal, else lines."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console = console
        self._problems = console_err() if console.quiet else console  # failures are printed even with --quiet
        self._planned = self._done = 0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        waiting = f"{workers} runs at a time" if workers > 1 else "preparing"
        self._waiting: TaskID | None = self._progress.add_task(waiting, total=None, figures="")
        self._clocks: dict[str, _RunClock] = {}  # by key of the run
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> StudyProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def training(self, setting: Setting, now: TrainingProgress) -> None:
        clock = self._clocks.get(setting.key)
        if clock is None:
            clock = self._clocks[setting.key] = _RunClock(now.done)
        left = clock.left(now.done)
        figures = f"epoch {now.epoch}/{now.epochs}" + ("" if left is None else f", about {duration(left)} left")
        self._show_bar(setting, now.done, figures)
        if not self._console.is_terminal and time.monotonic() >= clock.next_line:
            clock.next_line = time.monotonic() + _LINE_EVERY
            what = escape(_setting_name(setting))
            self._console.print(f"{what}: {figures} ({100 * now.done:.0f} %), loss {now.loss:.4f}", soft_wrap=True)

    def _show_bar(self, setting: Setting, done: float, figures: str) -> None:
        if self._waiting is not None:
            self._progress.remove_task(self._waiting)
            self._waiting = None
        if setting.key not in self._tasks:
            short = f"{setting.scene.name}, {setting.method.name}, seed {setting.seed}"  # a line has 80 characters
            self._tasks[setting.key] = self._progress.add_task(escape(short), total=1.0, figures="")
        self._progress.update(self._tasks[setting.key], completed=done, figures=figures)

    def started(self, start: StudyStart) -> None:
        self._planned, self._done = start.planned, start.done_before
        for scene, reason in start.missing.items():
            self._problems.print(f"[yellow]Missing[/] {escape(scene)}: {escape(reason)}", soft_wrap=True)
        before = f", {start.done_before} of them done before" if start.done_before else ""
        again = f", {start.failed_before} failed before and run again" if start.failed_before else ""
        begun = f", {start.begun_before} begun before and continued" if start.begun_before else ""
        self._console.print(f"{start.planned} runs{before}{again}{begun}")
        for line in estimate_lines(start.estimate):
            self._console.print(escape(line), soft_wrap=True, highlight=False)
        self._progress.start()  # after the downloads, which have their own bars

    def run_done(self, record: Record) -> None:
        from hypercaps.study.records import FailedRun

        self._clocks.pop(record.key, None)
        if (task := self._tasks.pop(record.key, None)) is not None:
            self._progress.remove_task(task)
        if not record.cut_short:
            self._done += 1
        shown = self._problems if isinstance(record, FailedRun) else self._console
        shown.print(f"{self._done}/{self._planned} {escape(_run_name(record))}: {_outcome(record)}", soft_wrap=True)


def estimate_lines(estimate: Estimate) -> list[str]:
    """How long the runs of a study will take, and which have no estimate."""
    unknown, lines = sum(estimate.unknown.values()), []
    known = estimate.runs - unknown
    if known:
        at_once = f", {estimate.at_once} at a time" if estimate.at_once > 1 else ""
        runs = "1 run" if known == 1 else f"{known} runs"
        lines.append(f"About {duration(estimate.seconds)} for {runs}{at_once}, by the times of earlier runs.")
    if unknown:
        listed = ", ".join(f"{name} ({number})" for name, number in estimate.unknown.items())
        runs = "1 run, because none like it" if unknown == 1 else f"{unknown} runs, because none like them"
        lines.append(f"No estimate for {runs} is finished: {listed}.")
    return lines


def duration(seconds: float) -> str:
    """A duration, rounded for display: "40 s", "12 min", "3.5 h"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _setting_name(setting: Setting) -> str:
    labels = _labels_in_words(setting.train_share, setting.per_class, setting.split, setting.block)
    return f"{setting.scene.name}, {setting.method.name}, {labels}, seed {setting.seed}"


def _run_name(record: Record) -> str:
    labels = _labels_in_words(record.train_share, record.labels_per_class, record.split, record.block)
    return f"{record.scene}, {record.method}, {labels}, seed {record.seed}"


def _labels_in_words(share: float, per_class: int | None, split: str, block: int | None) -> str:
    amount = f"{100 * share:g} %" if per_class is None else f"{per_class} per class"
    return f"{amount} by {f'{split} split' if block is None else f'blocks of {block}'}"


def _outcome(record: Record) -> str:
    from hypercaps.study.records import FailedRun

    if isinstance(record, FailedRun):
        return f"[red]failed[/]: {escape(record.error)}"
    leakage = "" if record.leakage is None else f", leakage {100 * record.leakage:.1f} %"
    text = f"OA {record.oa:.2f} %{leakage}, trained in {record.train_seconds:.1f} s"
    if record.cut_short:
        text += f", stopped by the time budget after {record.epochs} epochs"
    return text
