"""The pages of a study: one document, written as Markdown and as an HTML file that stands alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hypercaps.data.labels import Legend
from hypercaps.io import catalog
from hypercaps.io.writers.atomic import write_csv, write_files, write_json
from hypercaps.models.registry import METHODS
from hypercaps.report import page
from hypercaps.report.map_pictures import Panel, maps_picture
from hypercaps.report.plots import convergence_picture
from hypercaps.study.curves import curve_picture, curve_table, learning_curves
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.paired_tests import Load, paired_table, paired_tests
from hypercaps.study.paper import paper_scene, paper_source
from hypercaps.study.records import Record, StudyFolder
from hypercaps.study.tables import (
    Column,
    Groups,
    Table,
    class_tables,
    cost_table,
    failed_table,
    group_runs,
    missing_table,
    scene_title,
    small_table,
    summary_table,
)

CSV_KEYS = (
    "scene", "method", "recipe", "train_share", "seed", "oa", "aa", "kappa", "parameters", "train_seconds", "epochs",
    "error", "recipe_epochs", "best_epoch", "cut_short", "batch_size", "val_share", "n_train", "n_val", "n_test",
    "leakage", "split", "block", "guard", "labels_per_class", "bands", "threads", "structure", "key",
)  # fmt: skip


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Picture:
    file: str
    title: str
    png: bytes


Block = Heading | Text | Table | Picture


def study_document(records: Sequence[Record], about: Mapping[str, Any], load: Load) -> list[Block]:
    """All that a study has to say, in reading order."""
    groups = group_runs(records)
    blocks: list[Block] = [Heading(1, str(about.get("title") or "Study"))]
    if about.get("about"):
        blocks.append(Text(str(about["about"])))
    blocks.append(Text(_protocol(records, groups, about)))
    blocks.append(_circumstances(records, about))
    gaps, failed = missing_table(about.get("missing") or {}), failed_table(records)
    blocks += [table for table in (gaps, failed) if table is not None]
    if not groups:
        return [*blocks, Text("No run has finished: there are no figures to show.")]
    for scene in dict.fromkeys(scene for scene, _ in groups):
        blocks += _scene_blocks(scene, {place: columns for place, columns in groups.items() if place[0] == scene}, load)
    closing = [table for table in (small_table(groups), cost_table(groups)) if table is not None]
    if closing:
        blocks += [Heading(2, "All scenes"), *closing]
    return [*blocks, *_convergence(groups), *_paper_notes(groups)]


def _protocol(records: Sequence[Record], groups: Groups, about: Mapping[str, Any]) -> str:
    source = paper_source()
    columns = [column for found in groups.values() for column in found]
    done, planned = sum(len(column.records) for column in columns), len(about.get("planned") or ())
    of_planned = f" of {planned} planned" if planned >= done else ""
    text = (
        f"Protocol. The paper ({source['authors'][0]} et al., “{source['title']}”) gives the median accuracy of "
        f"{source['repeats']} runs and the shortest training time ({source['hardware']}). So do we, over the runs "
        f"that there are: {done} finished{of_planned}, {len(records) - done} without a result. A run's seed draws its "
        "split, and methods with the same seed share it. "
    )
    if any(_shortened(column) for column in columns):
        return text + (
            "Where a note such as “100 of 500 epochs” stands, or a budget cut runs short, the method was trained for "
            "less than its recipe asks: its accuracy may fall short of what it can reach, and its time is that of the "
            "shorter training, so neither can be held against the paper's."
        )
    return text + "Every method was trained for as many epochs as its recipe asks."


def _shortened(column: Column) -> bool:
    first = column.records[0]
    asked = (first.get("changed") or {}).get("epochs")
    return asked not in (None, first.get("recipe_epochs")) or any(r.get("cut_short") for r in column.records)


def _circumstances(records: Sequence[Record], about: Mapping[str, Any]) -> Table:
    """Where the runs were done and by which commands; a folder can come from several machines."""

    def distinct(key: str) -> list[Any]:
        return list(
            {json.dumps(record[key], sort_keys=True): record[key] for record in records if record.get(key)}.values()
        )

    facts = [("machine", str(machine)) for machine in distinct("machine")]
    facts.append(("threads of a run", " or ".join(map(str, sorted(distinct("threads"))))))
    facts += [("versions", ", ".join(f"{k} {v}" for k, v in versions.items())) for versions in distinct("versions")]
    facts += [("command", str(command)) for command in about.get("commands") or () if command]
    return Table("How it was run", ["What", ""], [[what, fact] for what, fact in facts if fact])


def _scene_blocks(scene: str, groups: Groups, load: Load) -> Iterator[Block]:
    """A scene's part of the page; ``groups`` are its own."""
    yield Heading(2, scene_title(scene))
    yield Text(_comparability(scene, groups))
    curves = learning_curves(groups)
    if curves:
        yield curve_table(scene, curves)
        title = f"OA by the number of labels of each class, median and range of the runs: {scene_title(scene)}"
        yield Picture(_file_name("learning", scene), title, curve_picture(curves))
    for (_, amount), columns in groups.items():
        yield Heading(3, f"{amount.text} for training")
        yield summary_table(scene, amount, columns)
        yield Text(_leakage(amount, columns))
        yield from class_tables(scene, amount, columns)
        tests = paired_table(paired_tests({(scene, amount): columns}, load))
        if tests is not None:
            yield tests
        yield from _maps(scene, amount, columns, load)


def _comparability(scene: str, groups: Groups) -> str:
    """Whether the paper's figures are of the same scene."""
    known = paper_scene(scene)
    if known is None:
        return "The paper has no results for this scene: there is nothing to set ours beside."
    if not any(amount.as_the_paper for _, amount in groups):
        return (
            "The paper has no results for these numbers of labels, drawn this way: there is nothing to set ours beside."
        )
    records = [record for columns in groups.values() for column in columns for record in column.records]
    bands = sorted({record["bands"] for record in records if record.get("bands")})
    classes = sorted({len(record["per_class"]) for record in records if record.get("per_class")})
    differs = []
    if bands and bands != [known.bands]:
        differs.append(f"ours has {' or '.join(map(str, bands))} bands, the paper's has {known.bands}")
    if classes and classes != [len(known.classes)]:
        differs.append(f"ours has {' or '.join(map(str, classes))} classes, the paper's has {len(known.classes)}")
    if differs:
        return f"This is not quite the paper's scene {known.title}: {'; '.join(differs)}. Compare with that in mind."
    if not bands:
        return f"The paper's scene is {known.title}, with {known.bands} bands."
    return f"This is the paper's scene {known.title}, with {known.bands} bands and {len(known.classes)} classes."


def _leakage(amount: LabelBudget, columns: Sequence[Column]) -> str:
    shares = {column.title: stat.median for column in columns if (stat := column.stat("leakage")) is not None}
    listed = ", ".join(f"{title} {100 * share:.1f} %" for title, share in shares.items())
    high = "accuracies are higher than they would be on ground the method has not seen"
    if amount.split == "blocks":
        text = (
            f"Blocks of {amount.block} x {amount.block} pixels go as a whole to training, validation or test, with a "
            "guard band between; classes in too few blocks have no test pixels and don't count in AA."
        )
        if shares:
            text += f" Leakage, the test pixels with a training pixel in their patch: {listed}."
        looked = [column.label for column in columns if _learns_from_scene(column)]
        if looked:
            text += (
                f" {', '.join(looked)} also learned from unlabelled pixels of the scene, test blocks among them, by "
                "classes that flowed to them from the labels, never from a test label: accuracy in the rest of a "
                "partly labelled scene, not in another one."
            )
        return text
    text = "Splits are drawn at random, as in the paper, so training pixels can lie within the patches of test pixels"
    if amount.per_class is not None:
        text = f"A class gives at most half of its pixels to training. {text}"
    if not shares:
        return f"{text}: {high}."
    return f"{text}. Share of the test pixels that this concerns: {listed}. Where it is high, {high}."


def _learns_from_scene(column: Column) -> bool:
    method = METHODS.get(column.method)
    recipe = None if method is None else method.recipes.get(column.recipe)
    return recipe is not None and recipe.uses_pseudo_labels


def _maps(scene: str, amount: LabelBudget, columns: Sequence[Column], load: Load) -> Iterator[Picture]:
    """The ground truth and the map of each method's median run, side by side."""
    panels: list[Panel] = []
    for column in columns:
        by_oa = sorted(column.records, key=lambda record: record["oa"])
        run = by_oa[(len(by_oa) - 1) // 2]
        found = load(run["key"])
        if found is None:
            continue
        if not panels:
            panels.append(("ground truth", found.labels))
        panels.append(
            (f"{column.label}: OA\u00a0{run['oa']:.2f}\u00a0%", found.classes)
        )  # the figure stays on one line
    if panels:
        place = f"{scene_title(scene)}, {amount.text}"
        title = f"All labelled pixels as classified by a median run, training pixels too: {place}"
        yield Picture(_file_name("maps", scene, amount), title, maps_picture(panels, _legend(scene, columns)))


def _file_name(what: str, scene: str, amount: LabelBudget | None = None) -> str:
    # A record could name its scene anything; a file's name is to stay one.
    ending = "" if amount is None else f"-{amount.in_names}"
    return f"{what}-{re.sub(r'[^A-Za-z0-9.-]', '-', scene)}{ending}.png".replace("..", "-")


def _legend(scene: str, columns: Sequence[Column]) -> Legend:
    """The catalogue's colours if the classes are the catalogue's."""
    names = {e["label"]: e["name"] for column in columns for r in column.records for e in r.get("per_class") or ()}
    if scene in catalog.names():
        legend = catalog.get_scene(scene).legend
        if all(entry.name == names.get(entry.label, entry.name) for entry in legend):
            return legend
    return Legend.of(names, [names[label] for label in sorted(names)])


def _convergence(groups: Groups) -> Iterator[Block]:
    """Validation accuracy by epoch; each scene at the share that has the most curves."""
    found: dict[str, tuple[LabelBudget | None, list[tuple[str, list[float]]]]] = {}
    for (scene, amount), columns in groups.items():
        curves = [(column.label, curve) for column in columns if (curve := _curve(column))]
        if len(curves) > len(found.get(scene, (None, []))[1]):
            found[scene] = amount, curves
    if found:
        titled = {f"{scene_title(s)}, {a.text}": curves for s, (a, curves) in found.items() if a is not None}
        title = "Validation accuracy by epoch, of the run with the lowest seed"
        yield Heading(2, "Convergence")
        yield Picture("convergence.png", title, convergence_picture(titled))


def _curve(column: Column) -> list[float]:
    history = min(column.records, key=lambda record: record["seed"]).get("history") or []
    curve = [math.nan if oa is None else oa for _, oa in history]
    known = sum(not math.isnan(oa) for oa in curve)
    # A method that is solved at once has one point, and nothing to converge.
    return curve if known and (len(curve) > 1 or column.records[0].get("recipe_epochs")) else []


def _paper_notes(groups: Groups) -> Iterator[Block]:
    known = [
        (paper.title, paper.notes) for scene in dict.fromkeys(s for s, _ in groups) if (paper := paper_scene(scene))
    ]
    rows = [[title, note] for title, notes in dict(known).items() for note in notes]
    if rows:
        caption = (
            "Where the paper's tables contradict each other or themselves; its figures are shown as they are printed."
        )
        yield Table("Notes on the paper's figures", ["Scene", "Note"], rows, caption)


def is_numeric(table: Table, position: int) -> bool:
    """Whether a column of a table holds figures only, to be set flush right."""
    return not any(letter.isalpha() for row in table.rows for letter in row[position])


def to_markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_markdown_text(block.text)}"
        case Text():
            return _markdown_text(block.text)
        case Picture():
            return f"**{_markdown_text(block.title)}**\n\n![{_markdown_text(block.title)}]({block.file})"
        case Table():
            rules = ["---:" if is_numeric(block, i) else "---" for i in range(len(block.head))]
            cells = [block.head, rules, *block.rows]
            lines = [
                "| " + " | ".join(cell if row is rules else _markdown_text(cell) for cell in row) + " |"
                for row in cells
            ]
            caption = ["", _markdown_text(block.caption)] if block.caption else []
            return "\n".join([f"**{_markdown_text(block.title)}**", "", *lines, *caption])


def _markdown_text(text: str) -> str:
    """Text that means only itself: no table cell, tag, link or code begins or ends in it."""
    return re.sub(r"([\\|`*\[\]]|<(?=[A-Za-z/!?]))", r"\\\1", " ".join(text.split()))


def to_html(blocks: Sequence[Block], title: str) -> str:
    """One file that opens without a network: pictures and styles are inside."""
    return page.render(
        "study",
        title=title,
        blocks=[(type(block).__name__, block) for block in blocks],
        tests={"numeric_in": lambda position, table: is_numeric(table, position)},
    )


def write_study(out: Path) -> list[Path]:
    """Write the results and the pages of what is in a study's folder; gives the files written."""
    folder = StudyFolder(out)
    about, records = {"title": out.name} | folder.about(), folder.records()
    load = lru_cache(maxsize=32)(folder.classified)  # the same runs are asked for by the tests and for the maps
    blocks = study_document(records, about, load)
    pages = {out / block.file: block.png for block in blocks if isinstance(block, Picture)}
    pages[out / "results.md"] = to_markdown(blocks).encode()
    pages[out / "results.html"] = to_html(blocks, about["title"]).encode()
    write_json(out / "results.json", [{k: v for k, v in record.items() if k != "history"} for record in records])
    write_csv(out / "results.csv", CSV_KEYS, map(_csv_row, records))
    write_files(pages)
    return [out / "results.json", out / "results.csv", *pages]


def _csv_row(record: Record) -> list[Any]:
    structure = (record.get("changed") or {}).get("structure")
    flat = record | {"structure": json.dumps(structure) if structure else None}
    return [flat.get(key) for key in CSV_KEYS]
