"""The pages of a study: results.md, results.html, their pictures, results.json and results.csv."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from hypercaps.io.writers.atomic import write_csv, write_files, write_json
from hypercaps.report.plots import learning_picture
from hypercaps.study.curves import curve_table, learning_curves
from hypercaps.study.document import Block, Contents, Fold, Heading, Picture, Table, Text, flat, to_html, to_markdown
from hypercaps.study.folder import StudyFolder, StudyLog
from hypercaps.study.groups import Groups, group_runs, scene_title
from hypercaps.study.notes import leakage_text, protocol_text
from hypercaps.study.paired_tests import Load, paired_table, paired_tests
from hypercaps.study.paper import paper_scene
from hypercaps.study.pictures import Earlier, convergence_pictures, file_name, map_pictures
from hypercaps.study.records import Record
from hypercaps.study.speed import speed_table
from hypercaps.study.summary import summary_blocks
from hypercaps.study.tables import class_tables, failed_table, missing_table, score_table

CSV_KEYS = (
    "scene", "method", "recipe", "train_share", "seed", "oa", "aa", "kappa", "parameters", "train_seconds", "epochs",
    "error", "recipe_epochs", "best_epoch", "cut_short", "batch_size", "val_share", "n_train", "n_val", "n_test",
    "leakage", "split", "block", "guard", "labels_per_class", "bands", "threads", "structure", "key",
)  # fmt: skip


def write_study(out: Path) -> list[Path]:
    """Write the results and pages of a study's folder; returns the files written."""
    folder = StudyFolder(out)
    log = folder.log()
    return write_pages(out, folder.records(), replace(log, title=log.title or out.name), folder.classified)


def write_pages(out: Path, records: Sequence[Record], log: StudyLog, load: Load) -> list[Path]:
    """Write the results and pages of these runs into a folder; ``load`` reads their classified pixels."""
    load = lru_cache(maxsize=32)(load)  # paired tests and maps need the same runs
    blocks = study_document(records, log, load, lambda name: _read_if_there(out / name))
    pages = {out / block.file: block.png for block in flat(blocks) if isinstance(block, Picture)}
    pages[out / "results.md"] = to_markdown(blocks).encode(errors="replace")
    pages[out / "results.html"] = to_html(blocks, log.title).encode(errors="replace")
    rows = [{name: value for name, value in record.to_json().items() if name != "history"} for record in records]
    write_json(out / "results.json", rows)
    write_csv(out / "results.csv", CSV_KEYS, map(_csv_row, records))
    write_files(pages)
    return [out / "results.json", out / "results.csv", *pages]


def _read_if_there(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _csv_row(record: Record) -> list[object]:
    structure = record.changed.structure
    values = record.to_json() | {"structure": json.dumps(structure) if structure else None}
    return [values[name] for name in CSV_KEYS]


def study_document(
    records: Sequence[Record], log: StudyLog, load: Load, earlier: Earlier = lambda name: None
) -> list[Block]:
    """The page of a study, in reading order: summaries, speed, pictures, protocol, and at last the long tables."""
    groups = group_runs(records)
    protocol = Text(protocol_text(groups, planned=len(log.planned), recorded=len(records)))
    without_result = list(filter(None, (missing_table(log.missing), failed_table(records))))
    blocks: list[Block] = []
    if groups:
        speed = speed_table(groups)
        convergence = list(convergence_pictures(groups))
        blocks += summary_blocks(groups)
        blocks += [Heading(2, "Speed"), speed] if speed else []
        blocks += [Heading(2, "Convergence"), *convergence] if convergence else []
        blocks += [*_maps(groups, load, earlier), *_learning_curves(groups)]
    else:
        blocks.append(Text("No run has finished: there are no figures to show."))
    blocks += [Heading(2, "Not run or failed"), *without_result] if without_result else []
    blocks += [Heading(2, "Protocol"), protocol, _environment_table(records, log), *_paper_notes(groups)]
    if groups:
        blocks += _details(groups, load, earlier)
    contents = Contents([block.text for block in blocks if isinstance(block, Heading) and block.level == 2])
    about = [Text(log.about)] if log.about else []
    return [Heading(1, log.title or "Study"), *about, contents, *blocks]


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


def _maps(groups: Groups, load: Load, earlier: Earlier) -> Iterator[Block]:
    """The maps of each scene with the most labels; the others are among the details."""
    first = dict(reversed(list(groups)))  # a scene's first label budget
    pictures = [
        picture
        for scene, budget in sorted(first.items(), key=lambda item: item[0])
        for picture in map_pictures(scene, budget, groups[scene, budget], load, earlier)
    ]
    if pictures:
        yield Heading(2, "Maps")
        yield from pictures


def _learning_curves(groups: Groups) -> Iterator[Block]:
    for scene in dict.fromkeys(scene for scene, _ in groups):
        if curves := learning_curves({key: columns for key, columns in groups.items() if key[0] == scene}):
            yield Heading(2, f"Learning curve of {scene_title(scene)}")
            yield curve_table(scene, curves)
            title = f"OA by the number of labels per class, median and range of the runs: {scene_title(scene)}"
            yield Picture(file_name("learning", scene), title, learning_picture(curves))


def _details(groups: Groups, load: Load, earlier: Earlier) -> Iterator[Block]:
    """All scores, classes and paired tests of each scene and label budget."""
    yield Heading(2, "Classes, all scores and paired tests")
    seen: set[str] = set()
    for (scene, budget), columns in groups.items():
        blocks: list[Heading | Text | Table | Picture] = [score_table(scene, budget, columns)]
        blocks.append(Text(leakage_text(budget, columns)))
        blocks += class_tables(scene, budget, columns)
        if tests := paired_table(paired_tests({(scene, budget): columns}, load)):
            blocks.append(tests)
        if scene in seen:  # those of the first label budget are above
            blocks += map_pictures(scene, budget, columns, load, earlier)
        seen.add(scene)
        yield Fold(f"{scene_title(scene)}, {budget.text}", blocks)


def _paper_notes(groups: Groups) -> Iterator[Block]:
    scenes = dict.fromkeys(paper for scene, _ in groups if (paper := paper_scene(scene)))
    rows = [[paper.title, note] for paper in scenes for note in paper.notes]
    if rows:
        caption = "Contradictions between or within the paper's tables; its figures are shown as printed."
        yield Table("Notes on the paper's figures", ["Scene", "Note"], rows, caption)
