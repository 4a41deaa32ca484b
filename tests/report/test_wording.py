"""Sentences about scores: what they hold for, and no promise that the test pixels don't keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hypercaps.cli.tables import scores_line
from hypercaps.inference.metrics import ConfidenceReport, reliability
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.report import comparison, wording
from support.run_records import CANDIDATES, DISTANCES, folds_metrics, lda_baseline, unscored_metrics


def test_folds_say_which_ground_the_score_describes() -> None:
    said = wording.question_text(folds_metrics())
    assert said is not None and said.startswith(
        "The score describes ground like the labelled ground: pixels of polygons that the model has not seen."
    )
    assert DISTANCES in said and said.endswith("without any label nearby, accuracy is lower.")
    assert wording.question_text(RunMetrics(90.0, 90.0, 90.0, split="random")) is None
    assert wording.question_text(folds_metrics(distances=None)) is not None


@pytest.mark.parametrize(
    ("units", "one", "several"),
    [
        ("points", "had not seen it;", "folds of whole points"),
        ("polygons", "its polygon", "folds of whole polygons"),
        ("tiles", "its tile", "folds of whole tiles"),
        ("areas", "its labelled area", "folds of whole labelled areas"),
        ("blocks", "its block", "folds of whole blocks"),
        (None, "its spatial unit", "folds of whole spatial units"),
    ],
)
def test_folds_name_their_units(units: str | None, one: str, several: str) -> None:
    said = wording.split_text(folds_metrics(units=units))
    assert said.startswith("Split: folds (5 ") and one in said and several in said


def test_folds_with_leakage_say_so() -> None:
    assert "Leakage 12.0 %" in wording.split_text(folds_metrics(leakage=0.12))
    said = wording.leakage_text(folds_metrics(leakage=0.12))
    assert said is not None and "expect a lower accuracy" in said and "--split blocks" not in said
    assert wording.leakage_text(folds_metrics()) is None and not wording.among_labels(folds_metrics())


def test_a_run_without_scores_says_only_that() -> None:
    metrics = unscored_metrics(pseudo_labelled=900, baseline=lda_baseline(60.0), untested=("oats",))
    assert wording.split_text(metrics).startswith("Split: none (")
    expected = "Nothing was scored: all 230 labels were used for training (--split none)."
    assert wording.unscored_text(metrics) == expected and wording.unscored_text(folds_metrics()) is None
    texts = ("leakage_text", "scene_text", "question_text", "untested_text", "interval_note")
    assert comparison.baseline_text(metrics) is None
    assert [getattr(wording, name)(metrics) for name in texts] == [None] * len(texts)


def test_the_comparison_of_a_run_without_scores_is_no_score() -> None:
    """Its confidence is calibrated, on the predictions that the comparison made."""
    assert "its confidence is not calibrated" in wording.unknown_text(unscored_metrics())
    compared = wording.unknown_text(unscored_metrics(candidates=CANDIDATES))
    assert "calibrated" not in compared and "those that chose among them" in compared


@pytest.mark.parametrize(
    ("split", "n_test", "interval", "said"),
    [
        ("blocks", 500, None, "expect a lower accuracy in another scene"),
        ("blocks", 500, (70.0, 81.26), "expect an accuracy of 70.0 to 81.3 % in the rest of this scene"),
        ("folds", 500, (70.0, 81.0), "expect an accuracy of 70.0 to 81.0 % on ground like the labelled ground"),
        ("blocks", 19, (70.0, 81.0), "too few to say what accuracy to expect"),
        ("folds", 19, None, "too few to say what accuracy to expect"),
    ],
)
def test_an_accuracy_is_promised_with_its_interval_and_never_by_few_pixels(
    split: str, n_test: int, interval: tuple[float, float] | None, said: str
) -> None:
    metrics = folds_metrics(split=split, leakage=0.0, n_test=n_test, oa_interval=interval, pseudo_labelled=900)
    text = wording.scene_text(metrics)
    assert text is not None and said in text
    assert "expect this accuracy" not in text


@pytest.mark.parametrize(
    ("kind", "pixels", "split", "said"),
    [
        (
            None,
            None,
            "random",
            "Confidence is not calibrated, because there were no validation pixels: it is the raw score",
        ),
        ("none", 7, "random", "because 7 validation pixels are too few to calibrate on (10 or more are needed): it is"),
        ("none", 70, "folds", "because on 70 out-of-fold predictions, calibration did not improve it clearly: it is"),
        ("temperature", 1234, "blocks", "Confidence, calibrated on 1,234 validation pixels (temperature), differs"),
        ("isotonic", None, "folds", "Confidence, calibrated on out-of-fold predictions (isotonic), differs"),
    ],
)
def test_confidence_says_what_it_is_based_on(kind: str | None, pixels: int | None, split: str, said: str) -> None:
    table = reliability(np.array([0.9, 0.8]), np.array([True, False]))
    report = ConfidenceReport(table, kind, table if kind else (), pixels=pixels)
    text = wording.calibration_text(folds_metrics(confidence=report, split=split))
    assert text is not None and said in text and "45.0 percentage points" in text
    assert wording.calibration_text(folds_metrics(confidence=None)) is None


def test_confidence_is_not_claimed_for_a_scene_of_other_ground() -> None:
    said = wording.calibration_text(folds_metrics(claimed=False))
    assert said is not None and said.startswith("Confidence is not valid for this scene")
    for claimed in (True, None):
        assert "calibrated on" in (wording.calibration_text(folds_metrics(claimed=claimed)) or "")


def test_confidence_on_other_labels_does_not_say_which_pixels_it_was_calibrated_on() -> None:
    table = reliability(np.array([0.9, 0.8]), np.array([True, False]))
    report = ConfidenceReport(table, "temperature", table, pixels=24)
    text = wording.calibration_text(folds_metrics(confidence=report, split=None))
    assert text is not None and "calibrated on 24 labelled pixels of its training (temperature)" in text


def test_untested_classes_are_named() -> None:
    said = wording.untested_text(folds_metrics(untested=("oats", "rye", "water")))
    assert said is not None and said.startswith(
        "Not tested: oats, rye and water. OA, AA and kappa say nothing about these classes: if they cover much of the "
        "scene, the map can be far less accurate."
    )
    assert "labels in one polygon only" in said
    one = wording.untested_text(folds_metrics(split="random", leakage=0.0, untested=()))
    assert one == (
        "Not tested: oats. OA, AA and kappa say nothing about this class: if it covers much of the scene, the map can "
        "be far less accurate."
    )
    tested = folds_metrics().per_class[:2]
    assert wording.untested_text(folds_metrics(untested=(), per_class=tested)) is None


def test_scores_of_some_classes_only_say_so() -> None:
    metrics = folds_metrics()
    assert wording.tested_share_text(metrics) == "of 2 of 3 classes"
    assert scores_line(metrics).endswith("(60.0 to 82.5)   of 2 of 3 classes")
    complete = replace(metrics, per_class=metrics.per_class[:2], untested=())
    assert wording.tested_share_text(complete) is None and scores_line(complete).endswith("(60.0 to 82.5)")
    assert wording.tested_share_text(unscored_metrics(per_class=metrics.per_class)) is None


def test_units_of_which_some_pixels_train_are_counted() -> None:
    assert wording.partly_seen_text(folds_metrics()) is None
    said = wording.partly_seen_text(folds_metrics(units="tiles", partly_seen=1200))
    assert said == (
        "1,200 held-out pixels lie beside training pixels of their own tile: those of a class that is in no other one "
        "and can't be held out."
    )
    assert wording.partly_seen_text(unscored_metrics(partly_seen=3)) is None
    leaking = folds_metrics(units="tiles", leakage=0.12)
    assert "a training pixel of another tile inside" in wording.split_text(leaking)
    assert "a training pixel inside its patch" in wording.split_text(replace(leaking, partly_seen=3))


def test_doubtful_labels_are_counted() -> None:
    assert wording.doubtful_text(folds_metrics(doubtful=1)) == "1 label is doubtful: see doubtful.gpkg"
    assert (
        wording.doubtful_text(folds_metrics(doubtful=12), "doubtful.csv") == "12 labels are doubtful: see doubtful.csv"
    )
    assert wording.doubtful_text(folds_metrics(doubtful=0)) is wording.doubtful_text(folds_metrics()) is None


def test_contradictions_name_the_unit_unless_it_is_the_pixel_itself() -> None:
    points = wording.contradiction_text(folds_metrics(doubtful=3, units="points"))
    assert points is not None and "a model that had not seen it assigns the pixel" in points
    areas = wording.contradiction_text(folds_metrics(doubtful=1, units="polygons"))
    assert areas is not None and "had not seen it, or not seen its polygon, assigns the pixel" in areas
    assert wording.contradiction_text(folds_metrics(doubtful=0)) is None


def test_classes_with_one_area_are_named() -> None:
    assert wording.one_area_text(folds_metrics()) is None
    said = wording.one_area_text(folds_metrics(within_one_area=("corn", "rye")))
    assert said is not None and said.startswith("Tested near training labels only: corn and rye; the labels of each")
    assert wording.one_area_text(unscored_metrics(within_one_area=("corn",))) is None


def test_the_accuracy_of_the_map_is_given_for_folds_only() -> None:
    said = wording.map_accuracy_text(folds_metrics(map_accuracy=81.23, map_accuracy_interval=(70.0, 90.0)))
    assert said is not None and "81.2 % (70.0 to 90.0)" in said
    assert wording.map_accuracy_text(folds_metrics()) is None
    assert wording.map_accuracy_text(unscored_metrics(map_accuracy=81.0)) is None


def test_a_wide_interval_is_said_to_tell_little() -> None:
    said = wording.too_few_text(folds_metrics(units="polygons", n_units=9, oa_interval=(18.2, 100.0)))
    assert said is not None and said.startswith("9 polygons are too few") and "from 18 to 100 %" in said
    assert "Label more polygons" in said
    assert wording.too_few_text(folds_metrics(oa_interval=(70.5, 100.0))) is None
    pixels = wording.too_few_text(RunMetrics(50.0, 50.0, 50.0, split="random", oa_interval=(20.0, 80.0)))
    assert pixels is not None and pixels.startswith("Too few test pixels") and "Label more areas" in pixels
    assert wording.too_few_text(unscored_metrics()) is None


@pytest.mark.parametrize(("units", "said"), [("areas", True), ("blocks", True), ("tiles", False), ("polygons", False)])
def test_the_note_of_intervals_says_what_counts_as_one(units: str, said: bool) -> None:
    note = wording.interval_note(folds_metrics(units=units))
    assert note is not None and ("pieces of one area count as one, in the table too" in note) == said
