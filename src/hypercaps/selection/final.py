"""The model that is kept: trained on all labels, calibrated on out-of-fold predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hypercaps.data.splits import Split
from hypercaps.errors import Interrupted
from hypercaps.inference.calibration import MOST_PIXELS, fit_calibration, fit_temperature
from hypercaps.inference.model import TrainedModel
from hypercaps.models.history import History
from hypercaps.selection.fit import FittedModel, fit_model
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold, RawScores
from hypercaps.training.loop import OnProgress
from hypercaps.training.spec import TrainingSpec


@dataclass(frozen=True, eq=False)
class Member:
    """A method of the final model, its weight and its out-of-fold predictions."""

    spec: TrainingSpec
    weight: float
    result: OutOfFold


@dataclass(frozen=True, eq=False)
class FinalModel:
    """The model that is kept, and what it would have predicted for pixels that it had not seen."""

    model: TrainedModel  # calibrated
    history: History  # of the member with the largest weight; seconds are those of all
    raw: RawScores  # (M, n) out-of-fold scores: the network's, or the average of its members' probabilities


def train_final(
    problem: FoldProblem, members: Sequence[Member], split: Split, on_progress: OnProgress | None = None
) -> FinalModel:
    """Train the members on the training pixels of ``split``, and calibrate them on their out-of-fold predictions."""
    ordered = sorted(members, key=lambda member: -member.weight)
    fitted = [_fit_member(problem, member, split, on_progress) for member in ordered]
    if any(one.history.interrupted for one in fitted):  # the scores of complete trainings would not be its own
        raise Interrupted("stopped in the final training: there is no complete model to keep")
    if len(ordered) == 1:
        model, raw = fitted[0].model, ordered[0].result.raw
    else:
        models = [_as_member(one.model, member) for one, member in zip(fitted, ordered, strict=True)]
        model = replace(models[0], partners=tuple(models[1:]))
        weighted = [np.float32(member.weight) * member.result.probabilities() for member in ordered]
        raw = np.sum(weighted, axis=0, dtype=np.float32)
    calibration = fit_calibration(*_some(raw, problem.truth, problem.fold))
    history = replace(fitted[0].history, seconds=sum(one.history.seconds for one in fitted))
    return FinalModel(replace(model, calibration=calibration), history, raw)


def _fit_member(problem: FoldProblem, member: Member, split: Split, on_progress: OnProgress | None) -> FittedModel:
    job = member.spec.job(problem.scene, problem.labels, split, problem.unit_of_pixel)
    return fit_model(job, cache=problem.cache, on_progress=on_progress)


def _as_member(model: TrainedModel, member: Member) -> TrainedModel:
    calibration = fit_temperature(member.result.raw, member.result.problem.truth)
    return replace(model, weight=member.weight, own_calibration=calibration)


def _some(
    raw: RawScores, truth: npt.NDArray[np.int64], fold: npt.NDArray[np.int64]
) -> tuple[RawScores, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """At most as many pixels as a calibration uses, drawn at random."""
    if truth.size <= MOST_PIXELS:
        return raw, truth, fold
    drawn = np.sort(np.random.default_rng(0).choice(truth.size, MOST_PIXELS, replace=False))
    return raw[drawn], truth[drawn], fold[drawn]
