"""Tables and summaries that the command line prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from hypercaps.pipeline.run_files import RUN_FILES
from hypercaps.report import comparison, wording

if TYPE_CHECKING:  # these import torch, which 'hypercaps scenes' must not wait for
    from hypercaps.inference.explain import Explanation
    from hypercaps.inference.run_metrics import CandidateRow, RunMetrics
    from hypercaps.pipeline.describe import Description, FileReport
    from hypercaps.study.study import StudyResult


def print_scores(console: Console, metrics: RunMetrics, folder: Path | None = None) -> None:
    """Accuracy by class, OA, AA and kappa with intervals, and where they hold.

    ``folder`` is that of the run, to name the file of doubtful labels by what was written.
    """
    console.print()
    if metrics.oa is not None:
        console.print(_class_table(metrics))
        console.print()
    for line in (*_score_lines(metrics), *_training_lines(metrics)):
        console.print(line, soft_wrap=True)
    if metrics.candidates:
        console.print()
        console.print(_candidate_table(metrics.candidates))
        console.print(f"\n{comparison.compared_text(metrics.candidates)}", soft_wrap=True)
    is_table = folder is not None and (folder / "doubtful.csv").exists()
    if doubtful := wording.doubtful_text(metrics, "doubtful.csv" if is_table else "doubtful.gpkg"):
        console.print(doubtful, soft_wrap=True)


def print_result(console: Console, *parts: str) -> None:
    """The result of a command in one line, for --quiet."""
    console.print(escape("   ".join(parts)), soft_wrap=True)


def scores_line(metrics: RunMetrics) -> str:
    """OA, AA and kappa with their intervals and the classes that they are of, or that nothing was scored."""
    if metrics.oa is None:
        return "not scored"
    scores = [
        f"{name} {wording.score_text(getattr(metrics, key), getattr(metrics, f'{key}_interval'))}"
        for key, name in (("oa", "OA"), ("aa", "AA"), ("kappa", "kappa"))
    ]
    return "   ".join(filter(None, (*scores, wording.tested_share_text(metrics))))


def _class_table(metrics: RunMetrics) -> Table:
    """Accuracy by class; intervals and numbers of units where they are known.

    Headings have two lines, so that 80 columns have room for the names, which alone are wrapped where they are long.
    """
    intervals = any(row.interval is not None for row in metrics.per_class)
    units = any(row.units is not None for row in metrics.per_class)
    counted = [f"{wording.unit_names(metrics)[1].replace(' ', chr(10))}>"] if units else []
    interval = ["95 %\ninterval>"] if intervals else []
    table = _table("class>", "name", "test\npixels>", *counted, "producer's\naccuracy>", *interval)
    for column in table.columns:
        column.vertical = "bottom"
        column.no_wrap = column.header != "name"
    for row in metrics.per_class:
        tested = row.accuracy is not None and row.name not in metrics.untested
        cells = [str(row.label), escape(row.name), f"{row.test:,}"]
        if units:
            cells.append("-" if row.units is None else f"{row.units:,}")
        cells.append(_percent(row.accuracy, digits=2 if row.interval is None else 1) if tested else "not tested")
        if intervals:
            cells.append(wording.interval_text(row.interval) if tested and row.interval is not None else "")
        table.add_row(*cells)
    return table


def _score_lines(metrics: RunMetrics) -> Iterable[str]:
    """The lines below the table of classes."""
    if unscored := wording.unscored_text(metrics):
        yield unscored
        return
    yield f"[bold]{scores_line(metrics)}[/]   {_sample(metrics)}"
    folds = metrics.split == "folds"
    notes = (
        wording.interval_note(metrics),
        wording.too_few_text(metrics),
        wording.map_accuracy_text(metrics),
        wording.untested_text(metrics),
        wording.one_area_text(metrics),
        wording.partly_seen_text(metrics),
        wording.question_text(metrics) if folds else wording.split_text(metrics),
        None if metrics.both is not None else wording.leakage_text(metrics),
        None if metrics.both is not None else wording.scene_text(metrics),
        comparison.baseline_text(metrics),
        wording.calibration_text(metrics),
    )
    yield from (escape(note) for note in notes if note)


def _sample(metrics: RunMetrics) -> str:
    """The pixels that the scores are of."""
    if metrics.split == "folds":
        return wording.sample_text(metrics)
    sizes = ""
    if metrics.n_train is not None:
        sizes = f" ({metrics.n_train:,} training, {metrics.n_val:,} validation pixels)"
    return f"on {metrics.n_test:,} test pixels{sizes}"


def _training_lines(metrics: RunMetrics) -> Iterable[str]:
    if metrics.train_seconds is None:
        return
    seconds = f"{metrics.train_seconds:.1f} s"
    if metrics.epochs > 1:
        yield (
            f"{metrics.parameters:,} parameters, {metrics.epochs} epochs in {seconds}, "
            f"weights of epoch {metrics.best_epoch}"
        )
    else:  # fitted without epochs
        yield f"{metrics.parameters:,} parameters, trained in {seconds}"


def _candidate_table(candidates: Iterable[CandidateRow]) -> Table:
    """The candidates of --method auto, the chosen ones first."""
    table = _table("candidate", "OA>", "95 %>", "log loss>", "folds>", "time>", "outcome")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for row in comparison.ranked(candidates):
        name = f"[bold]{escape(row.name)}[/]" if comparison.is_chosen(row) else escape(row.name)
        figures = [""] * 5
        if row.oa is not None:
            interval = "" if row.oa_interval is None else wording.interval_text(row.oa_interval)
            log_loss = "-" if row.log_loss is None else f"{row.log_loss:.2f}"
            figures = [f"{row.oa:.1f} %", interval, log_loss, str(row.folds), f"{row.seconds:.0f} s"]
        table.add_row(name, *figures, "" if row.outcome == "compared" else escape(row.outcome))
    return table


def print_both(console: Console, both: Mapping[str, RunMetrics]) -> None:
    """The scores of a random split and of a block split side by side."""
    sides = [f" of {metrics.block}" if metrics.block else "" for metrics in both.values()]
    table = _table("", *(f"{name}{side}>" for name, side in zip(both, sides, strict=True)))
    for key, name in (("oa", "OA"), ("aa", "AA"), ("kappa", "kappa")):
        scores = (wording.score_text(getattr(one, key), getattr(one, f"{key}_interval")) for one in both.values())
        table.add_row(f"[bold]{name}[/]", *(f"[bold]{score}[/]" for score in scores))
    table.add_row("leakage", *(f"{100 * (metrics.leakage or 0):.1f} %" for metrics in both.values()))
    for key, name in (("n_train", "training"), ("n_val", "validation"), ("n_test", "test")):
        table.add_row(f"{name} pixels", *(f"{getattr(metrics, key):,}" for metrics in both.values()))
    accuracies = [
        {row.label: wording.score_text(row.accuracy, row.interval) for row in metrics.per_class}
        for metrics in both.values()
    ]
    for row in next(iter(both.values())).per_class:
        table.add_row(f"{row.label} {escape(row.name)}", *(accuracy.get(row.label, "-") for accuracy in accuracies))
    console.print()
    console.print(table)
    console.print(f"\n{wording.both_text(both)} In brackets: 95 % intervals.", soft_wrap=True)


def _table(*headings: str) -> Table:
    """A table without lines; columns whose heading ends in ">" are aligned to the right."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        justify: JustifyMethod = "right" if heading.endswith(">") else "left"
        table.add_column(heading.removesuffix(">"), justify=justify, overflow="fold")
    return table


def _percent(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f} %"


def print_files(console: Console, out: Path) -> None:
    """The files of a run's folder."""
    console.print(f"\nThe run is in [bold]{escape(str(out))}[/]:", soft_wrap=True)
    for name, meaning in RUN_FILES.items():
        if (out / name).exists():
            console.print(f"  {name:<19} {meaning}", soft_wrap=True)


def print_scenes(console: Console, scenes: list[dict[str, Any]]) -> None:
    """The catalogue as a table."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "sensor", "local"):
        table.add_column(heading, no_wrap=True)
    for heading in ("rows x cols x bands", "classes", "labels"):
        table.add_column(heading, justify="right", no_wrap=True)
    for scene in scenes:
        table.add_row(
            f"[bold]{scene['name']}[/]",
            scene["sensor"],
            "yes" if scene["at_hand"] else "no",
            f"{scene['rows']} x {scene['cols']} x {scene['bands']}",
            str(len(scene["classes"])),
            f"{scene['labelled']:,}",
        )
    console.print(table)
    console.print("\n'hypercaps info NAME' describes a scene; 'hypercaps scenes download NAME' downloads it.")


def print_methods(console: Console, methods: list[dict[str, Any]]) -> None:
    """The methods as a table, one row for each recipe, the default recipe first."""
    counted = any(method["parameters"] is not None for method in methods)
    table = _table("name", "patch>", *(["parameters>"] if counted else []), "input", "recipe", "training")
    for column in (table.columns[0], table.columns[-2]):
        column.no_wrap = True
    for method in methods:
        cells = [f"[bold]{method['name']}[/]", str(method["patch"])]
        if counted:
            cells.append("-" if method["parameters"] is None else f"{method['parameters']:,}")
        cells.append(method["looks_at"])
        for name in sorted(method["recipes"], key=lambda name: name != method["recipe"]):
            table.add_row(*cells, name, method["recipes"][name])
            cells = [""] * len(cells)
    console.print(table)
    for method in methods:
        if method["problem"]:
            console.print(f"\n{method['name']}: {escape(method['problem'])}.")
    console.print(
        "\nThe first recipe of a method is the default of --recipe. Where two batch sizes are given, the larger one is "
        "for scenes with 20,000 or more labelled pixels.",
        soft_wrap=True,
    )


def print_study(console: Console, out: Path, result: StudyResult) -> None:
    """The outcome of a study, and its pages."""
    console.print()
    if result.missing:
        console.print(f"[yellow]Missing scenes[/]: {escape(', '.join(result.missing))}", soft_wrap=True)
    if result.failed:
        console.print(f"[yellow]Failed runs[/]: {result.failed}; the page says why, the same command runs them again")
    if result.left:
        console.print(f"{result.left} of {result.planned} runs are left: the same command continues with them")
    console.print(f"The study is in [bold]{escape(str(out))}[/]: open results.html, or read results.md", soft_wrap=True)


def print_explanation(console: Console, explanation: Explanation, *, most: int = 5) -> None:
    """The bands of highest attribution for and against the class, and the deletion check."""
    share, waves, check = explanation.share.tolist(), explanation.wavelengths, explanation.deletion
    ranked = sorted(range(len(share)), key=lambda band: share[band])  # from against to for

    def named(bands: list[int]) -> str:
        names = [f"band {band + 1}" if waves is None else f"{waves[band]:.0f} nm" for band in bands]
        return (
            ", ".join(f"{name} ({100 * abs(share[band]):.1f} %)" for name, band in zip(names, bands, strict=True))
            or "none"
        )

    lines = (
        f"[bold]{escape(explanation.entry.name)}[/]: {escape(explanation.where)}",
        f"  bands for it      {named([band for band in ranked[::-1][:most] if share[band] > 0])}",
        f"  bands against it  {named([band for band in ranked[:most] if share[band] <= 0])}",
        f"  length of its capsule: {check.length:.3f}; without the {check.bands} top bands {check.without_top:.3f}, "
        f"without {check.bands} random bands {check.without_random:.3f}",
    )
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def print_facts(console: Console, about: Description) -> None:
    """Facts as two columns, and below them the classes."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")  # paths as a whole
    for key, value in about.to_json().items():
        if key != "classes":
            table.add_row(key.replace("_", " "), escape(_short(value)))
    console.print(table)
    if len(about.legend):
        console.print()
    for entry in about.legend:
        r, g, b = entry.color
        count = f"  {_number_of(about.counts[entry.label], about.counted)}" if about.counts else ""
        console.print(f"  [rgb({r},{g},{b})]██[/] {entry.label:>3}  {escape(entry.name)}{count}")


def _number_of(number: int, noun: str) -> str:
    """'1 pixel' or '2 pixels', for nouns in the plural."""
    return f"{number:,} {noun if number != 1 else noun.removesuffix('s')}"


def print_file_report(console: Console, report: FileReport) -> None:
    """The description of a file, and below it the file's structure, one line per entry."""
    if report.about is not None:
        print_facts(console, report.about)
    sections: dict[str, list[str]] = {
        "File": [f"{key.replace('_', ' ')}: {_short(value)}" for key, value in report.file.items()],
        "Structure": report.structure,
        "Reading": [f"{key}: {_short(value)}" for key, value in report.reading.items()],
        "Versions": [f"{name} {number}" for name, number in report.versions.items()],
    }
    for title, lines in sections.items():
        if lines:
            console.print(f"\n[bold]{title}[/]")
        for line in lines:
            console.print(f"  {escape(line)}", soft_wrap=True)


def _short(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list):
        if len(value) > 8:
            return f"{len(value)} values, {_short(value[0])} to {_short(value[-1])}"
        return ", ".join(_short(item) for item in value) or "-"
    return str(value)
