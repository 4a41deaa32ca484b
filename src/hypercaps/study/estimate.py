"""How long the runs that are left will take, by the runs that are finished."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.plan import Setting
from hypercaps.study.records import FinishedRun, Record, RunRecord
from hypercaps.study.runs import new_record


@dataclass(frozen=True)
class Estimate:
    """The time that runs will take; runs that nothing is known of are listed instead."""

    runs: int = 0  # all that are left
    seconds: float = 0.0  # of those with an estimate, with ``at_once`` at a time
    at_once: int = 1
    unknown: dict[str, int] = field(default_factory=dict)  # number of runs by scene, method and labels


def estimate_time(settings: Sequence[Setting], records: Iterable[Record], at_once: int = 1) -> Estimate:
    """Each run takes as long as the finished ones that differ only in the seed, or as long as the study file says.

    Only trainings count; a run that was begun before counts as a whole.
    """
    measured: dict[str, list[float]] = {}
    for record in records:
        if isinstance(record, FinishedRun) and not record.cut_short:
            measured.setdefault(_kind(record), []).append(record.train_seconds)
    estimates: list[float] = []
    unknown: Counter[str] = Counter()
    for setting in settings:
        new = new_record(setting)
        minutes, seconds = setting.method.minutes, measured.get(_kind(new))
        if seconds:
            estimates.append(median(seconds))
        elif minutes is not None:
            estimates.append(60 * minutes)
        else:
            unknown[f"{new.scene} {new.method} {LabelBudget.of(new).short}"] += 1
    longest = max(estimates, default=0.0)
    return Estimate(len(settings), max(sum(estimates) / at_once, longest), at_once, dict(unknown))


def _kind(record: RunRecord) -> str:
    """What runs must have in common to take equally long."""
    return json.dumps(
        [record.scene, record.method, record.recipe, LabelBudget.of(record), asdict(record.changed)], sort_keys=True
    )
