"""The runs of a study on the workers of a dask cluster; results come back, and this machine writes the files."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from hypercaps.compute.cluster.pool import Cluster, here, still_needed, tell
from hypercaps.errors import ClusterError, HypercapsError
from hypercaps.study.folder import StudyFolder
from hypercaps.study.plan import Setting
from hypercaps.study.runs import (
    OnDone,
    OnProgress,
    OpenedScene,
    RunControl,
    RunOutcome,
    attempt_run,
    is_over,
    keep_run,
    new_record,
)
from hypercaps.training.loop import Progress

_TELL_EVERY = 2.0  # seconds


@dataclass(frozen=True)
class RunTask:
    """One run, as sent to a worker."""

    setting: Setting
    data: str  # fingerprint of the scene and labels on this machine
    deadline: float | None
    checkpoint: Path | None = None  # used by a worker that has its folder


def do_runs_on(
    cluster: Cluster,
    settings: Sequence[Setting],
    folder: StudyFolder,
    *,
    data: Mapping[str, str],  # fingerprints by scene name
    deadline: float | None = None,
    on_done: OnDone = lambda record: None,
    on_progress: OnProgress = lambda setting, progress: None,
) -> None:
    """Do the runs on the workers; ``deadline`` is checked against the workers' clocks."""
    in_time = takewhile(lambda setting: not is_over(deadline), settings)
    tasks = (_task(setting, data, deadline, folder) for setting in in_time)
    by_key = {setting.key: setting for setting in settings}

    def show(message: Mapping[str, Any]) -> None:
        if message.get("run") in by_key:
            on_progress(by_key[message["run"]], Progress(**{name: message[name] for name in _SHOWN}, last=None))

    # On this machine no run waits behind another: the death of a worker then concerns one run only.
    most = cluster.workers
    for task, outcome in cluster.map_as_done(run_on_worker, tasks, most_in_flight=most, on_message=show):
        if isinstance(outcome, ClusterError):
            outcome = RunOutcome(new_record(task.setting).failed(str(outcome)))
        if outcome is not None:
            on_done(keep_run(folder, outcome))


_SHOWN = ("epoch", "epochs", "done", "loss")  # what workers tell about the progress of a run


def _task(setting: Setting, data: Mapping[str, str], deadline: float | None, folder: StudyFolder) -> RunTask:
    return RunTask(setting, data[setting.scene.name], deadline, folder.checkpoint(setting.key))


class _Watch:
    """Reports the progress of a run, and stops it if its result is not needed any more."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, setting: Setting, progress: Progress) -> None:
        if not still_needed():
            raise KeyboardInterrupt  # ends the training as Ctrl-C does
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _TELL_EVERY
            tell({"run": setting.key} | {name: getattr(progress, name) for name in _SHOWN})


def run_on_worker(task: RunTask) -> RunOutcome | None:
    """Executed on a worker; None if the time is over, or the result is not needed any more."""
    if is_over(task.deadline):
        return None
    setting, scene = task.setting, task.setting.scene
    try:
        opened = OpenedScene.open_again(scene)
    except HypercapsError as error:
        return RunOutcome(new_record(setting).failed(f"{here()} can't open scene {scene.name!r}: {error}"))
    if opened.digest != task.data:
        message = f"{here()} has other data than this machine for scene {scene.name!r}: give it the same files"
        return RunOutcome(new_record(setting).failed(message))
    # The folder of the study need not exist on another machine.
    checkpoint = task.checkpoint if task.checkpoint is not None and task.checkpoint.parent.is_dir() else None
    try:
        return attempt_run(setting, lambda source: opened, RunControl(checkpoint, task.deadline, _Watch()))
    except KeyboardInterrupt:
        return None  # dask would take it as the end of the worker
