"""The runs of a study on the workers of a dask cluster; results come back, and this machine writes the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from hypercaps.compute.cluster.pool import Cluster, here, still_needed
from hypercaps.errors import ClusterError, HypercapsError
from hypercaps.study.folder import StudyFolder
from hypercaps.study.plan import Setting
from hypercaps.study.runs import OnDone, OpenedScene, RunOutcome, attempt_run, is_over, keep_run, new_record
from hypercaps.training.loop import Progress


@dataclass(frozen=True)
class RunTask:
    """One run, as sent to a worker."""

    setting: Setting
    data: str  # fingerprint of the scene and labels on this machine
    deadline: float | None


def do_runs_on(
    cluster: Cluster,
    settings: Sequence[Setting],
    folder: StudyFolder,
    *,
    data: Mapping[str, str],  # fingerprints by scene name
    deadline: float | None = None,
    on_done: OnDone = lambda record: None,
) -> None:
    """Do the runs on the workers; ``deadline`` is checked against the workers' clocks."""
    in_time = takewhile(lambda setting: not is_over(deadline), settings)
    tasks = (RunTask(setting, data[setting.scene.name], deadline) for setting in in_time)
    # On this machine no run waits behind another: the death of a worker then concerns one run only.
    for task, outcome in cluster.map_as_done(run_on_worker, tasks, most_in_flight=cluster.workers):
        if isinstance(outcome, ClusterError):
            outcome = RunOutcome(new_record(task.setting).failed(str(outcome)))
        if outcome is not None:
            on_done(keep_run(folder, outcome))


def run_on_worker(task: RunTask) -> RunOutcome | None:
    """Executed on a worker; None if the time is over, or the result is not needed any more."""
    if is_over(task.deadline):
        return None

    def watch(setting: Setting, progress: Progress) -> None:
        if not still_needed():
            raise KeyboardInterrupt  # ends the training as Ctrl-C does

    setting, scene = task.setting, task.setting.scene
    try:
        opened = OpenedScene.open_again(scene)
    except HypercapsError as error:
        return RunOutcome(new_record(setting).failed(f"{here()} can't open scene {scene.name!r}: {error}"))
    if opened.digest != task.data:
        message = f"{here()} has other data than this machine for scene {scene.name!r}: give it the same files"
        return RunOutcome(new_record(setting).failed(message))
    try:
        return attempt_run(setting, lambda source: opened, task.deadline, watch)
    except KeyboardInterrupt:
        return None  # dask would take it as the end of the worker
