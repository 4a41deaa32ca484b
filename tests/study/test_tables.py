"""The tables of a study, from constructed records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hypercaps.study.groups import Stat
from hypercaps.study.records import FinishedRun
from hypercaps.study.tables import class_tables, difference_text, failed_table, missing_table, score_table
from support.study_records import cells, failed, first_group, record


def test_median_and_range_ignore_missing_values() -> None:
    assert Stat.of([3.0, None, 1.0, 2.0, 10.0]) == Stat(2.5, 1.0, 10.0, 4)
    assert Stat.of([None]) is None


def test_the_scores_are_medians_and_the_shortest_time_beside_the_paper() -> None:
    runs = [
        record(oa=oa, seed=i, train_seconds=s) for i, (oa, s) in enumerate([(99.0, 90.0), (99.3, 61.4), (98.0, 70)])
    ]
    row = cells(score_table(*first_group(runs)), "1D-ConvCapsNet")
    assert row == {
        "Method": "1D-ConvCapsNet",
        "Training": "paper recipe, 50 epochs",
        "Runs": "3",
        "OA, paper": "99.18",
        "OA, ours": "99.00 (98.00–99.30)",
        "OA, difference": "-0.18",
        "AA, paper": "98.85",
        "AA, ours": "98.00 (97.00–98.30)",
        "AA, difference": "-0.85",
        "kappa, paper": "99.06",
        "kappa, ours": "97.00 (96.00–97.30)",
        "kappa, difference": "-2.06",
        "Seconds, paper": "402",
        "Seconds, ours": "61.4",
        "Parameters, ours": "1,000",
    }


def test_methods_are_in_the_papers_order_and_failed_runs_do_not_count() -> None:
    names = ["convcapsnet", "capsnet", "mlp", "3d-cnn", "c-cnn", "rbf-svm", "se-2d-cnn"]
    runs = [record(name) for name in names] + [record("mlp", seed=1, error="no memory")]
    table = score_table(*first_group(runs))
    assert [row[0] for row in table.rows] == [
        "RBF-SVM", "MLP", "Se-2D-CNN", "3D-CNN", "c-CNN", "CapsNet", "1D-ConvCapsNet",
    ]  # fmt: skip
    assert {row[2] for row in table.rows} == {"1"}
    assert cells(table, "c-CNN")["Seconds, paper"] == "–"  # not given in the paper


@pytest.mark.parametrize(
    ("others", "note"),
    [
        ({}, ""),
        ({"changed": {"epochs": 50}}, ""),  # the recipe's number
        ({"recipe": "tuned", "recipe_epochs": 500, "changed": {"epochs": 100}}, "tuned recipe, 100 of 500 epochs"),
        ({"changed": {"structure": {"filters": 2}}}, "filters 2"),
        ({"changed": {"batch_size": 8}}, "batch 8"),
        ({"val_share": 0.05}, "5 % for validation"),
        ({"cut_short": True}, "1 of 1 runs cut short by the budget"),
    ],
)
def test_a_column_notes_differences_from_the_papers_training(others: dict[str, Any], note: str) -> None:
    assert first_group([record("mlp", **others)])[2][0].note == note


def test_runs_that_differ_in_more_than_the_seed_are_in_different_columns() -> None:
    runs = [record("mlp", 90.0), record("mlp", 95.0, changed={"epochs": 5}), record("mlp", 80.0, recipe="tuned")]
    columns = first_group(runs)[2]
    assert [(c.trained, c.stat("oa").median) for c in columns] == [
        ("paper recipe, 50 epochs", 90.0),
        ("paper recipe, 5 of 50 epochs", 95.0),
        ("tuned recipe", 80.0),
    ]


def test_a_training_that_was_cut_short_is_not_the_shortest_training() -> None:
    runs = [record(train_seconds=3.0, epochs=2, cut_short=True), record(seed=1, train_seconds=100.0)]
    column = first_group(runs)[2][0]
    assert column.seconds == 100.0 and column.epoch_seconds == 1.5
    assert first_group(runs[:1])[2][0].seconds is None


def test_class_tables_follow_the_papers_two_experiments() -> None:
    runs = [record("capsnet", 97.0, seed=i) for i in range(2)] + [record("rbf-svm", 84.0), record("convcapsnet", 99.0)]
    first, second = class_tables(*first_group(runs))
    assert first.head == [
        "Class", "RBF-SVM, paper", "RBF-SVM, ours (1 run)", "RBF-SVM, difference",
        "1D-ConvCapsNet, paper", "1D-ConvCapsNet, ours (1 run)", "1D-ConvCapsNet, difference",
    ]  # fmt: skip
    assert second.head[2] == "CapsNet, ours (2 runs)" and len(second.head) == 7
    assert [row[0] for row in first.rows] == [
        *(f"{i} class {i}" for i in range(1, 17)),
        "OA",
        "AA",
        "kappa",
        "Time (s)",
    ]
    # The paper's per-class figures of RBF-SVM are shares of other pixels: no difference is shown.
    assert first.rows[1][1:4] == ["81.58", "84.02", "–"]
    assert cells(second, "16 class 16")["CapsNet, ours (2 runs)"] == "97.16 (97.16–97.16)"
    assert cells(second, "OA")["CapsNet, difference"] == "-0.73"
    assert cells(second, "Time (s)")["CapsNet, paper"] == "6,483"


def test_the_papers_classes_are_not_compared_with_other_classes() -> None:
    (table,) = class_tables(*first_group([record(classes=9)]))
    assert cells(table, "1 class 1")["1D-ConvCapsNet, paper"] == "–"
    assert cells(table, "OA")["1D-ConvCapsNet, paper"] == "99.18"


@pytest.mark.parametrize("others", [{"scene": "my-field"}, {"train_share": 0.3}, {"train_share": 0.1}])
def test_only_our_classes_are_shown_where_the_paper_has_none(others: dict[str, Any]) -> None:
    group = first_group([record(**others)])
    (table,) = class_tables(*group)
    assert table.head == ["Class", "1D-ConvCapsNet, ours (1 run)"]
    assert ("OA, paper" in score_table(*group).head) == (others == {"train_share": 0.1})


def test_a_class_without_test_pixels_is_a_dash() -> None:
    run = record()
    assert isinstance(run, FinishedRun)
    without = replace(run.per_class[0], accuracy=None)
    (table,) = class_tables(*first_group([replace(run, per_class=(without, *run.per_class[1:]))]))
    assert table.rows[0][1:] == ["100.00", "–", "–"]


def test_failed_runs_and_missing_scenes() -> None:
    table = failed_table([record(), failed("3d-cnn", "not enough memory", 4)])
    assert table is not None
    assert [row[1:] for row in table.rows] == [["3D-CNN", "5 %", "4", "not enough memory"]]
    missing = missing_table({"my-field": "no file"})
    assert missing is not None and missing.rows == [["my-field", "no file"]]
    assert failed_table([record()]) is None and missing_table({}) is None


@pytest.mark.parametrize(("ours", "text"), [(99.304, "+0.12"), (99.1799, "+0.00"), (99.17, "-0.01"), (50.0, "-49.18")])
def test_a_difference_is_between_the_figures_as_printed(ours: float, text: str) -> None:
    assert difference_text(99.18, Stat.of([ours])) == text
