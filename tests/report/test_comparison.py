"""Sentences about the methods that were compared."""

from __future__ import annotations

from dataclasses import replace

from hypercaps.inference.run_metrics import CandidateRow
from hypercaps.report import comparison
from support.run_records import CANDIDATES, folds_metrics, lda_baseline


def test_the_simplest_method_is_named_as_better_only_if_it_is() -> None:
    said = comparison.baseline_text(folds_metrics(baseline=lda_baseline(62.14)))
    assert said == "LDA on the same pixels: 62.1 % (50.0 to 71.0), in 0.1 s."
    better = comparison.baseline_text(folds_metrics(oa=62.1, baseline=lda_baseline(66.4)))
    assert better == (
        "LDA, the simplest method, is better on the same pixels: 66.4 % (50.0 to 71.0) against 62.1 % (76.0 to 90.2); "
        "to use it, type --method lda."
    )
    equal = comparison.baseline_text(folds_metrics(oa=62.11, baseline=lda_baseline(62.14)))  # as far as it is shown
    assert equal is not None and "better" not in equal
    assert comparison.baseline_text(folds_metrics(method="lda", patch=1, baseline=lda_baseline(99.0))) is None
    assert comparison.baseline_text(folds_metrics()) is None


def test_lda_on_windows_is_compared_with_lda_on_single_pixels() -> None:
    windows = folds_metrics(method="lda", patch=7, baseline=lda_baseline(62.1))
    assert (
        comparison.baseline_text(windows) == "LDA on single pixels instead of windows: 62.1 % (50.0 to 71.0), in 0.1 s."
    )
    worse = comparison.baseline_text(replace(windows, baseline=lda_baseline(99.0)))
    assert worse is not None and worse.startswith("LDA on single pixels, the simplest method, is better")
    assert worse.endswith("type --method lda --patch 1.")


def test_chosen_candidates_come_first_and_those_not_run_are_left_out() -> None:
    names = [row.name for row in comparison.ranked(CANDIDATES)]
    assert names == ["convcapsnet-7-propagated", "logistic", "random-forest", "lda"]


def test_candidates_of_some_folds_only_come_last_because_folds_differ() -> None:
    complete = replace(CANDIDATES[0], name="whole", outcome="compared", oa=80.0, folds=5)
    stopped = replace(
        complete, name="stopped", outcome="behind after 2 of 5 folds, where lda has 99.0 %", oa=95.0, folds=2
    )
    chosen = replace(complete, name="kept", outcome="chosen", oa=70.0)
    assert [row.name for row in comparison.ranked([stopped, complete, chosen])] == ["kept", "whole", "stopped"]


def test_candidates_that_were_not_run_are_named_or_counted() -> None:
    assert comparison.compared_text(CANDIDATES).endswith("Not run: rbf-svm (it would take too long).")
    many = [replace(CANDIDATES[0], name=f"candidate-{number}") for number in range(5)]
    assert comparison.compared_text(many).endswith("Not run: 5 further candidates (it would take too long).")
    assert "Not run" not in comparison.compared_text(CANDIDATES[1:])
    assert "left out early" in comparison.compared_text(CANDIDATES)
    complete = [row for row in CANDIDATES if row.folds == 5]
    assert "the same out-of-fold pixels. " in comparison.compared_text(complete)


def test_the_comparison_says_what_is_kept_without_proof() -> None:
    def row(name: str, *, is_default: bool = False) -> CandidateRow:
        return CandidateRow(name, name, "", "compared", oa=80.0, folds=5, is_default=is_default)

    basic = [row("lda", is_default=True), row("logistic", is_default=True)]
    assert "The average of lda and logistic is kept unless a candidate is clearly better." in comparison.compared_text(
        basic
    )
    assert "lda is kept unless a candidate is clearly better." in comparison.compared_text([basic[0], row("rbf-svm")])
    assert "The one with the lowest log loss is kept" in comparison.compared_text([row("rbf-svm")])
    network = replace(row("convcapsnet-7-guided", is_default=True), method="convcapsnet")
    fields = comparison.compared_text([row("lda"), network])
    assert "so convcapsnet-7-guided is kept unless a candidate is clearly more accurate." in fields
    assert "average of lda" not in fields
