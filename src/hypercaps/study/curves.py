"""Learning curves of a study: accuracy by the number of labels per class."""

from __future__ import annotations

from hypercaps.study.document import Table
from hypercaps.study.groups import Groups, Stat, scene_title
from hypercaps.study.tables import ours_text

Curves = dict[str, dict[str, dict[int, Stat]]]  # split -> method -> number of labels per class -> OA


def learning_curves(groups: Groups) -> Curves:
    """OA by the number of labels per class, of one scene's groups; empty if there is only one number."""
    numbers = {budget.per_class for _, budget in groups if budget.per_class is not None}
    curves: Curves = {}
    for (_, budget), columns in groups.items():
        if budget.per_class is None or len(numbers) < 2:
            continue
        split = budget.split if budget.block is None else f"{budget.split} of {budget.block}"
        for column in columns:
            if stat := column.stat("oa"):
                curves.setdefault(split, {}).setdefault(column.label, {})[budget.per_class] = stat
    return dict(sorted(curves.items(), key=lambda item: item[0] != "random"))


def curve_table(scene: str, curves: Curves) -> Table:
    """The learning curves of a scene, one row per split and method."""
    numbers = sorted({n for methods in curves.values() for stats in methods.values() for n in stats})
    rows = [
        [label, split, *(ours_text(stats.get(n)) for n in numbers)]
        for split, methods in curves.items()
        for label, stats in methods.items()
    ]
    title = f"Learning curve: {scene_title(scene)}, OA by the number of labels per class"
    head = ["Method", "Split", *map(str, numbers)]
    return Table(title, head, rows, "In percent: median of the runs (lowest–highest).")
