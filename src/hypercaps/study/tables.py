"""The tables of a study: our results beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hypercaps.study.document import Table
from hypercaps.study.groups import Column, Stat, method_title, scene_title, sort_key
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.paper import PaperResult, paper_result, paper_scene, paper_source
from hypercaps.study.records import FailedRun, Record

EXPERIMENTS = {
    "experiment 1": ("rbf-svm", "mlp", "se-2d-cnn", "3d-cnn", "convcapsnet"),
    "experiment 2": ("c-cnn", "capsnet", "convcapsnet"),
}
OTHER_CLASS_SHARES = {"rbf-svm"}  # the paper's per-class figures are shares of all pixels, not of the test pixels
MISSING = "–"
PAPER_SECONDS = ",.0f"  # the paper gives whole seconds
SCORES = {"oa": "OA", "aa": "AA", "kappa": "kappa"}  # names in RunRecord and PaperResult, and their titles
Cells = tuple[str, list[str]]  # a column of a table: its head and its cells


def table_of(title: str, columns: Sequence[Cells], caption: str) -> Table:
    rows = [list(row) for row in zip(*(cells for _, cells in columns), strict=True)]
    return Table(title, [head for head, _ in columns], rows, caption)


def text_or_dash(figure: float | None, spec: str) -> str:
    """A figure by a format specification."""
    return MISSING if figure is None else format(figure, spec)


def ours_text(stat: Stat | None) -> str:
    """The median, with the range if there are several runs."""
    if stat is None:
        return MISSING
    spread = f" ({stat.low:.2f}–{stat.high:.2f})" if stat.n > 1 else ""
    return f"{stat.median:.2f}{spread}"


def difference_text(paper: float | None, stat: Stat | None) -> str:
    """Our median minus the paper's figure, both rounded as printed."""
    if paper is None or stat is None:
        return MISSING
    return f"{round(round(stat.median, 2) - paper, 2) + 0.0:+.2f}"  # + 0.0 turns -0.0 into 0.0


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2g}"


def count_text(stat: Stat | None) -> str:
    if stat is None:
        return MISSING
    return f"{stat.low:,.0f}" + (f"–{stat.high:,.0f}" if stat.high != stat.low else "")


def score_table(scene: str, budget: LabelBudget, columns: Sequence[Column]) -> Table:
    """One row per method: OA, AA, kappa, training time and parameters, beside the paper's."""
    papers = [paper_figures(scene, column.method, budget) for column in columns]
    cells: list[Cells] = [
        ("Method", [column.title for column in columns]),
        ("Training", [column.trained for column in columns]),
        ("Runs", [str(len(column.records)) for column in columns]),
    ]
    for name, title in SCORES.items():
        theirs, ours = [figure_of(paper, name) for paper in papers], [column.stat(name) for column in columns]
        in_paper = any(figure is not None for figure in theirs)
        if in_paper:
            cells.append((f"{title}, paper", [text_or_dash(figure, ".2f") for figure in theirs]))
        cells.append((f"{title}, ours", [ours_text(stat) for stat in ours]))
        if in_paper:
            cells.append((f"{title}, difference", list(map(difference_text, theirs, ours))))
    times = [figure_of(paper, "seconds") for paper in papers]
    if any(time is not None for time in times):
        cells.append(("Seconds, paper", [text_or_dash(time, PAPER_SECONDS) for time in times]))
    cells.append(("Seconds, ours", [seconds_text(column.seconds) for column in columns]))
    cells.append(("Parameters, ours", [count_text(column.stat("parameters")) for column in columns]))
    title = f"All scores: {scene_title(scene)}, {budget.text} for training"
    return table_of(title, cells, f"{_accuracy_caption(papers)} Seconds: the shortest training of the runs.")


def paper_figures(scene: str, method: str, budget: LabelBudget) -> PaperResult | None:
    return paper_result(scene, method, budget.share) if budget.is_in_paper else None


def figure_of(paper: PaperResult | None, name: str) -> float | None:
    figure: float | None = getattr(paper, name) if paper is not None else None
    return figure


def _accuracy_caption(papers: Iterable[PaperResult | None]) -> str:
    text = "Accuracies in percent; ours: median of the runs (lowest–highest)."
    if any(paper is not None for paper in papers):
        text += f" The paper's figures are of {paper_source().repeats} runs, its times of another machine."
    return text


def class_tables(scene: str, budget: LabelBudget, columns: Sequence[Column]) -> list[Table]:
    """Per-class accuracy, as in the paper's experiments 1 and 2 where their methods were run."""
    place = f"{scene_title(scene)}, {budget.text}"
    parts = {name: [c for c in columns if c.method in methods] for name, methods in EXPERIMENTS.items()}
    compared = {name: part for name, part in parts.items() if {c.method for c in part} - {"convcapsnet"}}
    if not (compared and budget.is_in_paper):
        return [_class_table(f"Accuracy per class: {place}", scene, budget, columns)]
    like = "the paper's" if paper_scene(scene) is not None else "as in the paper's"
    tables = [
        _class_table(f"Accuracy per class, {like} {name}: {place}", scene, budget, part)
        for name, part in compared.items()
    ]
    others = [column for column in columns if not any(column in part for part in parts.values())]
    if others:
        tables.append(_class_table(f"Accuracy per class, other methods: {place}", scene, budget, others))
    return tables


def _class_table(title: str, scene: str, budget: LabelBudget, columns: Sequence[Column]) -> Table:
    classes = dict(sorted({label: name for column in columns for label, name in column.class_names.items()}.items()))
    names = [f"{label} {name}" for label, name in classes.items()]
    cells = [("Class", [*names, *SCORES.values(), "Time (s)"])]
    papers = [paper_figures(scene, column.method, budget) for column in columns]
    papers = [paper if paper and paper.per_class else None for paper in papers]  # for small shares it gives only OA
    for column, paper in zip(columns, papers, strict=True):
        cells += _class_columns(scene, column, paper, list(classes))
    return table_of(title, cells, f"{_accuracy_caption(papers)} Time: the shortest training of the runs.")


def _class_columns(scene: str, column: Column, paper: PaperResult | None, labels: list[int]) -> list[Cells]:
    """A method's columns in a table of classes: ours, between the paper's and the difference where it has figures."""
    stats = [column.class_stat(label) for label in labels] + [column.stat(name) for name in SCORES]
    runs, note = len(column.records), f"; {column.note}" if column.note else ""
    head = f"{column.title}, ours ({runs} run{'s' if runs > 1 else ''}{note})"
    ours = (head, [*map(ours_text, stats), seconds_text(column.seconds)])
    if paper is None:
        return [ours]
    by_class = _paper_classes(scene, paper, len(labels))
    figures = [by_class.get(label) for label in labels] + [figure_of(paper, name) for name in SCORES]
    differences = [*map(difference_text, figures, stats), MISSING]
    if column.method in OTHER_CLASS_SHARES:
        differences[: len(labels)] = [MISSING] * len(labels)
    theirs = [text_or_dash(figure, ".2f") for figure in figures] + [text_or_dash(paper.seconds, PAPER_SECONDS)]
    return [(f"{column.title}, paper", theirs), ours, (f"{column.title}, difference", differences)]


def _paper_classes(scene: str, paper: PaperResult, classes: int) -> dict[int, float]:
    """The paper's accuracy by class number; empty if our scene has another number of classes."""
    theirs = paper_scene(scene)
    if theirs is None or paper.per_class is None or len(theirs.classes) != classes:
        return {}
    return {number: figure for (number, _), figure in zip(theirs.classes, paper.per_class, strict=True)}


def failed_table(records: Iterable[Record]) -> Table | None:
    """The runs without a result, with the error of each."""
    rows = []
    for run in sorted((record for record in records if isinstance(record, FailedRun)), key=sort_key):
        setting = [scene_title(run.scene), method_title(run.method), LabelBudget.of(run).short, str(run.seed)]
        rows.append([*setting, run.error or "no error message"])
    return Table("Failed runs", ["Scene", "Method", "Labels", "Seed", "Error"], rows) if rows else None


def missing_table(missing: Mapping[str, str]) -> Table | None:
    """The scenes of the study that could not be opened."""
    rows = [[name, reason] for name, reason in missing.items()]
    return Table("Missing scenes", ["Scene", "Reason"], rows) if rows else None
