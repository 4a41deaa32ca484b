"""The candidates of ``--method auto``: which methods, with which patch, whitening and recipe, are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypercaps.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    from hypercaps.training.spec import TrainingSpec

NETWORK = "convcapsnet"
GUIDED = "guided"  # recipe with label propagation in which LDA takes part
PATCHES = (1, 3, 5, 7)


@dataclass(frozen=True)
class Candidate:
    """One way to train."""

    name: str  # as --candidates and the table of the comparison call it
    description: str
    method: str
    patch: int
    recipe: str | None = None
    whitening: str | None = None
    is_simple: bool = True  # runs in seconds on all folds; False: a network, which is run only while it can win

    @property
    def is_propagated(self) -> bool:
        return self.recipe in ("best", GUIDED)

    @property
    def is_guided(self) -> bool:
        return self.recipe == GUIDED

    def spec(self, base: TrainingSpec) -> TrainingSpec:
        """The training of this candidate, with seed and device of ``base``."""
        from hypercaps.training.spec import TrainingSpec  # imports torch

        return TrainingSpec(self.method, self.recipe, self.patch, self.whitening, seed=base.seed, device=base.device)


def _window(patch: int) -> str:
    return "single pixels" if patch == 1 else f"means of {patch} x {patch} pixels"


def _network(patch: int, whitening: str, recipe: str) -> Candidate:
    parts = [NETWORK, str(patch)]
    words = [f"1D-ConvCapsNet, patches of {patch} x {patch}"]
    if whitening == "damped":
        parts.append("damped")
        words.append("damped whitening")
    if recipe == "best":
        parts.append("propagated")
        words.append("labels propagated over the scene")
    if recipe == GUIDED:
        parts.append("guided")
        words.append("labels propagated over the scene with the help of LDA")
    return Candidate("-".join(parts), ", ".join(words), NETWORK, patch, recipe, whitening, is_simple=False)


# Simple ones first, in the order in which near equals are preferred
CANDIDATES: tuple[Candidate, ...] = (
    Candidate("lda", "LDA", "lda", 1),
    Candidate("logistic", "logistic regression", "logistic", 1),
    Candidate("random-forest", "random forest", "random-forest", 1),
    Candidate("rbf-svm", "RBF-SVM", "rbf-svm", 1),
    *(Candidate(f"lda-{patch}", f"LDA on {_window(patch)}", "lda", patch) for patch in PATCHES[1:]),
    *(
        _network(patch, whitening, recipe)
        for patch in PATCHES
        for whitening in ("robust", "damped")
        for recipe in ("augmented", "best")
    ),
    _network(PATCHES[-1], "robust", GUIDED),
)
LDA = CANDIDATES[0]  # also the baseline of every other method


def candidate_like(method: str, patch: int, recipe: str | None, whitening: str | None) -> Candidate | None:
    """The candidate that trains such a model; None: no candidate does."""
    for one in CANDIDATES:
        alike = one.is_simple or (one.recipe, one.whitening) == (recipe, whitening)
        if (one.method, one.patch) == (method, patch) and alike:
            return one
    return None


def choose_candidates(names: Sequence[str] | None) -> tuple[Candidate, ...]:
    """The candidates of these names, or of these methods; all without names."""
    if names is None:
        return CANDIDATES
    if isinstance(names, str):  # its letters would be taken for names
        listed = [name.strip() for name in names.split(",")]
        raise ModelError(f"candidates is the text {names!r}: a list of names is expected, such as {listed}")
    if not names:
        raise ModelError("no candidate is named: give at least one, such as lda,logistic")
    chosen: list[Candidate] = []
    for name in names:
        matching = [one for one in CANDIDATES if one.name == name] or [one for one in CANDIDATES if one.method == name]
        if not matching:
            known = list(dict.fromkeys([one.method for one in CANDIDATES] + [one.name for one in CANDIDATES]))
            raise ModelError(f"there is no candidate {name!r}: known are {', '.join(known)}{did_you_mean(name, known)}")
        chosen += [one for one in matching if one not in chosen]
    return tuple(sorted(chosen, key=CANDIDATES.index))
