"""The runs of a study on the workers of a cluster. Records come back, and this machine writes the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hypercaps.compute.cluster.pool import Cluster, here, still_wanted
from hypercaps.errors import ClusterError, HypercapsError
from hypercaps.io.paths import absolute
from hypercaps.study.plan import Setting
from hypercaps.study.records import Classified, Record, StudyFolder
from hypercaps.study.runs import (
    OnDone,
    Opened,
    attempt_run,
    blank_record,
    data_digest,
    keep_run,
    open_once,
    over,
)
from hypercaps.training.loop import Progress


@dataclass(frozen=True)
class _Run:
    """What a worker is sent."""

    setting: Setting
    data: str  # the fingerprint of the scene and labels that this machine has
    deadline: float | None


def do_runs_on(
    cluster: Cluster,
    settings: Sequence[Setting],
    folder: StudyFolder,
    *,
    data: Mapping[str, str],  # fingerprints, by the scenes' names
    deadline: float | None = None,
    on_done: OnDone = lambda record: None,
) -> None:
    """What ``do_runs`` does, by the workers; their clocks must agree with ours for ``deadline`` to mean the same."""

    def runs() -> Iterator[_Run]:
        for setting in settings:
            if over(deadline):
                return
            place = setting.scene
            there = replace(place, cube=absolute(place.cube), labels=absolute(place.labels))
            yield _Run(replace(setting, scene=there), data[place.name], deadline)

    for run, outcome in cluster.map_as_done(_run, runs()):
        if isinstance(outcome, ClusterError):
            record = blank_record(run.setting)
            record["error"] = str(outcome)
            on_done(keep_run(folder, run.setting, record, None))
        elif outcome is not None:
            on_done(keep_run(folder, run.setting, *outcome))


def _run(run: _Run) -> tuple[Record, Classified | None] | None:
    """What a worker does; None if the time was over, or nobody waits for it any more."""
    if over(run.deadline):
        return None

    def watch(setting: Setting, progress: Progress) -> None:
        if not still_wanted():
            raise KeyboardInterrupt  # ends the training as the user's own would

    opened: Opened = {}
    wrong = _what_is_wrong(run, opened)
    if wrong is not None:
        return blank_record(run.setting) | {"error": f"{here()} {wrong}"}, None
    try:
        return attempt_run(run.setting, opened, run.deadline, watch)
    except KeyboardInterrupt:
        return None  # dask would take it as the end of the worker


def _what_is_wrong(run: _Run, opened: Opened) -> str | None:
    """Why this worker can't do a run; before it trains for an hour."""
    place = run.setting.scene
    try:
        if data_digest(*open_once(place, opened)) == run.data:
            return None
    except HypercapsError as error:
        return f"can't open scene {place.name!r}: {error}"
    return f"finds other data than this machine for scene {place.name!r}: give them the same files"
