"""What the command line tells a person: scores, tables, facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hypercaps.pipeline.run_files import RUN_FILES
from hypercaps.report.wording import both_text, leakage_text, scene_text, split_text

if TYPE_CHECKING:  # these bring torch, and a list of scenes must not wait for it
    from hypercaps.inference.run_metrics import RunMetrics
    from hypercaps.study.study import StudyResult


def print_scores(console: Console, metrics: RunMetrics) -> None:
    """The table of classes and the three figures, with how far they reach."""
    table = Table(box=None, pad_edge=False)
    table.add_column("class", justify="right")
    table.add_column("name")
    table.add_column("test pixels", justify="right")
    table.add_column("accuracy", justify="right")
    for row in metrics.per_class:
        accuracy = "-" if row.accuracy is None else f"{row.accuracy:.2f} %"
        table.add_row(str(row.label), escape(row.name), f"{row.test:,}", accuracy)
    console.print()
    console.print(table)
    console.print()
    known = metrics.n_train is not None
    origin = f" ({metrics.n_train:,} trained, {metrics.n_val:,} validated)" if known else ""
    console.print(
        f"[bold]OA {metrics.oa:.2f} %   AA {metrics.aa:.2f} %   kappa {metrics.kappa:.2f} %[/]   "
        f"on {metrics.n_test:,} test pixels{origin}",
        soft_wrap=True,
    )
    console.print(split_text(metrics), soft_wrap=True)
    for advice in (None if metrics.both is not None else leakage_text(metrics), scene_text(metrics)):
        if advice is not None:
            console.print(advice, soft_wrap=True)
    confidence = metrics.confidence
    if confidence is not None and confidence.ece_after is not None:
        console.print(
            f"Confidence differs from the share that is right by {100 * confidence.ece_after:.1f} points on average "
            f"({100 * confidence.ece_before:.1f} before calibration).",
            soft_wrap=True,
        )
    if metrics.train_seconds is not None:
        console.print(
            f"{metrics.parameters:,} parameters, epochs: {metrics.epochs} in {metrics.train_seconds:.1f} s, "
            f"kept epoch {metrics.best_epoch}"
        )


def print_both(console: Console, both: Mapping[str, RunMetrics]) -> None:
    """The same recipe scored by two splits, side by side."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name, metrics in both.items():
        side = f" of {metrics.block}" if metrics.block else ""
        table.add_column(f"{name}{side}", justify="right")
    for key, name in (("oa", "OA"), ("aa", "AA"), ("kappa", "kappa")):
        table.add_row(f"[bold]{name}[/]", *(f"[bold]{getattr(metrics, key):.2f} %[/]" for metrics in both.values()))
    table.add_row("leakage", *(f"{100 * (metrics.leakage or 0):.1f} %" for metrics in both.values()))
    for key, name in (("n_train", "trained"), ("n_val", "validated"), ("n_test", "tested")):
        table.add_row(f"pixels {name}", *(f"{getattr(metrics, key):,}" for metrics in both.values()))
    found = [{row.label: row for row in metrics.per_class} for metrics in both.values()]
    for label, row in found[0].items():
        accuracies = [rows[label].accuracy if label in rows else None for rows in found]
        cells = ("-" if accuracy is None else f"{accuracy:.2f} %" for accuracy in accuracies)
        table.add_row(f"{label} {escape(row.name)}", *cells)
    console.print()
    console.print(table)
    console.print(f"\n{both_text(both)}", soft_wrap=True)


def print_files(console: Console, out: Path) -> None:
    """Where to look."""
    console.print(f"\nThe run is in [bold]{escape(str(out))}[/]:", soft_wrap=True)
    for name, meaning in RUN_FILES.items():
        if (out / name).exists():
            console.print(f"  {name:<19} {meaning}")


def print_scenes(console: Console, scenes: list[dict[str, Any]]) -> None:
    """The catalogue as a table."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "sensor", "here"):
        table.add_column(heading, no_wrap=True)
    for heading in ("rows x cols x bands", "classes", "labels"):
        table.add_column(heading, justify="right", no_wrap=True)
    for scene in scenes:
        table.add_row(
            f"[bold]{scene['name']}[/]",
            scene["sensor"],
            "yes" if scene["at_hand"] else "fetch",
            f"{scene['rows']} x {scene['cols']} x {scene['bands']}",
            str(len(scene["classes"])),
            f"{scene['labelled']:,}",
        )
    console.print(table)
    console.print("\n'hypercaps info NAME' tells more; 'hypercaps scenes download NAME' fetches one.")


def print_methods(console: Console, methods: list[dict[str, Any]]) -> None:
    """The methods as a table, each with the recipes it can be trained by; the first line's is the default."""
    table = Table(box=None, pad_edge=False)
    counted = any(method["parameters"] is not None for method in methods)
    table.add_column("name", no_wrap=True)
    table.add_column("patch", justify="right")
    if counted:
        table.add_column("parameters", justify="right")
    table.add_column("looks at")
    table.add_column("recipe", no_wrap=True)
    table.add_column("training")
    for method in methods:
        default = method["recipe"]
        first = [f"[bold]{method['name']}[/]", str(method["patch"])]
        if counted:
            first.append("-" if method["parameters"] is None else f"{method['parameters']:,}")
        first.append(method["looks_at"])
        for name in (default, *(other for other in method["recipes"] if other != default)):
            table.add_row(*first, name, method["recipes"][name])
            first = [""] * len(first)
    console.print(table)
    for method in methods:
        if method["problem"]:
            console.print(f"\n{method['name']}: {escape(method['problem'])}.")
    console.print(
        "\nA method's first recipe is taken if --recipe is left out. Of two batch sizes the larger is for "
        "scenes with 20,000 labelled pixels or more.",
        soft_wrap=True,
    )


def print_study(console: Console, out: Path, result: StudyResult) -> None:
    """What came of a study, and where to look."""
    console.print()
    if result.missing:
        console.print(f"[yellow]Missing scenes[/]: {escape(', '.join(result.missing))}", soft_wrap=True)
    if result.failed:
        console.print(f"[yellow]Failed runs[/]: {result.failed}; the page says why, the same command tries them again")
    if result.left:
        console.print(f"{result.left} of {result.planned} runs are left: the same command goes on with them")
    console.print(f"The study is in [bold]{escape(str(out))}[/]: open results.html, or read results.md", soft_wrap=True)


def print_explanation(console: Console, found: Mapping[str, Any], *, most: int = 5) -> None:
    """What ``Explanation.describe`` gives, in a few lines: the bands that spoke loudest, and whether they matter."""
    share, waves, check = found["share"], found["wavelengths_nm"], found["deletion"]

    def named(band: int) -> str:
        return f"band {band + 1}" if waves is None else f"{waves[band]:.0f} nm"

    ranked = sorted(range(len(share)), key=lambda band: share[band])
    pixels = found["pixels"]
    where = f"row {pixels[0][0]}, column {pixels[0][1]}" if len(pixels) == 1 else f"{len(pixels)} pixels"
    console.print(f"[bold]{escape(found['class']['name'])}[/] in {where} of {escape(found['scene'])}", highlight=False)
    for what, bands in (("for it spoke", ranked[::-1][:most]), ("against it", ranked[:most])):
        heard = [f"{named(band)} ({abs(share[band]):.1%})" for band in bands if (share[band] > 0) == (what[0] == "f")]
        console.print(f"  {what:14}{', '.join(heard) or 'nothing'}", highlight=False, soft_wrap=True)
    console.print(
        f"  its capsule is {check['length']:.3f} long; without the {check['bands']} bands that speak most for it "
        f"{check['without_top']:.3f}, without {check['bands']} at random {check['without_random']:.3f}",
        highlight=False,
        soft_wrap=True,
    )


def print_facts(console: Console, facts: Mapping[str, Any]) -> None:
    """Facts as two columns; lists of classes as a table of their own."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for key, value in facts.items():
        if key != "classes":
            table.add_row(key.replace("_", " "), escape(_short(value)))
    console.print(table)
    classes = facts.get("classes")
    if classes:
        console.print()
        for entry in classes:
            r, g, b = entry["color"]
            count = f"  {entry['pixels']:,} pixels" if "pixels" in entry else ""
            console.print(f"  [rgb({r},{g},{b})]██[/] {entry['label']:>3}  {escape(entry['name'])}{count}")


def _short(value: Any) -> str:
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
