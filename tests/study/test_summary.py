"""The short tables that a page begins with."""

from __future__ import annotations

from typing import Any

import pytest

from hypercaps.study.document import Table
from hypercaps.study.groups import group_runs
from hypercaps.study.summary import summary_blocks, summary_table, time_text
from support.study_records import cells, first_group, record


def test_a_row_has_the_papers_figure_ours_the_difference_and_the_effort() -> None:
    runs = [
        record(oa=oa, seed=i, train_seconds=s) for i, (oa, s) in enumerate([(99.0, 90.0), (99.3, 61.4), (98.0, 70)])
    ]
    assert cells(summary_table(*first_group(runs)), "1D-ConvCapsNet") == {
        "Method": "1D-ConvCapsNet",
        "OA, paper": "99.18",
        "OA, ours": "99.00 (98.00–99.30)",
        "Difference": "-0.18",
        "Runs": "3",
        "Epochs": "50",
        "Training time": "61.4 s",
    }


@pytest.mark.parametrize(
    ("others", "label", "epochs"),
    [
        ({"epochs": 80, "recipe_epochs": 500, "changed": {"epochs": 80}, "val_share": 0.05},
         "MLP (5 % for validation)", "80 of 500"),
        ({"epochs": 12, "cut_short": True}, "MLP (1 of 1 runs cut short by the budget)", "12 of 50"),
        ({"recipe_epochs": None, "epochs": 1}, "MLP", "–"),  # a method without epochs
        ({"changed": {"epochs": 50}}, "MLP", "50"),
    ],
)  # fmt: skip
def test_fewer_epochs_than_the_recipes_are_noted(others: dict[str, Any], label: str, epochs: str) -> None:
    assert cells(summary_table(*first_group([record("mlp", **others)])), label)["Epochs"] == epochs


def test_the_papers_main_table_comes_first_and_then_other_scenes_and_shares() -> None:
    runs = [
        record(scene=scene, train_share=share) for scene in ("a-field", "indian-pines") for share in (0.05, 0.1, 0.2)
    ]
    tables = [block for block in summary_blocks(group_runs(runs)) if isinstance(block, Table)]
    assert [table.title.removesuffix(" of the labels for training") for table in tables] == [
        f"{scene}, {share} %" for share in (20, 10, 5) for scene in ("Indian Pines, corrected", "a-field")
    ]
    assert ["no results for this scene" in table.caption for table in tables] == [False, True] + 4 * [False]
    assert "OA, paper" not in tables[1].head and "Difference" not in tables[1].head


def test_the_method_with_the_highest_median_is_named() -> None:
    runs = [record("c-cnn", 99.4), record("convcapsnet", 99.0), record("convcapsnet", 99.6, seed=1)]
    assert summary_table(*first_group(runs)).caption == "Highest median: c-CNN."
    assert summary_table(*first_group(runs[1:])).caption == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.154, "0.15 s"), (21.77, "21.8 s"), (256.2, "4.3 min"), (5999.0, "100.0 min"), (6120.0, "1.7 h")],
)
def test_times_in_the_unit_one_would_use(seconds: float | None, text: str) -> None:
    assert time_text(seconds) == text
