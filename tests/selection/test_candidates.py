"""The candidates of auto, by name and by method."""

from __future__ import annotations

import pytest

from hypercaps.errors import ModelError
from hypercaps.selection.candidates import CANDIDATES, Candidate, candidate_like, choose_candidates
from hypercaps.training.spec import TrainingSpec


def names(*given: str) -> list[str]:
    return [one.name for one in choose_candidates(given)]


def test_candidates_are_named_by_name_or_by_method() -> None:
    assert names("lda-5") == ["lda-5"]
    assert names("lda") == ["lda"]  # a name before a method
    assert names("convcapsnet") == [one.name for one in CANDIDATES if one.method == "convcapsnet"]
    assert len(names("convcapsnet")) == 17
    assert choose_candidates(None) == CANDIDATES


def test_their_order_is_that_of_the_table_and_none_is_there_twice() -> None:
    assert names("convcapsnet-1", "logistic", "lda", "logistic") == ["lda", "logistic", "convcapsnet-1"]
    assert len(set(names(*(one.name for one in CANDIDATES)))) == len(CANDIDATES)


def test_an_unknown_name_is_refused_with_a_hint() -> None:
    with pytest.raises(ModelError, match=r"no candidate 'logistics': known are lda, .*; did you mean logistic\?"):
        choose_candidates(["lda", "logistics"])
    with pytest.raises(ModelError, match="no candidate 'xyz'") as refusal:
        choose_candidates(["xyz"])
    assert "did you mean" not in str(refusal.value)
    with pytest.raises(ModelError, match="no candidate is named"):
        choose_candidates([])
    with pytest.raises(ModelError, match=r"is the text 'lda, logistic': a list .* such as \['lda', 'logistic'\]"):
        choose_candidates("lda, logistic")


def test_a_candidate_keeps_the_seed() -> None:
    candidate = next(one for one in CANDIDATES if one.name == "convcapsnet-3-damped-propagated")
    assert candidate.is_propagated and not candidate.is_simple
    spec = candidate.spec(TrainingSpec(seed=7))
    assert (spec.method, spec.patch, spec.recipe, spec.whitening, spec.seed) == ("convcapsnet", 3, "best", "damped", 7)


def test_settings_of_another_method_do_not_pass_to_a_candidate() -> None:
    """LDA, which every score from folds is compared with, has neither epochs nor the network's structure."""
    base = TrainingSpec("c-cnn", "paper", 9, "damped", {"kernels": 3}, epochs=2, batch_size=5, seed=4)
    assert choose_candidates(["lda"])[0].spec(base) == TrainingSpec("lda", patch=1, seed=4)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda one: one.name)
def test_the_candidate_of_a_trained_model_is_known(candidate: Candidate) -> None:
    recipe = candidate.recipe or "tuned"  # of a simple one, the model file has the method's own
    assert candidate_like(candidate.method, candidate.patch, recipe, candidate.whitening) is candidate


def test_a_model_that_no_candidate_is_like() -> None:
    assert candidate_like("convcapsnet", 7, "paper", None) is None
    assert candidate_like("lda", 9, "tuned", None) is None
