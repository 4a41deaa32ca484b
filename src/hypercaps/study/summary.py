"""The short table of each scene and label budget, which a page begins with: the paper's OA, ours, epochs and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypercaps.study.document import Block, Heading, Table, Text
from hypercaps.study.groups import Column, Groups, scene_title
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.notes import comparability_text
from hypercaps.study.paper import paper_scene
from hypercaps.study.tables import (
    MISSING,
    Cells,
    difference_text,
    figure_of,
    ours_text,
    paper_figures,
    seconds_text,
    table_of,
    text_or_dash,
)

_HOW_TO_READ = (
    "Overall accuracy (OA) in percent; ours: median of the runs (lowest–highest); difference: our median minus the "
    "paper's figure; time: the shortest training. Methods are trained by the paper's recipe unless another is named."
)
_RANDOM_SPLITS = (
    "Splits are random, as in the paper, so training pixels lie within the patches of test pixels: accuracies are "
    "higher than in areas without training pixels."
)


def summary_blocks(groups: Groups) -> Iterator[Block]:
    """The summaries of all scenes and label budgets, that of the paper's main table first."""
    yield Heading(2, "Summary")
    random = any(budget.split == "random" for _, budget in groups)
    yield Text(f"{_HOW_TO_READ} {_RANDOM_SPLITS}" if random else _HOW_TO_READ)
    explained: set[str] = set()
    for scene, budget in sorted(groups, key=_reading_order):
        own = {key: columns for key, columns in groups.items() if key[0] == scene}
        about = "" if scene in explained else comparability_text(scene, own)
        explained.add(scene)
        yield summary_table(scene, budget, groups[scene, budget], about)


def _reading_order(group: tuple[str, LabelBudget]) -> tuple[object, ...]:
    scene, budget = group
    return budget.order, paper_scene(scene) is None, scene


def summary_table(scene: str, budget: LabelBudget, columns: Sequence[Column], about: str = "") -> Table:
    """One row per method; ``about`` is added to the caption."""
    theirs = [figure_of(paper_figures(scene, column.method, budget), "oa") for column in columns]
    ours = [column.stat("oa") for column in columns]
    cells: list[Cells] = [("Method", [column.short_label for column in columns])]
    in_paper = any(figure is not None for figure in theirs)
    if in_paper:
        cells.append(("OA, paper", [text_or_dash(figure, ".2f") for figure in theirs]))
    cells.append(("OA, ours", list(map(ours_text, ours))))
    if in_paper:
        cells.append(("Difference", list(map(difference_text, theirs, ours))))
    cells.append(("Runs", [str(len(column.records)) for column in columns]))
    cells.append(("Epochs", [column.epochs_text or MISSING for column in columns]))
    cells.append(("Training time", [time_text(column.seconds) for column in columns]))
    caption = f"{_highest_text(columns)} {about}".strip()
    return table_of(f"{scene_title(scene)}, {budget.text} for training", cells, caption)


def _highest_text(columns: Sequence[Column]) -> str:
    medians = {column.short_label: round(stat.median, 2) for column in columns if (stat := column.stat("oa"))}
    if len(medians) < 2:
        return ""
    return f"Highest median: {', '.join(name for name in medians if medians[name] == max(medians.values()))}."


def time_text(seconds: float | None) -> str:
    """A training time in the unit that one would use: "0.15 s", "21.8 s", "4.3 min", "1.7 h"."""
    if seconds is None or seconds < 100:
        return MISSING if seconds is None else f"{seconds_text(seconds)} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
