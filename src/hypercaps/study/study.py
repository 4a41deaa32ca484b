"""A study from its plan to its pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypercaps.compute.cluster.pool import Cluster
from hypercaps.errors import HypercapsError, OutputError
from hypercaps.io.catalog import ProgressMaker
from hypercaps.io.writers.atomic import translate_write_errors
from hypercaps.study.cluster_runs import do_runs_on
from hypercaps.study.pages import write_study
from hypercaps.study.plan import Study
from hypercaps.study.records import Record, StudyFolder, succeeded
from hypercaps.study.runs import OnDone, OnProgress, data_digest, do_runs, finished, open_place


@dataclass(frozen=True)
class StudyStart:
    """What there is to do."""

    planned: int
    done_before: int
    failed_before: int  # are tried again
    missing: dict[str, str]  # scenes that can't be had, and why


@dataclass(frozen=True)
class StudyResult:
    """How a study ended."""

    planned: int
    done_before: int
    done_now: int
    failed: int  # of those done now
    left: int  # of the scenes that can be had
    missing: dict[str, str]  # scenes that can't, and why
    files: list[Path]

    @property
    def succeeded(self) -> int:
        """Runs that have a result, from this call or an earlier one, of the scenes that could be opened."""
        return self.done_before + self.done_now - self.failed


def run_study(
    study: Study,
    out: Path,
    *,
    workers: int = 1,
    cluster: Cluster | None = None,
    budget_minutes: float | None = None,
    command: str = "",
    download_progress: ProgressMaker | None = None,
    on_start: Callable[[StudyStart], None] = lambda start: None,
    on_done: OnDone = lambda record: None,
    on_progress: OnProgress = lambda setting, progress: None,
) -> StudyResult:
    """Do what is not yet done of a study and write its pages; Ctrl-C writes them with what there is.

    Runs are done one after another, or by ``workers`` processes, or by the workers of ``cluster``.
    """
    deadline = None if budget_minutes is None else time.time() + 60 * budget_minutes
    _prepare(out)
    folder = StudyFolder(out)
    data, missing = _data_of(study, download_progress)
    settings = study.settings()
    had = [setting for setting in settings if setting.scene.name not in missing]
    to_do = [setting for setting in had if finished(folder, setting, data[setting.scene.name]) is None]
    failed_before = sum(not succeeded(folder.record(setting.key) or {}) for setting in to_do)
    on_start(StudyStart(len(settings), len(had) - len(to_do), failed_before, missing))
    folder.note_call(
        title=study.title,
        about=study.about,
        command=command,
        planned=[setting.key for setting in settings],
        scenes=[place.name for place in study.scenes],
        missing=missing,
    )
    now: list[Record] = []

    def note(record: Record) -> None:
        now.append(record)
        on_done(record)

    try:
        if cluster is None:
            do_runs(to_do, folder, workers=workers, deadline=deadline, on_done=note, on_progress=on_progress)
        else:
            do_runs_on(cluster, to_do, folder, data=data, deadline=deadline, on_done=note)
    finally:  # Ctrl-C too: the pages are written with what there is
        files = write_study(out)
    ended = [record for record in now if not record.get("cut_short")]
    failed = sum(not succeeded(record) for record in ended)
    left = len(to_do) - len(ended)
    return StudyResult(len(settings), len(had) - len(to_do), len(ended), failed, left, missing, files)


def _prepare(out: Path) -> None:
    """Make the study's folder; refuse one that holds other things."""
    with translate_write_errors(out):
        if out.exists() and not out.is_dir():
            raise OutputError(f"{out} is a file: give a folder that is new, empty, or a study's")
        strange = out.is_dir() and any(path.name != "runs" for path in out.iterdir())  # killed early, it has just that
        if strange and not (out / "study.json").exists():
            raise OutputError(f"{out} holds other things than a study: give a folder that is new, empty, or a study's")
        (out / "runs").mkdir(parents=True, exist_ok=True)


def _data_of(study: Study, progress: ProgressMaker | None) -> tuple[dict[str, str], dict[str, str]]:
    """Fingerprints of the scenes and labels that can be opened, and why the others can't, by the scenes' names."""
    data, missing = {}, {}
    for place in study.scenes:
        try:
            data[place.name] = data_digest(*open_place(place, progress))
        except HypercapsError as error:
            missing[place.name] = str(error)
    return data, missing
