"""Run a study, from its plan to its pages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from hypercaps.compute.cluster.pool import Cluster
from hypercaps.compute.cluster.start import check_installed
from hypercaps.errors import HypercapsError, OutputError
from hypercaps.io.catalog import ProgressMaker
from hypercaps.io.writers.atomic import translate_write_errors
from hypercaps.study.cluster_runs import do_runs_on
from hypercaps.study.estimate import Estimate, estimate_time
from hypercaps.study.folder import StudyFolder, StudyLog
from hypercaps.study.pages import write_study
from hypercaps.study.plan import Study
from hypercaps.study.records import FailedRun, Record
from hypercaps.study.runs import OnDone, OnProgress, OpenedScene, do_runs, is_finished


@dataclass(frozen=True)
class StudyStart:
    """What a study has to do."""

    planned: int
    done_before: int
    failed_before: int  # will be tried again
    begun_before: int  # have a checkpoint and will be continued
    estimate: Estimate  # of the time for those that are left
    missing: dict[str, str]  # scenes that can't be opened, with the reason


@dataclass(frozen=True)
class StudyResult(StudyStart):
    """How a study ended."""

    done_now: int
    failed: int  # of those done now
    left: int  # runs of scenes that can be opened
    files: list[Path]

    @property
    def succeeded(self) -> int:
        """Runs with a result, from this call or an earlier one, of the scenes that could be opened."""
        return self.done_before + self.done_now - self.failed


@dataclass(frozen=True)
class StudyCallbacks:
    """Functions that are called while a study runs."""

    download: ProgressMaker | None = None  # makes a progress bar for the download of a scene
    on_start: Callable[[StudyStart], None] = lambda start: None
    on_done: OnDone = lambda record: None
    on_progress: OnProgress = lambda setting, progress: None


def run_study(
    study: Study,
    out: Path,
    *,
    workers: int = 1,
    cluster: Cluster | None = None,
    budget_minutes: float | None = None,
    command: str = "",
    callbacks: StudyCallbacks = StudyCallbacks(),  # noqa: B008 - it is frozen
) -> StudyResult:
    """Do the runs of a study that are not done yet and write its pages, also after Ctrl-C.

    Runs are done one after another in this process, or by ``workers`` processes on this machine, or by the workers of
    ``cluster``.
    """
    deadline = None if budget_minutes is None else time.time() + 60 * budget_minutes
    if workers > 1:
        check_installed()
    _prepare(out)
    folder = StudyFolder(out)
    data, missing = _open_scenes(study, callbacks.download)
    planned = study.settings()
    possible = [setting for setting in planned if setting.scene.name in data]
    to_do = [setting for setting in possible if not is_finished(folder, setting, data[setting.scene.name])]
    for setting in possible:
        if setting not in to_do:  # killed after the record was written and before the checkpoint was removed
            folder.checkpoint(setting.key).unlink(missing_ok=True)
    failed = sum(isinstance(folder.record(setting.key), FailedRun) for setting in to_do)
    begun = sum(folder.checkpoint(setting.key).exists() for setting in to_do)
    at_once = workers if cluster is None else cluster.slots
    time_left = estimate_time(to_do, folder.records(), at_once)
    start = StudyStart(len(planned), len(possible) - len(to_do), failed, begun, time_left, missing)
    callbacks.on_start(start)
    call = StudyLog(study.title, study.about, (command,), tuple(setting.key for setting in planned), missing)
    folder.add_call(call, [scene.name for scene in study.scenes])
    done: list[Record] = []

    def note(record: Record) -> None:
        done.append(record)
        callbacks.on_done(record)

    try:
        with _local_cluster(workers, len(to_do)) if cluster is None else nullcontext(cluster) as pool:
            if pool is None:
                do_runs(to_do, folder, deadline, note, callbacks.on_progress)
            else:
                do_runs_on(
                    pool, to_do, folder, data=data, deadline=deadline, on_done=note, on_progress=callbacks.on_progress
                )
    finally:  # Ctrl-C included
        files = write_study(out)
    ended = [record for record in done if not record.cut_short]
    failed = sum(isinstance(record, FailedRun) for record in ended)
    return StudyResult(**vars(start), done_now=len(ended), failed=failed, left=len(to_do) - len(ended), files=files)


def _local_cluster(workers: int, runs: int) -> AbstractContextManager[Cluster | None]:
    """Worker processes on this machine; None: this process does the runs."""
    if workers == 1 or not runs:
        return nullcontext()
    # The threads of a run must not depend on how many runs are left: they change times and the last digits.
    return Cluster(workers=min(workers, runs), threads=max(1, (os.cpu_count() or 1) // workers))


def _prepare(out: Path) -> None:
    """Make the study's folder; refuse a folder with other files."""
    with translate_write_errors(out):
        if os.path.lexists(out) and not out.is_dir():
            what = "a file" if out.exists() else "a link to nothing"
            raise OutputError(f"{out} is {what}: give a new or empty folder, or that of a study")
        # A study that was killed early has only the folder of its runs.
        other_files = out.is_dir() and any(path.name != "runs" for path in out.iterdir())
        if other_files and not (out / "study.json").exists():
            raise OutputError(f"{out} holds files that are no study's: give a new or empty folder, or that of a study")
        (out / "runs").mkdir(parents=True, exist_ok=True)


def _open_scenes(study: Study, progress: ProgressMaker | None) -> tuple[dict[str, str], dict[str, str]]:
    """Fingerprints of the scenes that can be opened, and the errors of the others, by scene name."""
    data, missing = {}, {}
    for source in study.scenes:
        try:
            data[source.name] = OpenedScene.open(source, progress).digest
        except HypercapsError as error:
            missing[source.name] = str(error)
    return data, missing
