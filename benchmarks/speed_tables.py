"""The tables of docs/speed.md and README.md from a run of `make bench`, which prints them.

    python benchmarks/speed_tables.py

writes them into the two pages, from benchmarks/results.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page_tables import fill, table

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results.json")
PAGES = ROOT / "docs" / "speed.md", ROOT / "README.md"
ROWS = {
    "map_over_limit": "mapping over the limit",
    "train_over_limit": "a training step at batch 64 over the limit",
    "sgemm_gflops": "billions of operations per second in torch's product, two to a multiply-add",
    "map_vs_plain": "mapping against the plain implementation at batch 256",
    "train_vs_plain": "a training step against the plain implementation",
    "map_vs_capsnet": "mapping against the paper's CapsNet (6.7 million parameters here) in plain torch",
    "train_vs_capsnet": "a training step against the same",
    "map_pixels_per_second": "pixels per second, mapping",
    "train_samples_per_second": "samples per second, training",
    "growth_pixels": "time for 4 times the pixels",
    "growth_bands": "time for 4 times the bands",
    "growth_classes": "time for twice the classes",
    "file_over_kernels_bsq": "mapping a file over its pixels at the kernels' pace: ENVI, band sequential",
    "file_over_kernels_bil": "the same, ENVI, bands interleaved by line",
    "file_over_kernels_bip": "the same, ENVI, bands interleaved by pixel",
    "file_over_kernels_strips": "the same, GeoTIFF in strips",
    "file_over_kernels_deflate": "the same, GeoTIFF in deflated tiles of 256 x 256",
    "cold_map_over_import": 'time of `hypercaps map` of the bundled scene over that of `python -c "import torch"`',
    "warm_retrain_over_cold": (
        "training again and mapping in a process that has done so, over the first time with its imports"
    ),
    "demo_seconds": (
        "the demo: recipe `best`, evaluation, map, report; the paper's training alone took 402 s on a GTX 1070"
    ),
    "cold_train_over_work": "time of the demo over its training seconds",
    "map_peak_mb": "MB of memory to map 2,000 × 2,000 × 200 uint16 from a file",
}


@dataclass(frozen=True)
class Figure:
    """A row of the table."""

    name: str
    figure: float
    target: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.figure >= self.target if self.at_least else self.figure <= self.target

    def shown_target(self, signs: tuple[str, str] = ("≤", "≥")) -> str:
        return "" if self.target is None else f"{signs[self.at_least]} {self.target:g}"


@dataclass(frozen=True)
class DemoStage:
    """What the demo does, and how long."""

    name: str
    seconds: float  # on the clock
    cores: float  # of all cores


@dataclass(frozen=True)
class Results:
    """What a run of `make bench` found."""

    figures: Sequence[Figure]
    stages: Sequence[DemoStage]
    machine: dict[str, Any]
    is_quick: bool

    def write(self) -> None:
        value = {
            "machine": self.machine,
            "quick": self.is_quick,
            "figures": [{**vars(figure), "met": figure.met} for figure in self.figures],
            "stages": [vars(stage) for stage in self.stages],
        }
        RESULTS.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls) -> Results:
        value = json.loads(RESULTS.read_text(encoding="utf-8"))
        figures = [Figure(**{key: row[key] for key in Figure.__dataclass_fields__}) for row in value["figures"]]
        stages = [DemoStage(**row) for row in value["stages"]]
        return cls(figures, stages, value["machine"], value["quick"])

    @property
    def computer(self) -> str:
        """The machine in words, with its pace."""
        about = self.machine
        cores = f"{about['threads']} threads on {about['cores']} cores of {about['cpu']}"
        return f"{cores} ({self['sgemm_gflops']:.0f} GFLOP/s), {about['compiled_kernels']} kernels"

    def __getitem__(self, name: str) -> float:
        return next(row.figure for row in self.figures if row.name == name)


def shown(figure: float) -> str:
    """Three digits or so."""
    if figure >= 1000:
        return f"{figure:,.0f}"
    return f"{figure:.{0 if figure >= 100 else 1 if figure >= 10 else 2}f}"


def figures_table(results: Results) -> str:
    about = results.machine
    rows = [[f"`{row.name}`", ROWS.get(row.name, ""), row.shown_target(), shown(row.figure)] for row in results.figures]
    return f"{results.computer}; {about['system']}, Python {about['python']}, torch {about['torch']}:\n\n" + table(
        "| name | what | target | here |", rows
    )


def stages_table(stages: Sequence[DemoStage]) -> str:
    rows = [[stage.name, f"{stage.seconds:.2f}", f"{stage.cores:.2f}"] for stage in stages]
    sums = (f"{sum(values):.2f}" for values in zip(*((s.seconds, s.cores) for s in stages), strict=True))
    return table("| stage | seconds | seconds of all cores |", [*rows, ["**sum**", *sums]])


def short_table(results: Results) -> str:
    of_map, of_step = (f"{shown(results[name])} times as fast" for name in ("map_vs_plain", "train_vs_plain"))
    step = 1e6 / results["train_samples_per_second"]
    rows = [
        ["map", f"{results['map_pixels_per_second']:,.0f} pixels/s", f"{of_map} as a plain PyTorch implementation"],
        ["training step", f"{step:.0f} µs per sample", f"{of_step} as the same"],
        [
            "whole demo: training, evaluation, map, report",
            f"{results['demo_seconds']:.0f} s",
            "the paper's training alone: 402 s on a GTX 1070",
        ],
        [
            "memory for a map of 2,000 × 2,000 × 200 from a file",
            f"{results['map_peak_mb']:.0f} MB",
            "1.6 GB for the cube itself",
        ],
    ]
    return f"{results.computer}, without a GPU; 200 bands, 16 classes, by `make bench`:\n\n" + table(
        "| what | here | compared with |", rows
    )


TABLES: dict[str, Callable[[Results], str]] = {
    "figures": figures_table,
    "stages of the demo": lambda results: stages_table(results.stages),
    "short figures": short_table,
}


def main() -> None:
    results = Results.read()
    if results.is_quick:
        raise SystemExit("the last run was a quick one: run make bench first")
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8"), TABLES, results), encoding="utf-8")
        print(f"written to {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
