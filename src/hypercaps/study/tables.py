"""The tables of a study: our runs beside the paper's figures. Records in, text out; no files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hypercaps.io import catalog
from hypercaps.models.registry import METHODS
from hypercaps.study.label_budget import LabelBudget, percent
from hypercaps.study.paper import PaperResult, paper_result, paper_scene, paper_source
from hypercaps.study.records import Record, succeeded

ORDER = ("rbf-svm", "mlp", "se-2d-cnn", "3d-cnn", "c-cnn", "capsnet", "convcapsnet")  # the paper's
EXPERIMENTS = {
    "experiment 1": ("rbf-svm", "mlp", "se-2d-cnn", "3d-cnn", "convcapsnet"),
    "experiment 2": ("c-cnn", "capsnet", "convcapsnet"),
}
OTHER_CLASS_SHARES = {"rbf-svm"}  # the paper gives shares of all pixels of a class, not of its test pixels
SMALL_SHARES = (0.10, 0.05)
MISSING = "–"
SCORES = {"oa": "OA", "aa": "AA", "kappa": "kappa"}


@dataclass(frozen=True)
class Table:
    """Rows of text under a head, for any kind of page."""

    title: str
    head: list[str]
    rows: list[list[str]]
    caption: str = ""


@dataclass(frozen=True)
class Stat:
    """A figure over the repeats."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Stat | None:
        known = [value for value in values if value is not None]
        return cls(median(known), min(known), max(known), len(known)) if known else None


@dataclass(frozen=True)
class Column:
    """The runs of one method that differ in nothing but the seed."""

    method: str
    title: str
    recipe: str
    note: str  # how they differ from the paper's way; empty if they don't
    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        return f"{self.title} ({self.note})" if self.note else self.title

    @property
    def runs(self) -> str:
        return f"{len(self.records)} run{'s' if len(self.records) > 1 else ''}"

    @property
    def trained(self) -> str:
        """How the runs were trained, in words."""
        epochs = self.records[0].get("recipe_epochs")
        words = self.note or (f"{epochs} epochs" if epochs else "")
        return words if self.recipe != "paper" else f"paper recipe, {words}".rstrip(", ")

    @property
    def seconds(self) -> float | None:
        """The shortest training, as in the paper; one that a budget cut short tells nothing."""
        return min((r["train_seconds"] for r in self.records if _timed(r) and not r.get("cut_short")), default=None)

    @property
    def epoch_seconds(self) -> float | None:
        return min((r["train_seconds"] / r["epochs"] for r in self.records if _timed(r)), default=None)

    @property
    def epochs(self) -> set[int]:
        return {r["epochs"] for r in self.records if r.get("epochs")}

    def stat(self, key: str) -> Stat | None:
        return Stat.of(record.get(key) for record in self.records)

    def class_stat(self, label: int) -> Stat | None:
        found = (entry for record in self.records for entry in record.get("per_class") or ())
        return Stat.of(entry["accuracy"] for entry in found if entry["label"] == label)


Groups = Mapping[tuple[str, LabelBudget], list[Column]]


def group_runs(records: Iterable[Record]) -> dict[tuple[str, LabelBudget], list[Column]]:
    """Columns of every (scene, amount of labels): scenes by name, large shares first, methods as in the paper."""
    found: dict[tuple[str, LabelBudget], dict[str, list[Record]]] = {}
    for record in sorted(filter(succeeded, records), key=_position):
        place = record["scene"], LabelBudget.of(record)
        alike = json.dumps(
            [record.get(k) for k in ("method", "recipe", "changed", "val_share", "guard")], sort_keys=True
        )
        found.setdefault(place, {}).setdefault(alike, []).append(record)
    return {place: [_column(runs) for runs in alike.values()] for place, alike in found.items()}


def _position(record: Record) -> tuple[Any, ...]:
    method = record["method"]
    place = ORDER.index(method) if method in ORDER else len(ORDER)
    return record["scene"], LabelBudget.of(record).order, place, method, record["recipe"] or "", record["seed"]


def _column(runs: list[Record]) -> Column:
    method, recipe = runs[0]["method"], runs[0]["recipe"]
    return Column(method, method_title(method), recipe, _note(runs), tuple(runs))


def _note(runs: list[Record]) -> str:
    """How these runs differ from what the paper did."""
    first = runs[0]
    changed, whole, val_share = first.get("changed") or {}, first.get("recipe_epochs"), first.get("val_share")
    epochs, batch_size = changed.get("epochs"), changed.get("batch_size")
    cut = sum(bool(record.get("cut_short")) for record in runs)
    notes = [f"{first['recipe']} recipe"] if first["recipe"] != "paper" else []
    if epochs is not None and epochs != whole:
        notes.append(f"{epochs} of {whole} epochs" if whole else f"{epochs} epochs")
    if batch_size is not None:
        notes.append(f"batch {batch_size}")
    notes += [f"{key.replace('_', ' ')} {value}" for key, value in (changed.get("structure") or {}).items()]
    if val_share is not None and val_share != paper_source()["validation_share"]:
        notes.append(f"{percent(val_share)} for validation")
    if cut:
        notes.append(f"{cut} of {len(runs)} runs cut short by the budget")
    return ", ".join(notes)


def _timed(record: Record) -> bool:
    return record.get("train_seconds") is not None and bool(record.get("epochs"))


def method_title(method: str) -> str:
    return METHODS[method].title if method in METHODS else method


def scene_title(scene: str) -> str:
    return catalog.get_scene(scene).title if scene in catalog.names() else scene


def ours_text(stat: Stat | None) -> str:
    """The median, and how far the runs lie apart if there are several."""
    if stat is None:
        return MISSING
    spread = f" ({stat.low:.2f}–{stat.high:.2f})" if stat.n > 1 else ""
    return f"{stat.median:.2f}{spread}"


def difference_text(paper: float | None, stat: Stat | None) -> str:
    """Ours less the paper's, of the figures as they are printed: what a reader would work out."""
    if paper is None or stat is None:
        return MISSING
    return f"{round(round(stat.median, 2) - paper, 2) + 0.0:+.2f}"  # + 0.0 turns -0.0 into 0.0


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2g}"


def paper_text(figure: float | None) -> str:
    return MISSING if figure is None else f"{figure:.2f}"


def paper_seconds_text(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds:,.0f}"  # the paper gives whole seconds


def _count_text(stat: Stat | None) -> str:
    if stat is None:
        return MISSING
    return f"{stat.low:,.0f}" + (f"–{stat.high:,.0f}" if stat.high != stat.low else "")


def summary_table(scene: str, amount: LabelBudget, columns: Sequence[Column]) -> Table:
    """One row a method: OA, AA, kappa, training time and parameters, beside the paper's."""
    papers = [_paper(scene, column.method, amount) for column in columns]
    drawn: list[tuple[str, list[str]]] = [
        ("Method", [column.title for column in columns]),
        ("Training", [column.trained for column in columns]),
        ("Runs", [str(len(column.records)) for column in columns]),
    ]
    for key, name in SCORES.items():
        theirs, ours = [_figure(paper, key) for paper in papers], [column.stat(key) for column in columns]
        known = any(figure is not None for figure in theirs)
        if known:
            drawn.append((f"{name}, paper", [paper_text(figure) for figure in theirs]))
        drawn.append((f"{name}, ours", [ours_text(stat) for stat in ours]))
        if known:
            pairs = zip(theirs, ours, strict=True)
            drawn.append((f"{name}, difference", [difference_text(figure, stat) for figure, stat in pairs]))
    times = [_figure(paper, "seconds") for paper in papers]
    if any(time is not None for time in times):
        drawn.append(("Seconds, paper", [paper_seconds_text(time) for time in times]))
    drawn.append(("Seconds, ours", [seconds_text(column.seconds) for column in columns]))
    drawn.append(("Parameters, ours", [_count_text(column.stat("parameters")) for column in columns]))
    return Table(
        f"Summary: {scene_title(scene)}, {amount.text} for training",
        [head for head, _ in drawn],
        [list(row) for row in zip(*(cells for _, cells in drawn), strict=True)],
        f"{_legend_of_figures(papers)} Seconds: the shortest training of the runs.",
    )


def _paper(scene: str, method: str, amount: LabelBudget) -> PaperResult | None:
    return paper_result(scene, method, amount.share) if amount.as_the_paper else None


def _figure(paper: PaperResult | None, key: str) -> float | None:
    figure: float | None = getattr(paper, key) if paper is not None else None
    return figure


def _legend_of_figures(papers: Iterable[PaperResult | None]) -> str:
    text = "Accuracies in percent; ours is the median of the runs (with the lowest and the highest)."
    if any(paper is not None for paper in papers):
        text += f" The paper's figures are of {paper_source()['repeats']} runs, its times of another machine."
    return text


def class_tables(scene: str, amount: LabelBudget, columns: Sequence[Column]) -> list[Table]:
    """The paper's result tables: accuracy of each class in its experiments 1 and 2, as far as they were run."""
    place = f"{scene_title(scene)}, {amount.text}"
    parts = {name: [c for c in columns if c.method in methods] for name, methods in EXPERIMENTS.items()}
    whole = {name: part for name, part in parts.items() if {c.method for c in part} - {"convcapsnet"}}
    if not (whole and amount.as_the_paper):
        return [_class_table(f"Each class: {place}", scene, amount, columns)]
    like = "the paper's" if paper_scene(scene) is not None else "as in the paper's"
    tables = [_class_table(f"Each class, {like} {name}: {place}", scene, amount, part) for name, part in whole.items()]
    others = [column for column in columns if not any(column in part for part in parts.values())]
    return tables + ([_class_table(f"Each class, other methods: {place}", scene, amount, others)] if others else [])


def _class_table(title: str, scene: str, amount: LabelBudget, columns: Sequence[Column]) -> Table:
    entries = (e for column in columns for record in column.records for e in record.get("per_class") or ())
    classes = dict(sorted({e["label"]: e["name"] for e in entries}.items()))
    names = [f"{label} {name}" for label, name in classes.items()]
    head, drawn = ["Class"], [[*names, *SCORES.values(), "Time (s)"]]
    papers = [_paper(scene, column.method, amount) for column in columns]
    papers = [paper if paper and paper.per_class else None for paper in papers]  # it gives OA alone for small shares
    for column, paper in zip(columns, papers, strict=True):
        ours = [column.class_stat(label) for label in classes] + [column.stat(key) for key in SCORES]
        note = f"; {column.note}" if column.note else ""
        mine = f"{column.title}, ours ({column.runs}{note})"
        cells = [*(ours_text(stat) for stat in ours), seconds_text(column.seconds)]
        if paper is None:
            head.append(mine)
            drawn.append(cells)
            continue
        by_class = _paper_classes(scene, paper, len(classes))
        theirs = [by_class.get(label) for label in classes] + [_figure(paper, key) for key in SCORES]
        head += [f"{column.title}, paper", mine, f"{column.title}, difference"]
        drawn.append([*(paper_text(figure) for figure in theirs), paper_seconds_text(paper.seconds)])
        drawn.append(cells)
        differences = [difference_text(f, stat) for f, stat in zip(theirs, ours, strict=True)]
        if column.method in OTHER_CLASS_SHARES:
            differences[: len(classes)] = [MISSING] * len(classes)
        drawn.append([*differences, MISSING])
    caption = f"{_legend_of_figures(papers)} Time: the shortest training of the runs."
    return Table(title, head, [list(row) for row in zip(*drawn, strict=True)], caption)


def _paper_classes(scene: str, paper: PaperResult, classes: int) -> dict[int, float]:
    """The paper's accuracy by class number; nothing if our scene has other classes."""
    known = paper_scene(scene)
    if known is None or paper.per_class is None or len(known.classes) != classes:
        return {}
    return {number: figure for (number, _), figure in zip(known.classes, paper.per_class, strict=True)}


def small_table(groups: Groups) -> Table | None:
    """1D-ConvCapsNet with 10 % and 5 % of the labels, as in the paper's table of small training sets."""
    rows = []
    for (scene, amount), columns in groups.items():
        for column in columns:
            if amount.as_the_paper and amount.share in SMALL_SHARES and column.method == "convcapsnet":
                paper, ours = _figure(_paper(scene, column.method, amount), "oa"), column.stat("oa")
                figures = [paper_text(paper), ours_text(ours), difference_text(paper, ours)]
                rows.append([scene_title(scene), amount.short, column.trained, str(len(column.records)), *figures])
    head = ["Scene", "Labels", "Training", "Runs", "OA, paper", "OA, ours", "OA, difference"]
    caption = "1D-ConvCapsNet. OA in percent; ours is the median of the runs (with the lowest and the highest)."
    return Table("Small training sets", head, rows, caption) if rows else None


def cost_table(groups: Groups) -> Table | None:
    """Time and parameters of the two capsule networks, and how many times more CapsNet needs."""
    rows: list[list[str]] = []
    for (scene, amount), columns in groups.items():
        place = [scene_title(scene), amount.short]
        two = {name: [c for c in columns if c.method == name] for name in ("capsnet", "convcapsnet")}
        rows += [[*place, *_cost_row(scene, amount, column)] for column in (*two["convcapsnet"], *two["capsnet"])]
        rows += [
            [*place, *_ratio_row(scene, amount, large, small)]
            for large in two["capsnet"]
            for small in two["convcapsnet"]
        ]
    head = ["Scene", "Labels", "Method", "Training", "Seconds, paper", "Seconds, ours"]
    head += ["Seconds an epoch, ours", "Parameters, paper", "Parameters, ours"]
    caption = (
        "Seconds: the shortest training of the runs; the paper's on another machine. A ratio is CapsNet's figure by "
        "1D-ConvCapsNet's; that of the times is left out where ours were trained for different numbers of epochs, "
        "and the seconds an epoch are what to compare."
    )
    return Table("What it costs", head, rows, caption) if rows else None


def _cost_row(scene: str, amount: LabelBudget, column: Column) -> list[str]:
    paper = _paper(scene, column.method, amount)
    count = _figure(paper, "parameters")
    times = [paper_seconds_text(_figure(paper, "seconds")), *map(seconds_text, (column.seconds, column.epoch_seconds))]
    counts = [MISSING if count is None else f"{count:,}", _count_text(column.stat("parameters"))]
    return [column.title, column.trained, *times, *counts]


def _ratio_row(scene: str, amount: LabelBudget, large: Column, small: Column) -> list[str]:
    two = (large, small)
    papers = [_paper(scene, column.method, amount) for column in two]
    alike = len(large.epochs | small.epochs) == 1
    pairs = [
        [_figure(paper, "seconds") for paper in papers],
        [column.seconds if alike else None for column in two],
        [column.epoch_seconds for column in two],
        [_figure(paper, "parameters") for paper in papers],
        [stat.median if (stat := column.stat("parameters")) else None for column in two],
    ]
    ratios = [f"{above / below:.1f} ×" if above and below else MISSING for above, below in pairs]
    return [f"{large.title} / {small.title}", "ratio", *ratios]


def failed_table(records: Iterable[Record]) -> Table | None:
    """The runs without a result, and why."""
    failed = sorted((record for record in records if not succeeded(record)), key=_position)
    rows = [
        [
            scene_title(record["scene"]),
            method_title(record["method"]),
            LabelBudget.of(record).short,
            str(record["seed"]),
            str(record.get("error") or "it left no figures"),
        ]
        for record in failed
    ]
    return Table("Failed runs", ["Scene", "Method", "Labels", "Seed", "What went wrong"], rows) if rows else None


def missing_table(missing: Mapping[str, str]) -> Table | None:
    """The scenes of the study that could not be had."""
    rows = [[name, reason] for name, reason in missing.items()]
    return Table("Missing scenes", ["Scene", "Reason"], rows) if rows else None
