"""The speed table: 1D-ConvCapsNet as a share of CapsNet, on the same machine with the same threads."""

from __future__ import annotations

from dataclasses import replace

from hypercaps.study.groups import group_runs
from hypercaps.study.records import FinishedRun, Record
from hypercaps.study.speed import speed_table
from support.study_records import record


def small(**others: object) -> Record:
    return record(train_seconds=100.0, parameters=100, threads=1, machine="A", **others)


def large(**others: object) -> Record:
    return record("capsnet", train_seconds=1600.0, parameters=2000, threads=1, machine="A", **others)


def rows(*runs: Record) -> list[list[str]]:
    table = speed_table(group_runs(runs))
    assert table is not None and all(len(row) == len(table.head) for row in table.rows)
    return table.rows


def test_ratios_stand_beside_the_papers() -> None:
    [row] = rows(small(), large())
    assert row[:6] == ["Indian Pines, corrected, 20 %", "1", "1.7 min", "26.7 min", "6.2 %", "6.2 %"]
    assert row[6:] == ["100", "2,000", "5.0 %", "5.5 %"]
    table = speed_table(group_runs([small(), large(recipe="tuned")]))
    assert table is not None and "a share of CapsNet's, 4–7 % in the paper" in table.caption
    assert "Trained: 1D-ConvCapsNet: paper recipe, 50 epochs; CapsNet: tuned recipe." in table.caption


def test_times_of_different_numbers_of_epochs_are_compared_by_epoch() -> None:
    shortened = large(epochs=10)
    assert isinstance(shortened, FinishedRun)
    [row] = rows(small(), replace(shortened, train_seconds=320.0))
    assert row[2:5] == ["2.0 s per epoch", "32.0 s per epoch", "6.2 %"]


def test_times_of_other_machines_or_threads_are_not_compared() -> None:
    faster = [
        replace(small(seed=1), train_seconds=1.0, threads=2),
        replace(small(seed=1), train_seconds=1.0, machine="B"),
        replace(small(seed=1), train_seconds=1.0, cut_short=True),
    ]
    assert rows(*faster, small(), large()) == rows(small(), large())
    assert rows(*faster, large())[0][1:5] == ["–", "–", "–", "–"]


def test_rows_of_two_recipes_are_told_apart() -> None:
    first, second = rows(small(), small(recipe="best"), large())
    assert first[0] != second[0] and "best recipe" in second[0] + first[0]


def test_without_both_networks_there_is_no_table() -> None:
    assert speed_table(group_runs([small(), record("mlp")])) is None
