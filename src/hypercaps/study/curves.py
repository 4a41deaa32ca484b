"""Learning curves of a study: accuracy by the number of labels of each class."""

from __future__ import annotations

from hypercaps.report.plots import learning_picture
from hypercaps.study.tables import Groups, Stat, Table, ours_text, scene_title

Curves = dict[str, dict[str, dict[int, Stat]]]  # by the way labels were drawn, method and number of labels: OA


def learning_curves(groups: Groups) -> Curves:
    """OA by the number of labels of each class; ``groups`` are one scene's. Nothing where there is one number only."""
    numbers = {amount.per_class for _, amount in groups if amount.per_class is not None}
    found: Curves = {}
    for (_, amount), columns in groups.items():
        if amount.per_class is not None and len(numbers) > 1:
            drawn = amount.split if amount.block is None else f"{amount.split} of {amount.block}"
            for column in columns:
                stat = column.stat("oa")
                if stat is not None:
                    found.setdefault(drawn, {}).setdefault(column.label, {})[amount.per_class] = stat
    return dict(sorted(found.items(), key=lambda item: item[0] != "random"))


def curve_table(scene: str, curves: Curves) -> Table:
    """The learning curves of a scene, methods below each other."""
    numbers = sorted({n for methods in curves.values() for stats in methods.values() for n in stats})
    rows = [
        [label, drawn, *(ours_text(stats.get(n)) for n in numbers)]
        for drawn, methods in curves.items()
        for label, stats in methods.items()
    ]
    return Table(
        f"Learning curve: {scene_title(scene)}, OA by the number of labels of each class",
        ["Method", "Split", *map(str, numbers)],
        rows,
        "In percent; the median of the runs (with the lowest and the highest).",
    )


def curve_picture(curves: Curves) -> bytes:
    """The same drawn, a panel for each way labels were drawn."""
    return learning_picture(
        {
            drawn: {label: {n: (s.median, s.low, s.high) for n, s in stats.items()} for label, stats in methods.items()}
            for drawn, methods in curves.items()
        }
    )
