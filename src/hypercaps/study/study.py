"""A study from its plan to its pages."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypercaps.errors import HypercapsError, OutputError
from hypercaps.io.catalog import ProgressMaker
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.write import explained, write_json
from hypercaps.modelfile import current_versions
from hypercaps.study.pages import write_study
from hypercaps.study.plan import ScenePlace, Study
from hypercaps.study.runs import OnDone, OnProgress, Record, do_runs, finished
from hypercaps.training import total_memory


@dataclass(frozen=True)
class StudyResult:
    """How a study ended."""

    planned: int
    done_before: int
    done_now: int
    failed: int  # of both
    missing: list[dict[str, str]]  # scenes that can't be had, and why
    files: list[Path]

    @property
    def left(self) -> int:
        return self.planned - self.done_before - self.done_now


def run_study(
    study: Study,
    out: Path,
    *,
    workers: int = 1,
    budget_minutes: float | None = None,
    command: str = "",
    download_progress: ProgressMaker | None = None,
    on_start: Callable[[int, int, list[dict[str, str]]], None] = lambda planned, before, missing: None,
    on_done: OnDone = lambda record: None,
    on_progress: OnProgress = lambda setting, progress: None,
) -> StudyResult:
    """Do what is not yet done of a study and write its pages; Ctrl-C writes them with what there is."""
    deadline = None if budget_minutes is None else time.time() + 60 * budget_minutes
    _prepare(out)
    missing = [gap for place in study.scenes if (gap := _missing(place, download_progress)) is not None]
    lacking = {gap["scene"] for gap in missing}
    settings = [setting for setting in study.settings() if setting.scene.name not in lacking]
    before = [record for setting in settings if (record := finished(out, setting)) is not None]
    to_do = [setting for setting in settings if finished(out, setting) is None]
    on_start(len(settings), len(before), missing)
    write_json(out / "study.json", _about(study, command, missing, len(settings)))
    now: list[Record] = []

    def note(record: Record) -> None:
        now.append(record)
        on_done(record)

    stopped = False
    try:
        do_runs(to_do, out, workers=workers, deadline=deadline, on_done=note, on_progress=on_progress)
    except KeyboardInterrupt:
        stopped = True
    files = write_study(out)
    if stopped:
        raise KeyboardInterrupt
    ended = [record for record in now if not record.get("cut_short")]
    failed = sum(record["error"] is not None for record in (*before, *ended))
    return StudyResult(len(settings), len(before), len(ended), failed, missing, files)


def _prepare(out: Path) -> None:
    """Make the study's folder; refuse one that holds other things."""
    with explained(out):
        if out.exists() and not out.is_dir():
            raise OutputError(f"{out} is a file: give a folder that is new, empty, or a study's")
        if out.is_dir() and any(out.iterdir()) and not (out / "study.json").exists():
            raise OutputError(f"{out} holds other things than a study: give a folder that is new, empty, or a study's")
        (out / "runs").mkdir(parents=True, exist_ok=True)


def _missing(place: ScenePlace, progress: ProgressMaker | None) -> dict[str, str] | None:
    """Why a scene can't be had, or None if it can; a public one is downloaded here if need be."""
    try:
        labels = open_labels(place.labels, progress=progress)
        labels.check_fits(open_scene(place.cube, progress=progress))
    except HypercapsError as error:
        return {"scene": place.name, "reason": str(error)}
    return None


def _about(study: Study, command: str, missing: list[dict[str, str]], planned: int) -> dict[str, Any]:
    """What the pages say beside the figures."""
    return {
        "name": study.name,
        "title": study.title,
        "about": study.about,
        "command": command,
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "memory_gb": round(total_memory() / 1e9, 1),
            "system": platform.system(),
        },
        "versions": current_versions(),
        "missing": missing,
        "planned": planned,
    }


def _processor() -> str:
    """The processor's name; Python itself knows it on few systems."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
