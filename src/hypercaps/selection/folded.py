"""A training with spatial folds: one method or the best of several, scored out of fold, trained on all labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hypercaps.data.labels import Labels
from hypercaps.data.splits import Split
from hypercaps.data.splits.distances import compare_distances, ground_of
from hypercaps.data.splits.folds import Folds
from hypercaps.inference.metrics import Scores
from hypercaps.inference.run_metrics import Baseline, CandidateRow
from hypercaps.inference.scoring import score_out_of_fold, with_intervals
from hypercaps.selection.candidates import LDA, Candidate
from hypercaps.selection.final import FinalModel, Member, train_final
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold, cross_fit
from hypercaps.selection.race import OnCandidate, OnComparing, Race, RaceSettings
from hypercaps.training.loop import OnProgress
from hypercaps.training.scene_cache import SceneCache
from hypercaps.training.spec import TrainingSpec


@dataclass(frozen=True)
class FoldedTraining:
    """What to train with folds."""

    spec: TrainingSpec  # of the method; its seed and device also for candidates
    candidates: Sequence[Candidate] | None = None  # None: the method of ``spec`` alone
    seconds: float | None = None  # time limit of the comparison and the final training
    on_training: OnProgress | None = None
    on_comparing: OnComparing | None = None
    on_candidate: OnCandidate | None = None

    def run(self, cache: SceneCache, labels: Labels, folds: Folds, split: Split) -> FoldedResult:
        """Compare or cross-fit on ``folds``, then train on all training pixels of ``split``."""
        problem = FoldProblem(cache, labels, folds)
        if self.candidates is None:
            return self._run_one(problem, split)
        settings = RaceSettings(self.spec, self.candidates, self.seconds, self.on_comparing, self.on_candidate)
        race = Race(problem, settings)
        choice = race.run()
        members = [
            Member(one.spec(self.spec), weight, race.results[one])
            for one, weight in zip(choice.members, choice.weights, strict=True)
        ]
        final = train_final(problem, members, split, self.on_training)
        return FoldedResult(problem, final, race.rows(choice), _baseline(problem, self.spec, race.results.get(LDA)))

    def _run_one(self, problem: FoldProblem, split: Split) -> FoldedResult:
        result = cross_fit(problem, self.spec, self._announce)
        final = train_final(problem, [Member(self.spec, 1.0, result)], split, self.on_training)
        own = result if self.spec.method == LDA.method and self.spec.patch_side == LDA.patch else None
        return FoldedResult(problem, final, (), _baseline(problem, self.spec, own))

    def _announce(self, k: int, folds: int) -> None:
        if self.on_comparing is not None:
            self.on_comparing(self.spec.method, k + 1, folds, k, folds)


@dataclass(frozen=True, eq=False)
class FoldedResult:
    """The final model and everything that its out-of-fold predictions tell."""

    problem: FoldProblem
    final: FinalModel
    rows: tuple[CandidateRow, ...]
    baseline: Baseline

    def scores(self) -> Scores:
        """Accuracy and reliability of the out-of-fold predictions, with intervals."""
        problem = self.problem
        scores = score_out_of_fold(self.final.model, self.final.raw, problem.truth, problem.fold)
        return with_intervals(scores, problem.samples(problem.truth, len(scores.per_class)))

    def facts(self) -> FoldFacts:
        """How the score came about."""
        problem, folds = self.problem, self.problem.folds
        legend = problem.labels.legend.entries
        return FoldFacts(
            folds=folds.count,
            units=folds.units.kind,
            n_units=np.unique(problem.unit).size,
            untested=tuple(legend[position].name for position in folds.untested()),
            within_one_area=tuple(legend[position].name for position in folds.within_one_area()),
            partly_seen=folds.partly_seen(),
            distances=compare_distances(folds, ground_of(problem.scene)).in_words(),
            leakage=_leakage(folds, 2 * self.final.model.halo + 1),
        )


@dataclass(frozen=True)
class FoldFacts:
    """What is reported together with a score from folds; the names are those of metrics.json."""

    folds: int
    units: str  # kind of the units
    n_units: int  # of those that were held out
    untested: tuple[str, ...]  # names of the classes that could not be held out
    within_one_area: tuple[str, ...]  # of those that were tested inside of their only labelled area
    partly_seen: int  # held-out pixels of units of which other pixels trained
    distances: str  # how far from labels the held-out pixels are, compared with the ground to be mapped
    leakage: float  # share of held-out pixels whose patch contains a training pixel


def _baseline(problem: FoldProblem, base: TrainingSpec, result: OutOfFold | None) -> Baseline:
    """LDA on the same folds."""
    if result is None or not result.is_complete:
        result = cross_fit(problem, LDA.spec(base))
    oa = 100.0 * result.correct / problem.truth.size
    return Baseline(LDA.method, oa, result.seconds, result.oa_interval())


def _leakage(folds: Folds, patch: int) -> float:
    held = [folds.split(k, patch) for k in range(folds.count)]
    return sum(one.leakage * one.test.size for one in held) / sum(one.test.size for one in held)
