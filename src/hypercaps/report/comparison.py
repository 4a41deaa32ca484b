"""Sentences about the methods that were compared: which were, what was kept and why, and what LDA alone gives."""

from __future__ import annotations

from collections.abc import Iterable

from hypercaps.inference.run_metrics import CandidateRow, RunMetrics
from hypercaps.report.wording import joined, score_text

_NETWORK = "convcapsnet"
_MANY = 4  # candidates that are counted, not named
_COMPARED = "All were compared on the same out-of-fold pixels"
_LEFT_EARLY = "; one that was left out early, on those of the folds that it was run on"
_CAUTION = "The best of several looks slightly better on the pixels that chose it than it is."


def baseline_text(metrics: RunMetrics) -> str | None:
    """The score of the simplest method, and whether it is better; None if the model is of this method."""
    simple = metrics.baseline
    if simple is None or metrics.oa is None:
        return None
    name, command = simple.method.upper() if simple.method == "lda" else simple.method, f"--method {simple.method}"
    if metrics.method == simple.method:
        if metrics.patch in (None, 1):
            return None
        name, command = f"{name} on single pixels", f"{command} --patch 1"  # the model is LDA on windows
    # An average that was chosen by log loss has LDA among its members or its candidates: no advice then.
    if round(simple.oa, 1) > round(metrics.oa, 1) and not metrics.method.startswith("average"):
        return (
            f"{name}, the simplest method, is better on the same pixels: {score_text(simple.oa, simple.oa_interval)} "
            f"against {score_text(metrics.oa, metrics.oa_interval)}; to use it, type {command}."
        )
    took = f", in {simple.seconds:.1f} s" if simple.seconds else ""  # a model file does not keep it
    compared = "instead of windows" if metrics.method == simple.method else "on the same pixels"
    return f"{name} {compared}: {score_text(simple.oa, simple.oa_interval)}{took}."


def ranked(candidates: Iterable[CandidateRow]) -> list[CandidateRow]:
    """Those that the model consists of first, then by OA, those of some folds only last; without those not run."""
    run = [row for row in candidates if row.oa is not None]
    folds = max((row.folds for row in run), default=0)
    return sorted(run, key=lambda row: (not is_chosen(row), row.folds < folds, -(row.oa or 0.0)))


def compared_text(candidates: Iterable[CandidateRow]) -> str:
    """How candidates were compared and chosen, and which were not run."""
    rows = list(candidates)
    left_early = _LEFT_EARLY if len({row.folds for row in rows if row.oa is not None}) > 1 else ""
    text = f"{_COMPARED}{left_early}. {_default_text(rows)} {_CAUTION}"
    not_run: dict[str, list[str]] = {}
    for row in rows:
        if row.oa is None:
            not_run.setdefault(row.outcome.removeprefix("not run: "), []).append(row.name)
    left_out = [
        f"{joined(names) if len(names) < _MANY else f'{len(names)} further candidates'} ({why})"
        for why, names in not_run.items()
    ]
    return f"{text} Not run: {'; '.join(left_out)}." if left_out else text


def _default_text(rows: Iterable[CandidateRow]) -> str:
    """What is kept unless another candidate is clearly better."""
    default = [row for row in rows if row.is_default]
    names = [row.name for row in default]
    if not default:
        return "The one with the lowest log loss is kept, or an average with others."
    if default[0].method != _NETWORK:
        kept = names[0] if len(names) == 1 else f"The average of {joined(names)}"
        return f"{kept} is kept unless a candidate is clearly better."
    return (
        "Neighbouring pixels mostly belong to one field here (LDA on windows and with label propagation shows it), "
        f"so {names[0]} is kept unless a candidate is clearly more accurate."
    )


def is_chosen(row: CandidateRow) -> bool:
    """Whether the model consists of this candidate, alone or in an average."""
    return row.outcome.startswith(("chosen", "weight"))
