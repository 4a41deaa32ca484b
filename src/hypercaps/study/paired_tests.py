"""Paired significance tests between methods, on runs that share a split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy import stats

from hypercaps.study.document import Table
from hypercaps.study.folder import Classified
from hypercaps.study.groups import Column, Groups, scene_title
from hypercaps.study.tables import text_or_dash

MIN_SEEDS = 6  # with five, even five wins of five have p = 0.06

Load = Callable[[str], Classified | None]  # reads the classified pixels of a run by its key

_CAPTION = (
    "Both tests compare A and B on the same splits; a small p means that such a difference would be rare between "
    "equally accurate methods. Wilcoxon's signed-rank test uses the OA of the common seeds (at least 6). McNemar's "
    "exact test uses the test pixels of one split, that of the lowest common seed, and says nothing about other "
    "splits. Take both p values as lower bounds: all splits are drawn from the same labelled pixels, and neighbouring "
    "pixels are similar, so neither seeds nor pixels are as independent as the tests assume. The p values are not "
    "corrected for multiple comparisons: of twenty pairs of equally accurate methods, one has p < 0.05 by chance."
)


class PairedTest(NamedTuple):
    """Two methods on the same splits; a figure is None where there are too few data."""

    place: str  # scene and label budget
    a: str
    b: str
    seeds: tuple[int, ...]  # seeds of both
    median_difference: float  # OA of a minus OA of b, percentage points
    wilcoxon_p: float | None
    only_a: int | None  # test pixels of the lowest common seed that only a classifies correctly
    only_b: int | None
    mcnemar_p: float | None


def paired_tests(groups: Groups, load: Load) -> list[PairedTest]:
    """Compare every two columns of a scene and label budget that have a seed in common."""
    return [
        result
        for (scene, budget), columns in groups.items()
        for a, b in combinations(columns, 2)
        if (result := _compare(f"{scene_title(scene)}, {budget.text}", a, b, load)) is not None
    ]


def _compare(place: str, a: Column, b: Column, load: Load) -> PairedTest | None:
    runs_a, runs_b = ({run.seed: run for run in column.records} for column in (a, b))
    seeds = tuple(sorted(runs_a.keys() & runs_b.keys()))
    if not seeds:
        return None
    differences = [runs_a[seed].oa - runs_b[seed].oa for seed in seeds]
    only_a, only_b = _discordant(load(runs_a[seeds[0]].key), load(runs_b[seeds[0]].key))
    wilcoxon = wilcoxon_p(differences) if len(seeds) >= MIN_SEEDS else None
    mcnemar = None if only_a is None or only_b is None else mcnemar_p(only_a, only_b)
    return PairedTest(place, a.label, b.label, seeds, median(differences), wilcoxon, only_a, only_b, mcnemar)


def wilcoxon_p(differences: Sequence[float]) -> float:
    """Two-sided Wilcoxon signed-rank test; exact where scipy computes it exactly."""
    # Rounding removes differences in the last bit; seeds without a difference carry no information.
    nonzero = [d for d in np.round(differences, 9).tolist() if d != 0]
    return float(stats.wilcoxon(nonzero).pvalue) if nonzero else 1.0


def mcnemar_p(only_a: int, only_b: int) -> float:
    """Exact McNemar test, on the numbers of pixels that only one of two methods classifies correctly."""
    return float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def _discordant(a: Classified | None, b: Classified | None) -> tuple[int | None, int | None]:
    """Numbers of test pixels that only a, and only b, classifies correctly; None if the test pixels differ."""
    if a is None or b is None or not np.array_equal(a.test, b.test) or not np.array_equal(a.truth, b.truth):
        return None, None
    correct_a, correct_b = (run.classes.ravel()[run.test] == run.truth for run in (a, b))
    return int((correct_a & ~correct_b).sum()), int((correct_b & ~correct_a).sum())


def paired_table(results: Sequence[PairedTest]) -> Table | None:
    """The tests of one scene and label budget, with an explanation in the caption."""
    if not results:
        return None
    rows = [
        [
            result.a,
            result.b,
            str(len(result.seeds)),
            f"{round(result.median_difference, 2) + 0.0:+.2f}",
            _p_text(result.wilcoxon_p),
            text_or_dash(result.only_a, ","),
            text_or_dash(result.only_b, ","),
            _p_text(result.mcnemar_p),
        ]
        for result in results
    ]
    head = ["A", "B", "Seeds", "OA of A minus B (median)", "Wilcoxon p"]
    head += ["Pixels only A has correct", "Pixels only B has correct", "McNemar p"]
    return Table(f"Paired tests: {results[0].place}", head, rows, _CAPTION)


def _p_text(p: float | None) -> str:
    return "< 0.001" if p is not None and p < 0.001 else text_or_dash(p, ".3f")
