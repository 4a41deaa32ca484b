"""Is one method better than another? Tests on runs that share a split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np
from scipy import stats

from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.records import Classified
from hypercaps.study.tables import MISSING, Column, Groups, Table, scene_title

FEWEST_SEEDS = 6  # with five, even five wins of five have p = 0.06


Load = Callable[[str], Classified | None]  # by the key of a run


@dataclass(frozen=True)
class Paired:
    """Two methods on the same splits; a p value is None where there is too little to test."""

    scene: str
    amount: LabelBudget
    a: str
    b: str
    seeds: tuple[int, ...]  # those that both have
    median_difference: float  # OA of a less OA of b, percentage points
    wilcoxon_p: float | None
    only_a: int | None  # test pixels of the lowest common seed that only a has right
    only_b: int | None
    mcnemar_p: float | None


def paired_tests(groups: Groups, load: Load) -> list[Paired]:
    """Every pair of columns of every (scene, amount) that have a seed in common."""
    return [
        result
        for (scene, amount), columns in groups.items()
        for a, b in combinations(columns, 2)
        if (result := _compare(scene, amount, a, b, load)) is not None
    ]


def _compare(scene: str, amount: LabelBudget, a: Column, b: Column, load: Load) -> Paired | None:
    of_a, of_b = ({record["seed"]: record for record in column.records} for column in (a, b))
    seeds = tuple(sorted(of_a.keys() & of_b.keys()))
    if not seeds:
        return None
    differences = [of_a[seed]["oa"] - of_b[seed]["oa"] for seed in seeds]
    only_a, only_b = _discordant(load(of_a[seeds[0]]["key"]), load(of_b[seeds[0]]["key"]))
    return Paired(
        scene=scene,
        amount=amount,
        a=a.label,
        b=b.label,
        seeds=seeds,
        median_difference=median(differences),
        wilcoxon_p=wilcoxon_p(differences) if len(seeds) >= FEWEST_SEEDS else None,
        only_a=only_a,
        only_b=only_b,
        mcnemar_p=None if only_a is None or only_b is None else mcnemar_p(only_a, only_b),
    )


def wilcoxon_p(differences: Sequence[float]) -> float:
    """Wilcoxon's signed-rank test, two-sided; exact as long as scipy knows how."""
    # Rounding makes equal what differs in the last bit only; seeds without a difference tell nothing either way.
    apart = [d for d in np.round(differences, 9).tolist() if d != 0]
    return float(stats.wilcoxon(apart).pvalue) if apart else 1.0


def mcnemar_p(only_a: int, only_b: int) -> float:
    """McNemar's test, exact: were the pixels that only one has right shared out by a fair coin?"""
    return float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def _discordant(a: Classified | None, b: Classified | None) -> tuple[int | None, int | None]:
    """How many test pixels only a has right, and only b; unknown unless both had the same test pixels."""
    if a is None or b is None or not np.array_equal(a.test, b.test) or not np.array_equal(a.truth, b.truth):
        return None, None
    right_a, right_b = (run.classes.ravel()[run.test] == run.truth for run in (a, b))
    return int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())


def paired_table(results: Sequence[Paired]) -> Table | None:
    """The tests of one scene and share, and in its caption what they say."""
    if not results:
        return None
    first = results[0]
    rows = [
        [
            result.a,
            result.b,
            str(len(result.seeds)),
            f"{round(result.median_difference, 2) + 0.0:+.2f}",
            _p_text(result.wilcoxon_p),
            MISSING if result.only_a is None else f"{result.only_a:,}",
            MISSING if result.only_b is None else f"{result.only_b:,}",
            _p_text(result.mcnemar_p),
        ]
        for result in results
    ]
    head = ["A", "B", "Seeds", "OA of A less B (median)", "Wilcoxon p"]
    head += ["Pixels only A has right", "Pixels only B has right", "McNemar p"]
    caption = (
        "Both tests compare A and B on the same splits; a small p says that a difference like this would be rare "
        "between methods that are equally good. Wilcoxon's signed-rank test is on the OA of the seeds that both have "
        "(at least 6). McNemar's exact test is on the test pixels of one split, that of the lowest common seed: it "
        "tells nothing of other splits. Read both as a lower bound: the splits are drawn again and again from the same "
        "labelled pixels, and neighbouring pixels are alike, so neither seeds nor pixels are as independent as the "
        "tests take them to be. The p values are not corrected for many comparisons: of twenty pairs of equal "
        "methods, one has p < 0.05 by chance."
    )
    place = f"{scene_title(first.scene)}, {first.amount.text}"
    return Table(f"Paired tests: {place}", head, rows, caption)


def _p_text(p: float | None) -> str:
    if p is None:
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
