"""Paired tests against values computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hypercaps.study.folder import Classified
from hypercaps.study.groups import group_runs
from hypercaps.study.paired_tests import mcnemar_p, paired_table, paired_tests, wilcoxon_p
from hypercaps.study.records import Record, read_record

TEST = np.arange(2, 12)


def run(method: str, seed: int, oa: float, **others: Any) -> Record:
    document = {
        "scene": "my-field", "method": method, "recipe": "paper", "train_share": 0.2, "seed": seed, "oa": oa,
        "aa": oa, "kappa": oa, "per_class": [], "parameters": 10, "train_seconds": 1.0, "epochs": 50,
        "error": None, "recipe_epochs": 50, "changed": {}, "val_share": 0.1, "key": f"{method}-{seed}",
    }  # fmt: skip
    return read_record(document | others)


def nothing(key: str) -> None:
    return None


def classified(wrong: list[int], test: np.ndarray = TEST) -> Classified:
    """A map of 3 x 4 pixels of class 1; the pixels of ``wrong`` are classified as class 2."""
    labels = np.ones((3, 4), np.int16)
    classes = labels.copy()
    classes.ravel()[wrong] = 2
    return Classified(classes, labels, test, labels.ravel()[test])


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3, 4, 5, 6], 2 / 64),  # all positive: one of 2^6 combinations of signs, and its mirror
        ([1, 2, 3, 4, 5, 6, 0, 0], 2 / 64),
        ([-1, 2, 3, 4, 5, 6], 4 / 64),  # rank sums 0 and 1, and their mirrors
        ([-1, -2, 3, 4, 5, 6], 10 / 64),  # rank sums 0 to 3 in 1, 1, 1 and 2 ways
        ([0.1, -0.3 + 0.2, 0.0], 1.0),  # equal up to the last bit
        ([0.0] * 6, 1.0),
    ],
)
def test_wilcoxon(differences: list[float], p: float) -> None:
    assert wilcoxon_p(differences) == pytest.approx(p)


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (3, 0, 2 / 8), (8, 0, 2 / 256), (1, 5, 14 / 64), (5, 5, 1.0)],
)
def test_mcnemar(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar_p(only_a, only_b) == pytest.approx(p)


def test_methods_are_compared_on_their_common_seeds() -> None:
    runs = [run("convcapsnet", seed, 99.0 + seed / 10) for seed in range(1, 9)]
    runs += [run("capsnet", seed, 98.0) for seed in range(3, 12)]
    maps = {"convcapsnet-3": classified([0, 1, 2]), "capsnet-3": classified([3, 4, 5])}
    (result,) = paired_tests(group_runs(runs), maps.get)
    assert (result.a, result.b, result.seeds) == ("CapsNet", "1D-ConvCapsNet", (3, 4, 5, 6, 7, 8))
    assert result.median_difference == pytest.approx(-1.55)
    assert result.wilcoxon_p == pytest.approx(2 / 64)
    # Pixels 0 and 1 are no test pixels; of the others, CapsNet alone has one correct, the other method alone three.
    assert (result.only_a, result.only_b) == (1, 3)
    assert result.mcnemar_p == pytest.approx(10 / 16)
    table = paired_table([result])
    assert table is not None
    assert table.rows == [["CapsNet", "1D-ConvCapsNet", "6", "-1.55", "0.031", "1", "3", "0.625"]]
    assert "not corrected" in table.caption and "one split" in table.caption


def test_few_seeds_and_missing_or_different_maps_give_dashes() -> None:
    runs = [run(method, seed, 90.0) for method in ("mlp", "c-cnn") for seed in range(5)]
    for maps in ({}, {"mlp-0": classified([]), "c-cnn-0": classified([], TEST[1:])}):
        results = paired_tests(group_runs(runs), maps.get)
        table = paired_table(results)
        assert table is not None
        assert table.rows[0][2:] == ["5", "+0.00", "–", "–", "–", "–"]


def test_a_tiny_p_is_not_printed_as_zero() -> None:
    runs = [run("mlp", seed, 90 + seed / 7) for seed in range(20)] + [run("c-cnn", seed, 50.0) for seed in range(20)]
    table = paired_table(paired_tests(group_runs(runs), nothing))
    assert table is not None and table.rows[0][4] == "< 0.001"


def test_runs_without_a_common_seed_are_not_compared() -> None:
    runs = [run("mlp", 0, 90.0), run("c-cnn", 1, 90.0), run("mlp", 0, 90.0, train_share=0.1)]
    assert paired_tests(group_runs(runs), nothing) == []
    assert paired_table([]) is None
