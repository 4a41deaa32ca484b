"""The tables of a study, from constructed records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hypercaps.study.document import Table
from hypercaps.study.groups import Column, Stat, group_runs
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.records import FinishedRun, Record, read_record
from hypercaps.study.tables import (
    class_tables,
    cost_table,
    difference_text,
    failed_table,
    missing_table,
    small_table,
    summary_table,
)


def record(method: str = "convcapsnet", oa: float = 99.0, *, seed: int = 0, classes: int = 16, **others: Any) -> Record:
    changed = {"epochs": None, "batch_size": None, "structure": {}} | others.pop("changed", {})
    document = {
        "scene": "indian-pines",
        "method": method,
        "recipe": "paper",
        "train_share": 0.2,
        "seed": seed,
        "oa": oa,
        "aa": oa - 1,
        "kappa": oa - 2,
        "per_class": [
            {"label": i, "name": f"class {i}", "accuracy": oa + i / 100, "test": 9} for i in range(1, classes + 1)
        ],
        "parameters": 1000,
        "train_seconds": 60.0,
        "epochs": 50,
        "error": None,
        "recipe_epochs": 50,
        "changed": changed,
        "val_share": 0.1,
        "cut_short": False,
    }
    return read_record(document | others)


def failed(method: str, error: str, seed: int = 0) -> Record:
    document = {
        "scene": "salinas", "method": method, "recipe": "paper", "train_share": 0.05, "seed": seed, "oa": None,
        "aa": None, "kappa": None, "per_class": None, "parameters": None, "train_seconds": None, "epochs": None,
        "error": error,
    }  # fmt: skip
    return read_record(document)


def cells(table: Table, row: str) -> dict[str, str]:
    """A row by the text of its first cell."""
    [match] = [r for r in table.rows if r[0] == row]
    assert all(len(r) == len(table.head) for r in table.rows)
    return dict(zip(table.head, match, strict=True))


def first_group(records: list[Record]) -> tuple[str, LabelBudget, list[Column]]:
    ((scene, budget), columns) = next(iter(group_runs(records).items()))
    return scene, budget, columns


def test_median_and_range_ignore_missing_values() -> None:
    assert Stat.of([3.0, None, 1.0, 2.0, 10.0]) == Stat(2.5, 1.0, 10.0, 4)
    assert Stat.of([None]) is None


def test_the_summary_shows_medians_and_the_shortest_time_beside_the_paper() -> None:
    runs = [
        record(oa=oa, seed=i, train_seconds=s) for i, (oa, s) in enumerate([(99.0, 90.0), (99.3, 61.4), (98.0, 70)])
    ]
    row = cells(summary_table(*first_group(runs)), "1D-ConvCapsNet")
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
    table = summary_table(*first_group(runs))
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
    assert ("OA, paper" in summary_table(*group).head) == (others == {"train_share": 0.1})


def test_a_class_without_test_pixels_is_a_dash() -> None:
    run = record()
    assert isinstance(run, FinishedRun)
    without = replace(run.per_class[0], accuracy=None)
    (table,) = class_tables(*first_group([replace(run, per_class=(without, *run.per_class[1:]))]))
    assert table.rows[0][1:] == ["100.00", "–", "–"]


def test_small_training_sets() -> None:
    runs = [record(oa=97.9, train_share=1 - 0.9), record(oa=94.0, train_share=0.05), record(oa=99.0)]
    table = small_table(group_runs([*runs, record("mlp", train_share=0.1)]))
    assert table is not None
    assert [[row[1], *row[4:]] for row in table.rows] == [
        ["10 %", "97.89", "97.90", "+0.01"],
        ["5 %", "94.64", "94.00", "-0.64"],
    ]
    assert small_table(group_runs(runs[2:])) is None


def test_cost_and_its_ratios() -> None:
    small, large = record(train_seconds=100.0, parameters=100), record("capsnet", train_seconds=1550.0, parameters=2000)
    table = cost_table(group_runs([small, large]))
    assert table is not None
    assert [row[2:] for row in table.rows] == [
        ["1D-ConvCapsNet", "paper recipe, 50 epochs", "402", "100", "2.0", "409,168", "100"],
        ["CapsNet", "paper recipe, 50 epochs", "6,483", "1,550", "31.0", "7,387,904", "2,000"],
        ["CapsNet / 1D-ConvCapsNet", "ratio", "16.1 ×", "15.5 ×", "15.5 ×", "18.1 ×", "20.0 ×"],
    ]
    other = cost_table(group_runs([small, replace(large, epochs=10, train_seconds=310.0)]))
    # 310 s of 10 epochs and 100 s of 50 can't be compared.
    assert other is not None and other.rows[-1][5:7] == ["–", "15.5 ×"]
    assert cost_table(group_runs([record("mlp")])) is None


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
