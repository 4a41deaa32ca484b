"""Where the time of the demo goes: `.venv/bin/python benchmarks/demo_stages.py [OPTIONS of hypercaps train]`.

Runs ``hypercaps train indian-pines`` in this process and prints, for each stage, the time on the clock and the time of
all cores, without those of the stages inside it, as the table of docs/speed.md. What another thread does beside a stage
counts to its cores. `make bench` runs it too, with ``--json`` first, which prints the stages on one line for a program.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speed_tables import DemoStage, stages_table

_BEGUN = time.perf_counter() - time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)  # roughly the start of Python

# Function -> its stage, in the order of the table. A name after a colon is that of a class.
STAGES: dict[str, tuple[str, ...]] = {
    "imports": (),
    "scene and labels are opened": ("io.open.open_scene", "io.open.open_labels"),
    "checks, split, memory": (
        "classifier:ConvCapsClassifier.draw_split",
        "training.spec:TrainingSpec.job",
        "pipeline.train._bytes_needed",
    ),
    "whitening and patches": ("training.job:TrainingData.read",),
    "training: steps": ("training.loop:TrainingLoop._step",),
    "training: noise, order and validation": ("training.loop:TrainingLoop.run",),
    "label propagation: scores of the scene": ("training.self_training.all_scores",),
    "label propagation: graph": ("training.self_training:PixelGrid.laplacian",),
    "label propagation: solver": ("training.label_propagation.propagate",),
    "label propagation: familiar ground": ("training.self_training.is_familiar",),
    "calibration": ("classifier.calibrate",),
    "familiarity: fit": ("inference.familiarity_fit.fit_familiarity",),
    "statistics of the scene": ("training.scene_cache.sample_statistics",),
    "test pixels": ("inference.model_user.compare",),
    "baseline (LDA)": ("classifier:ConvCapsClassifier._lda_baseline",),
    "model file": ("inference.model_user.write_model",),
    "map: classification": ("inference.predict.classify_window",),
    "map: familiarity": ("inference.familiarity:Familiarity.of_window",),
    "map: other": ("pipeline.train.make_map",),
    "map: rasters": ("io.writers.cog.write_cog",),
    "pictures": (
        "pipeline.train._write_training",
        "pipeline.map_rasters._picture",
    ),
    "report": ("pipeline.train._write_report",),
    "waiting for spectra and band attribution of the classes, found beside": ("pipeline.train:_FactsBeside.get",),
    "other": (),
}


@dataclass
class Times:
    """Time on the clock and of all cores, of each stage."""

    of: dict[str, list[float]] = field(default_factory=lambda: {stage: [0.0, 0.0] for stage in STAGES})
    running: list[str] = field(default_factory=lambda: ["imports"])
    last: tuple[float, float] = field(default_factory=lambda: (_BEGUN, 0.0))

    def _add(self) -> None:
        now = time.perf_counter(), time.process_time()
        for i in range(2):
            self.of[self.running[-1]][i] += now[i] - self.last[i]
        self.last = now

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._add()
        self.running.append(name)
        try:
            yield
        finally:
            self._add()
            self.running.pop()


def time_function(times: Times, stage: str, place: str) -> None:
    """Replace a function or method by one that is timed."""
    where, _, name = place.rpartition(".")
    module, _, owner = where.partition(":")
    home: Any = importlib.import_module(f"hypercaps.{module}")
    home = getattr(home, owner) if owner else home
    given = vars(home)[name]
    function: Callable[..., Any] = given.__func__ if isinstance(given, classmethod) else given

    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():  # what runs beside is not waited for
            return function(*arguments, **options)
        with times.stage(stage):
            return function(*arguments, **options)

    setattr(home, name, classmethod(timed) if isinstance(given, classmethod) else timed)


def main() -> None:
    options = sys.argv[1:]
    is_for_program = options[:1] == ["--json"]
    stages = measure(options[1:] if is_for_program else options)
    if is_for_program:
        print(json.dumps([list(vars(stage).values()) for stage in stages]))
    else:
        print(f"\n{stages_table(stages)}")


def measure(options: list[str]) -> list[DemoStage]:
    """The stages of ``hypercaps train indian-pines`` with these options."""
    times = Times()
    for stage, places in STAGES.items():
        for place in places:
            time_function(times, stage, place)
    from hypercaps.cli import app

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        with times.stage("other"):
            app(["train", "indian-pines", "--out", str(out), "--quiet", *options], standalone_mode=False)
    return [DemoStage(stage, clock, cores) for stage, (clock, cores) in times.of.items()]


if __name__ == "__main__":
    main()
