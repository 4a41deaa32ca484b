"""The pictures of a study's page: maps of all methods side by side, convergence by epoch."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence

from hypercaps.data.labels import Legend
from hypercaps.io import catalog
from hypercaps.report.map_pictures import Panel, maps_picture
from hypercaps.report.plots import convergence_picture
from hypercaps.study.document import Picture
from hypercaps.study.folder import Classified
from hypercaps.study.groups import Column, Groups, scene_title
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.paired_tests import Load
from hypercaps.study.records import FinishedRun

IN_PAPERS_FIGURE = ("c-cnn", "capsnet", "convcapsnet")  # the methods of the paper's figure of convergence
Earlier = Callable[[str], bytes | None]  # reads a picture that was drawn before, by its file name


def map_pictures(
    scene: str, budget: LabelBudget, columns: Sequence[Column], load: Load, earlier: Earlier
) -> Iterator[Picture]:
    """The ground truth and one map of each method; the earlier picture if pixels of a method are not stored here."""
    file = file_name("maps", scene, budget)
    runs = [(column, _run_to_show(column, load)) for column in columns]
    to_show = [(column, *shown) for column, shown in runs if shown is not None]
    place = f"{scene_title(scene)}, {budget.text}"
    if len(to_show) < len(columns) and (png := earlier(file)) is not None:
        title = f"All labelled pixels as classified, training pixels included, drawn from earlier runs: {place}"
        yield Picture(file, title, png)
    elif to_show:
        panels: list[Panel] = [("ground truth", to_show[0][2].labels)]
        # Non-breaking spaces keep the accuracy on one line.
        panels += [(f"{column.label}: OA\u00a0{run.oa:.2f}\u00a0%", pixels.classes) for column, run, pixels in to_show]
        what = "All labelled pixels, training pixels included, by one run of each method, the nearest to its median"
        title = f"{what}: {place}"
        yield Picture(file, title, maps_picture(panels, _legend(scene, columns)))


def _run_to_show(column: Column, load: Load) -> tuple[FinishedRun, Classified] | None:
    """The median run, or the nearest to it whose pixels are stored; its OA is in the title of its map."""
    by_oa = sorted(column.records, key=lambda run: run.oa)
    middle = by_oa[(len(by_oa) - 1) // 2]
    for run in sorted(by_oa, key=lambda run: (run is not middle, abs(run.oa - middle.oa))):
        if (pixels := load(run.key)) is not None:
            return run, pixels
    return None


def file_name(kind: str, scene: str, budget: LabelBudget | None = None) -> str:
    # The scene's name comes from a file, so it must not form a path.
    ending = "" if budget is None else f"-{budget.file_name}"
    return f"{kind}-{re.sub(r'[^A-Za-z0-9.-]', '-', scene)}{ending}.png".replace("..", "-")


def _legend(scene: str, columns: Sequence[Column]) -> Legend:
    """The catalogue's legend if it has the same classes, for its colours."""
    names = {label: name for column in columns for label, name in column.class_names.items()}
    if scene in catalog.names():
        legend = catalog.get_scene(scene).legend
        if all(entry.name == names.get(entry.label, entry.name) for entry in legend):
            return legend
    return Legend.of(names, [names[label] for label in sorted(names)])


def convergence_pictures(groups: Groups) -> Iterator[Picture]:
    """Validation accuracy by epoch: the methods of the paper's figure, and in another picture the others."""
    for file, like_paper in (("convergence.png", True), ("convergence-others.png", False)):
        if curves := curves_by_scene(groups, like_paper=like_paper):
            methods = "c-CNN, CapsNet and 1D-ConvCapsNet, as in the paper" if like_paper else "other methods"
            title = f"Validation accuracy by epoch, one run of each method: {methods}"
            yield Picture(file, title, convergence_picture(curves))


def curves_by_scene(groups: Groups, *, like_paper: bool) -> dict[str, list[tuple[str, list[float]]]]:
    """Method and curve by scene; of each scene, the label budget with the most curves."""
    best: dict[str, tuple[LabelBudget, list[tuple[str, list[float]]]]] = {}
    for (scene, budget), columns in groups.items():
        chosen = [column for column in columns if (column.method in IN_PAPERS_FIGURE) == like_paper]
        curves = [(column.label, curve) for column in chosen if (curve := _curve(column))]
        if curves and (scene not in best or len(curves) > len(best[scene][1])):
            best[scene] = budget, curves
    return {f"{scene_title(scene)}, {budget.text}": curves for scene, (budget, curves) in best.items()}


def _curve(column: Column) -> list[float]:
    """Validation OA of each epoch, of the lowest seed that has it; empty for methods without epochs."""
    for run in sorted(column.records, key=lambda run: run.seed):
        curve = [math.nan if oa is None else oa for _, oa in run.history]
        has_epochs = len(curve) > 1 or run.recipe_epochs
        if has_epochs and not all(map(math.isnan, curve)):
            return curve
    return []
