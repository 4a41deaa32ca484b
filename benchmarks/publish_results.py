"""Keep the finished runs of ``make results`` in docs/results, and write its pages.

    python benchmarks/publish_results.py --start    # before the studies
    python benchmarks/publish_results.py            # after them, or in between

The studies are done in studies/results, which is not part of the repository. docs/results/runs has the record of each
finished run, without its classified pixels: ``--start`` copies the records that studies/results does not have, so that
these runs are not repeated, and prints how long the others will take. Without it, records of finished runs go the
other way, those that no study plans any more are removed, and the pages are written anew. A map is drawn if
studies/results has the pixels of all its methods; otherwise the picture that is there stays.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hypercaps.cli.progress import estimate_lines
from hypercaps.study.estimate import estimate_time
from hypercaps.study.folder import StudyFolder, StudyLog
from hypercaps.study.pages import write_pages
from hypercaps.study.plan import Setting
from hypercaps.study.records import FinishedRun
from hypercaps.study.study_file import open_study

ROOT = Path(__file__).parents[1]
STUDIES = ("indian-pines", "fewer-labels", "small-scenes")
WORK, PUBLISHED = ROOT / "studies" / "results", ROOT / "docs" / "results"
AT_ONCE = 2  # as in the Makefile


def planned() -> dict[str, Setting]:
    """All runs of the studies by their keys."""
    studies = [open_study(str(ROOT / "benchmarks" / "studies" / f"{name}.toml")) for name in STUDIES]
    return {setting.key: setting for study in studies for setting in study.settings()}


def finished(folder: StudyFolder, key: str) -> FinishedRun | None:
    record = folder.record(key)
    return record if isinstance(record, FinishedRun) and not record.cut_short else None


def start(work: Path = WORK, published: Path = PUBLISHED) -> list[str]:
    """Continue from the published records; returns what is left to do, in sentences."""
    (work / "runs").mkdir(parents=True, exist_ok=True)
    folder, source = StudyFolder(work), StudyFolder(published)
    copied, left = 0, []
    for key, setting in planned().items():
        if finished(folder, key) is not None:
            continue
        if (record := finished(source, key)) is None:
            left.append(setting)
        else:
            folder.keep(record)
            copied += 1
    lines = [f"{copied} finished runs are taken from {published.name}/runs; {len(left)} of all studies are left."]
    return lines + estimate_lines(estimate_time(left, folder.records(), AT_ONCE))


def publish(work: Path = WORK, published: Path = PUBLISHED) -> list[Path]:
    """Keep the records of finished runs and write the pages; returns the pages."""
    (published / "runs").mkdir(parents=True, exist_ok=True)
    source, folder, keys = StudyFolder(work), StudyFolder(published), list(planned())
    for key in keys:
        if (record := finished(source, key)) is not None:
            folder.keep(record)
    for path in (published / "runs").glob("*.json"):
        if path.stem not in keys:
            path.unlink()
    study = open_study(str(ROOT / "benchmarks" / "studies" / f"{STUDIES[0]}.toml"))
    log = StudyLog(study.title, study.about, ("make results",), tuple(keys))
    return write_pages(published, folder.records(), log, source.classified)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", action="store_true", help="continue from the records in docs/results/runs")
    if parser.parse_args().start:
        print("\n".join(start()))
    else:
        print("\n".join(str(path.relative_to(ROOT)) for path in publish()))
