"""Compare candidates on the same folds: cheap ones first, networks only while they can still win.

Simple methods run on all folds. LDA on windows of growing size and LDA with label propagation tell which patch, and
whether propagation, suits the scene; only the network with these settings is trained, and it is given up after a fold
in which it is behind the best simple method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hypercaps.errors import HypercapsError, ModelError
from hypercaps.inference.run_metrics import CandidateRow
from hypercaps.selection.candidates import PATCHES, Candidate
from hypercaps.selection.choice import BASIC, LEAST_UNITS, Choice, Losses, choose, excess, is_clearly_worse
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold, run_fold
from hypercaps.selection.propagation import MAX_LABELS, propagated_lda
from hypercaps.training.spec import TrainingSpec

_NETWORK_SHARE = 0.5  # of the time limit that must be left for a network to begin
_GUIDE_ERROR = 0.05  # share of the pixels that LDA on windows may have wrong to take part in label propagation
_CLEAR = 0.95  # probability that label propagation makes LDA more accurate, in a scene of fields
OnComparing = Callable[[str, int, int, int, int], None]  # candidate, fold, folds, candidates done, candidates
OnCandidate = Callable[[CandidateRow], None]


@dataclass(frozen=True)
class RaceSettings:
    """Settings of a comparison."""

    base: TrainingSpec  # seed and device
    candidates: Sequence[Candidate]
    seconds: float | None = None  # time limit of comparison and final training; None: no limit
    on_comparing: OnComparing | None = None
    on_candidate: OnCandidate | None = None


@dataclass(frozen=True)
class _Suited:
    """Patch and label propagation that suit this scene."""

    patch: int
    propagated: bool
    guided: bool = False

    def difference(self, network: Candidate) -> tuple[bool, bool, int, bool]:
        """How far a network is from it; small patches go with damped whitening."""
        whitening = "damped" if self.patch <= 3 and not self.propagated else "robust"
        return (
            network.is_propagated != self.propagated,
            network.is_guided != self.guided,
            abs(network.patch - self.patch),
            network.whitening != whitening,
        )


_UNKNOWN = _Suited(PATCHES[-1], True)  # without evidence


@dataclass
class Race:
    """A comparison under way."""

    problem: FoldProblem
    settings: RaceSettings
    results: dict[Candidate, OutOfFold] = field(default_factory=dict)
    outcomes: dict[Candidate, str] = field(default_factory=dict)  # why a candidate did not finish
    default: Candidate | None = None  # a network that is kept unless another candidate is clearly better
    started: float = field(default_factory=time.perf_counter)

    def run(self) -> Choice:
        """Run the candidates; afterwards ``rows`` describes the comparison."""
        self._leave_out_impossible()
        for candidate in self._simple():
            self._run_simple(candidate)
        for candidate in self._networks():
            self._run_network(candidate)
        if not any(result.is_complete for result in self.results.values()):
            raise ModelError(
                f"the time limit of {self.settings.seconds:.3g} s is too short for one candidate on "
                f"{self.problem.folds.count} folds: allow more (budget, in minutes), or name a single method"
            )
        return choose(self.problem, self.results, self.default)

    # ---- candidates ----------------------------------------------------------------------------------------------

    def _leave_out_impossible(self) -> None:
        """Note candidates that can't be trained on this scene, such as networks that need more bands, as not run."""
        problem, refusals = self.problem, []
        for one in self.settings.candidates:
            spec = one.spec(self.settings.base)
            try:
                spec.job(problem.scene, problem.labels, problem.folds.split(0, one.patch), problem.unit_of_pixel)
            except HypercapsError as error:
                refusals.append(error)
                self.outcomes[one] = f"not run: {str(error).partition(':')[0]}"
        if len(refusals) == len(self.settings.candidates):
            raise refusals[0]

    def _simple(self) -> list[Candidate]:
        return [one for one in self._possible() if one.is_simple]

    def _possible(self) -> list[Candidate]:
        return [one for one in self.settings.candidates if one not in self.outcomes]

    def _networks(self) -> list[Candidate]:
        """The networks worth a training, by the evidence of simple methods; the others are noted as not run."""
        networks = [one for one in self._possible() if not one.is_simple]
        if not networks:
            return []
        suited = self._suited_network()
        chosen = min(networks, key=(suited or _UNKNOWN).difference)
        if suited is not None and suited.propagated and chosen.is_propagated:
            self.default = chosen
        for one in networks:
            if one not in (chosen, self._first_stage(chosen)):
                self.outcomes[one] = f"not run: LDA favours {chosen.name}"
        return [chosen]

    def _first_stage(self, network: Candidate) -> Candidate | None:
        """The candidate that is the first stage of a propagated one: the same without propagation."""
        if not network.is_propagated:
            return None
        alike = (one for one in self.settings.candidates if one.method == network.method and not one.is_propagated)
        return next((one for one in alike if (one.patch, one.whitening) == (network.patch, network.whitening)), None)

    def _suited_network(self) -> _Suited | None:
        """Patch and propagation that suit the scene, by the evidence of LDA in their place; None: there is none."""
        lda = {one.patch: one for one in self.results if one.method == "lda" and self.results[one].is_complete}
        if not lda:
            return None
        patch = min(lda, key=lambda patch: Losses.of(self.results[lda[patch]]).mean)
        if 1 not in lda or not self._is_of_fields(lda):
            return _Suited(patch, False)
        return _Suited(PATCHES[-1], True, self._is_nearly_right(lda))

    def _is_nearly_right(self, lda: Mapping[int, Candidate]) -> bool:
        """Whether LDA (by patch) has few pixels wrong."""
        correct = max(self.results[one].correct for one in lda.values())
        return correct >= (1 - _GUIDE_ERROR) * self.problem.truth.size

    def _is_of_fields(self, lda: Mapping[int, Candidate]) -> bool:
        """Whether neighbouring pixels mostly have one class, by the evidence of LDA (by patch).

        Windows must not make it less accurate, and label propagation must make it clearly more accurate, unless it is
        nearly always right and there is nothing left to gain. Among mixed pixels windows harm, while propagation may
        seem to help inside of a single tile; a few labels are right on windows by chance.
        """
        alone = self.results[lda[1]]
        windows = [self.results[one] for patch, one in lda.items() if patch > 1]
        units = np.unique(self.problem.unit).size
        too_many = self.problem.folds.units.pixels.size > MAX_LABELS
        if too_many or units < LEAST_UNITS or self._out_of_time(1.0):
            return False
        if not any(window.correct >= alone.correct for window in windows):
            return False
        propagated = propagated_lda(self.problem, lda[1].spec(self.settings.base))
        if is_clearly_worse(alone, propagated, _CLEAR):
            return True
        return self._is_nearly_right(lda) and propagated.correct >= alone.correct

    # ---- running -------------------------------------------------------------------------------------------------

    def _run_simple(self, candidate: Candidate) -> None:
        result = self.results[candidate] = OutOfFold.empty(self.problem)
        while not result.is_complete:
            if self._out_of_time(_per_fold(result)):
                self.outcomes[candidate] = _stopped("time limit", result)
                break
            self._run_fold(candidate, result)
        self._report(candidate)

    def _run_network(self, candidate: Candidate) -> None:
        """Run fold after fold, until the network is clearly behind the best simple method."""
        result = self.results[candidate] = OutOfFold.empty(self.problem)
        first = self._first_stage(candidate)
        first_result = None if first is None else self.results.setdefault(first, OutOfFold.empty(self.problem))
        leader = self._leader()
        while not result.is_complete:
            # The final training takes somewhat longer than a fold's; before the first fold, neither is known.
            unknown = _NETWORK_SHARE * (self.settings.seconds or 0.0)
            if self._out_of_time(2.25 * _per_fold(result) if result.done else unknown):
                self.outcomes[candidate] = _stopped("time limit", result)
                break
            self._run_fold(candidate, result, first_result)
            if leader is None or result.is_complete:
                continue
            if self._is_behind(candidate, result, self.results[leader]):
                # Folds differ: the score of some can't be compared with that of others on all.
                oa = self.results[leader].first_folds(result.done).oa
                self.outcomes[candidate] = f"{_stopped('behind', result)}, where {leader.name} has {oa:.1f} %"
                break
        self._report(candidate)
        if first is not None and not result.is_complete:
            self.outcomes[first] = self.outcomes[candidate]

    def _run_fold(self, candidate: Candidate, result: OutOfFold, first: OutOfFold | None = None) -> None:
        settings, folds = self.settings, self.problem.folds.count
        if settings.on_comparing is not None:
            settings.on_comparing(
                candidate.name, result.done + 1, folds, len(self.results) - 1, len(settings.candidates)
            )
        run_fold(self.problem, candidate.spec(settings.base), result, first)

    def _leader(self) -> Candidate | None:
        complete = [one for one, result in self.results.items() if one.is_simple and result.is_complete]
        if not complete:
            return None
        return min(complete, key=lambda one: Losses.of(self.results[one]).mean)

    def _is_behind(self, candidate: Candidate, network: OutOfFold, leader: OutOfFold) -> bool:
        """Whether a network is given up: behind in log loss by more than the standard error, and in accuracy.

        One that suits the scene is given up only if it is clearly less accurate.
        """
        if candidate is self.default:
            return is_clearly_worse(network, leader)
        same_folds = leader.first_folds(network.done)
        mean, error = excess(Losses.of(network), Losses.of(same_folds))
        return mean > error and network.correct < same_folds.correct

    def _out_of_time(self, more: float) -> bool:
        limit = self.settings.seconds
        return limit is not None and time.perf_counter() - self.started + more > limit

    def _report(self, candidate: Candidate) -> None:
        if self.settings.on_candidate is not None:
            self.settings.on_candidate(self._row(candidate, self.outcomes.get(candidate, "")))

    # ---- table ---------------------------------------------------------------------------------------------------

    def rows(self, choice: Choice) -> tuple[CandidateRow, ...]:
        """The comparison as a table, in the order of the candidates."""
        weights = dict(zip(choice.members, choice.weights, strict=True))
        rows = []
        for one in self.settings.candidates:
            outcome = self.outcomes.get(one, "compared")
            if one in weights:
                outcome = "chosen" if len(weights) == 1 else f"weight {weights[one]:.2f}"
            rows.append(self._row(one, outcome))
        return tuple(rows)

    def _kept_by_default(self) -> Sequence[Candidate]:
        """What is kept unless another candidate is clearly better."""
        if self.default is not None and self.results[self.default].is_complete:
            return (self.default,)
        return [one for one, result in self.results.items() if one.name in BASIC and result.is_complete]

    def _row(self, candidate: Candidate, outcome: str) -> CandidateRow:
        facts = candidate.name, candidate.method, candidate.description, outcome
        result = self.results.get(candidate)
        if result is None or not result.done:
            return CandidateRow(*facts)
        return CandidateRow(
            *facts,
            oa=result.oa,
            oa_interval=result.oa_interval(),
            log_loss=Losses.of(result).mean,
            folds=result.done,
            seconds=result.seconds,
            is_default=candidate in self._kept_by_default(),
        )


def _per_fold(result: OutOfFold) -> float:
    return result.seconds / result.done if result.done else 0.0


def _stopped(why: str, result: OutOfFold) -> str:
    return f"{why} after {result.done} of {result.problem.folds.count} folds"
