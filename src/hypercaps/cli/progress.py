"""Progress of trainings, maps, studies and downloads: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

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

from hypercaps.cli.messages import say

if TYPE_CHECKING:  # these import torch, which 'hypercaps scenes' must not wait for
    from hypercaps.inference.run_metrics import CandidateRow
    from hypercaps.pipeline.requests import RunObserver
    from hypercaps.study.plan import Setting
    from hypercaps.study.records import Record
    from hypercaps.study.study import StudyStart
    from hypercaps.training.loop import Progress as TrainingProgress

_EVERY = 10  # epochs between lines, without a terminal


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
        say(f"Training a second time, with --split {split}, by the same recipe.")

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
        """A candidate is being trained and tested on a fold, counted from 1; ``done`` of ``total`` are of all."""
        figures = f"{escape(name)}  fold {fold}/{folds}"
        self._update("comparing", done, total, figures)
        if not self._console.is_terminal and name != self._shown_candidate:
            self._shown_candidate = name
            self._console.print(f"comparing  {figures}", soft_wrap=True)

    def candidate_done(self, row: CandidateRow) -> None:
        """A line for a candidate: its scores, or why it has none."""
        log_loss = "" if row.log_loss is None else f", log loss {row.log_loss:.2f}"
        scores = row.outcome if row.oa is None else f"OA {row.oa:.1f} %{log_loss}, {row.seconds:.1f} s"
        self._console.print(f"{escape(row.name)}: {escape(scores)}", soft_wrap=True, highlight=False)

    def mapping(self, done: int, total: int) -> None:
        self._update("classifying", done, total, f"{done:,} of {total:,} pixels")

    def _update(self, name: str, done: float, total: float, figures: str) -> None:
        # A second pass of the same kind (test set, then map) gets a new bar.
        task = self._tasks.get(name)
        if task is None or (self._progress.tasks[task].finished and done < total):
            task = self._tasks[name] = self._progress.add_task(name, total=total, figures=figures)
        self._progress.update(task, completed=done, figures=figures)


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
        )
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

    def reset(self) -> None:  # pooch resets, then adds the whole size again
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop()


def download_bar(console: Console) -> Callable[[str, int], _DownloadBar]:
    """A function that makes the bar of a download, for the catalogue."""
    return lambda name, size: _DownloadBar(console, name, size)


class StudyProgress:
    """A line for every finished run of a study, and on a terminal a bar for the current one."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console = console
        self._planned = self._done = 0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        waiting = f"{workers} runs at a time" if workers > 1 else "preparing"
        self._task = self._progress.add_task(waiting, total=None, figures="")

    def __enter__(self) -> StudyProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def training(self, setting: Setting, now: TrainingProgress) -> None:
        what = f"{setting.scene.name}, {setting.method.name}, seed {setting.seed}"
        figures = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.4f}"
        self._progress.update(self._task, description=escape(what), total=1.0, completed=now.done, figures=figures)

    def started(self, start: StudyStart) -> None:
        self._planned, self._done = start.planned, start.done_before
        for scene, reason in start.missing.items():
            self._console.print(f"[yellow]Missing[/] {escape(scene)}: {escape(reason)}", soft_wrap=True)
        before = f", {start.done_before} of them done before" if start.done_before else ""
        again = f", {start.failed_before} failed before and run again" if start.failed_before else ""
        self._console.print(f"{start.planned} runs{before}{again}")
        self._progress.start()  # after the downloads, which have their own bars

    def run_done(self, record: Record) -> None:

        if not record.cut_short:
            self._done += 1
        self._console.print(
            f"{self._done}/{self._planned} {escape(_run_name(record))}: {_outcome(record)}", soft_wrap=True
        )


def _run_name(record: Record) -> str:
    number, block = record.labels_per_class, record.block
    amount = f"{100 * record.train_share:g} %" if number is None else f"{number} per class"
    split = f"{record.split} split" if block is None else f"blocks of {block}"
    return f"{record.scene}, {record.method}, {amount} by {split}, seed {record.seed}"


def _outcome(record: Record) -> str:
    from hypercaps.study.records import FailedRun

    if isinstance(record, FailedRun):
        return f"[red]failed[/]: {escape(record.error)}"
    leakage = "" if record.leakage is None else f", leakage {100 * record.leakage:.1f} %"
    text = f"OA {record.oa:.2f} %{leakage}, trained in {record.train_seconds:.1f} s"
    if record.cut_short:
        text += f", stopped by the time budget after {record.epochs} epochs"
    return text
