"""The pages of a study: results.md, results.html, their pictures, results.json and results.csv."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from hypercaps.data.labels import Legend
from hypercaps.io import catalog
from hypercaps.io.writers.atomic import write_csv, write_files, write_json
from hypercaps.report.map_pictures import Panel, maps_picture
from hypercaps.report.plots import convergence_picture, learning_picture
from hypercaps.study.curves import curve_table, learning_curves
from hypercaps.study.document import Block, Heading, Picture, Table, Text, to_html, to_markdown
from hypercaps.study.folder import StudyFolder, StudyLog
from hypercaps.study.groups import Column, Groups, group_runs, scene_title
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.notes import comparability_text, leakage_text, protocol_text
from hypercaps.study.paired_tests import Load, paired_table, paired_tests
from hypercaps.study.paper import paper_scene
from hypercaps.study.records import Record
from hypercaps.study.tables import class_tables, cost_table, failed_table, missing_table, small_table, summary_table

CSV_KEYS = (
    "scene", "method", "recipe", "train_share", "seed", "oa", "aa", "kappa", "parameters", "train_seconds", "epochs",
    "error", "recipe_epochs", "best_epoch", "cut_short", "batch_size", "val_share", "n_train", "n_val", "n_test",
    "leakage", "split", "block", "guard", "labels_per_class", "bands", "threads", "structure", "key",
)  # fmt: skip


def write_study(out: Path) -> list[Path]:
    """Write the results and pages of a study's folder; returns the files written."""
    folder = StudyFolder(out)
    log, records = folder.log(), folder.records()
    log = replace(log, title=log.title or out.name)
    load = lru_cache(maxsize=32)(folder.classified)  # paired tests and maps need the same runs
    blocks = study_document(records, log, load)
    pages = {out / block.file: block.png for block in blocks if isinstance(block, Picture)}
    pages[out / "results.md"] = to_markdown(blocks).encode()
    pages[out / "results.html"] = to_html(blocks, log.title).encode()
    rows = [{name: value for name, value in record.to_json().items() if name != "history"} for record in records]
    write_json(out / "results.json", rows)
    write_csv(out / "results.csv", CSV_KEYS, map(_csv_row, records))
    write_files(pages)
    return [out / "results.json", out / "results.csv", *pages]


def _csv_row(record: Record) -> list[object]:
    structure = record.changed.structure
    values = record.to_json() | {"structure": json.dumps(structure) if structure else None}
    return [values[name] for name in CSV_KEYS]


def study_document(records: Sequence[Record], log: StudyLog, load: Load) -> list[Block]:
    """The page of a study, in reading order."""
    groups = group_runs(records)
    blocks: list[Block] = [Heading(1, log.title or "Study")]
    if log.about:
        blocks.append(Text(log.about))
    blocks.append(Text(protocol_text(groups, planned=len(log.planned), recorded=len(records))))
    blocks.append(_environment_table(records, log))
    blocks += filter(None, (missing_table(log.missing), failed_table(records)))
    if not groups:
        return [*blocks, Text("No run has finished: there are no figures to show.")]
    for scene in dict.fromkeys(scene for scene, _ in groups):
        blocks += _scene_blocks(scene, {key: columns for key, columns in groups.items() if key[0] == scene}, load)
    if overall := list(filter(None, (small_table(groups), cost_table(groups)))):
        blocks += [Heading(2, "All scenes"), *overall]
    return [*blocks, *_convergence(groups), *_paper_notes(groups)]


def _environment_table(records: Sequence[Record], log: StudyLog) -> Table:
    """Machines, versions and commands of the runs; a folder can hold runs of several machines."""
    machines = dict.fromkeys(record.machine for record in records if record.machine)
    threads = sorted({record.threads for record in records if record.threads})
    versions = dict.fromkeys(", ".join(f"{k} {v}" for k, v in record.versions.items()) for record in records)
    rows = [["machine", machine] for machine in machines]
    rows.append(["threads per run", " or ".join(map(str, threads))])
    rows += [["versions", text] for text in versions]
    rows += [["command", command] for command in log.commands]
    return Table("Environment", ["Item", "Value"], [[item, value] for item, value in rows if value])


def _scene_blocks(scene: str, groups: Groups, load: Load) -> Iterator[Block]:
    """A scene's part of the page; ``groups`` are those of the scene."""
    yield Heading(2, scene_title(scene))
    yield Text(comparability_text(scene, groups))
    if curves := learning_curves(groups):
        yield curve_table(scene, curves)
        title = f"OA by the number of labels per class, median and range of the runs: {scene_title(scene)}"
        yield Picture(_file_name("learning", scene), title, learning_picture(curves))
    for (_, budget), columns in groups.items():
        yield Heading(3, f"{budget.text} for training")
        yield summary_table(scene, budget, columns)
        yield Text(leakage_text(budget, columns))
        yield from class_tables(scene, budget, columns)
        if tests := paired_table(paired_tests({(scene, budget): columns}, load)):
            yield tests
        yield from _maps(scene, budget, columns, load)


def _maps(scene: str, budget: LabelBudget, columns: Sequence[Column], load: Load) -> Iterator[Picture]:
    """The ground truth and the map of each method's median run, side by side."""
    panels: list[Panel] = []
    for column in columns:
        by_oa = sorted(column.records, key=lambda run: run.oa)
        run = by_oa[(len(by_oa) - 1) // 2]
        pixels = load(run.key)
        if pixels is None:
            continue
        if not panels:
            panels.append(("ground truth", pixels.labels))
        # Non-breaking spaces keep the accuracy on one line.
        panels.append((f"{column.label}: OA\u00a0{run.oa:.2f}\u00a0%", pixels.classes))
    if panels:
        title = "All labelled pixels as classified by the median run, training pixels included"
        picture = maps_picture(panels, _legend(scene, columns))
        yield Picture(_file_name("maps", scene, budget), f"{title}: {scene_title(scene)}, {budget.text}", picture)


def _file_name(kind: str, scene: str, budget: LabelBudget | None = None) -> str:
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


def _convergence(groups: Groups) -> Iterator[Block]:
    """Validation accuracy by epoch; of each scene, the label budget with the most curves."""
    best: dict[str, tuple[LabelBudget, list[tuple[str, list[float]]]]] = {}
    for (scene, budget), columns in groups.items():
        curves = [(column.label, curve) for column in columns if (curve := _curve(column))]
        if curves and (scene not in best or len(curves) > len(best[scene][1])):
            best[scene] = budget, curves
    if best:
        panels = {f"{scene_title(scene)}, {budget.text}": curves for scene, (budget, curves) in best.items()}
        title = "Validation accuracy by epoch, of the run with the lowest seed"
        yield Heading(2, "Convergence")
        yield Picture("convergence.png", title, convergence_picture(panels))


def _curve(column: Column) -> list[float]:
    """Validation OA of each epoch; empty for methods without epochs and runs without validation pixels."""
    run = min(column.records, key=lambda run: run.seed)
    curve = [math.nan if oa is None else oa for _, oa in run.history]
    has_epochs = len(curve) > 1 or run.recipe_epochs
    return curve if has_epochs and not all(map(math.isnan, curve)) else []


def _paper_notes(groups: Groups) -> Iterator[Block]:
    scenes = dict.fromkeys(paper for scene, _ in groups if (paper := paper_scene(scene)))
    rows = [[paper.title, note] for paper in scenes for note in paper.notes]
    if rows:
        caption = "Contradictions between or within the paper's tables; its figures are shown as printed."
        yield Table("Notes on the paper's figures", ["Scene", "Note"], rows, caption)
