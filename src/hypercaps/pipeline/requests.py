"""Requests: what to map or train, in small objects that refuse options which contradict each other.

Python, the command line and a server build the same requests, so that each rule stands here once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Legend
from hypercaps.data.splits import Split
from hypercaps.errors import ModelError, OutputError
from hypercaps.io.writers.atomic import check_name, check_output
from hypercaps.io.writers.legend_files import legend_files, refuse_foreign_style
from hypercaps.io.writers.partial_map import partial_path
from hypercaps.pipeline.layers import CLASSES, FAMILIARITY, LAYERS

if TYPE_CHECKING:  # these load torch, and a request must be refused before that
    from hypercaps.inference.model import TrainedModel
    from hypercaps.inference.predict import OnProgress
    from hypercaps.inference.run_metrics import CandidateRow
    from hypercaps.training.loop import Progress

MEMORY = 1_000_000_000  # default, bytes
LEAST_MEMORY = 1_000_000
CONFIDENCE_TYPES = ("float32", "uint8")
_CALIBRATED = ("coverage", "reject")  # options that need calibrated probabilities
_SHARES = (*_CALIBRATED, "unknown")
_TIFF = frozenset({".tif", ".tiff"})


def run_files(layers: Iterable[str] = ()) -> dict[str, Path]:
    """The rasters of a run folder: those of every run and the layers named; paths are relative to the folder."""
    names = set(layers)
    return {name: Path(layer.file) for name, layer in LAYERS.items() if layer.in_every_run or name in names}


@dataclass(frozen=True, eq=False)
class MapRequest:
    """What to write of a map, and how: ``MapRequest({"classes": Path("map.tif")}, reject=0.8)``."""

    files: Mapping[str, Path] = field(default_factory=run_files)  # name of a layer -> its GeoTIFF
    picture: Path | None = None  # PNG of the classes
    mask: npt.NDArray[np.bool_] | None = None  # (rows, columns) pixels to map; None: all
    memory: int = MEMORY  # bytes that a process may use
    reject: float | None = None  # pixels below this confidence become "unsure"
    unknown: float | None = None  # pixels below this familiarity become "unknown"
    coverage: float | None = None  # share of pixels whose conformal set includes the true class
    confidence_dtype: str = "float32"
    resume: bool = False  # continue a map that was interrupted

    def __post_init__(self) -> None:
        for option in _SHARES:
            value = getattr(self, option)
            if value is not None and not 0 < value < 1:
                such_as = 0.05 if option == "unknown" else 0.9
                raise OutputError(f"--{option} is {value}: a share between 0 and 1, such as {such_as}, is expected")
        if self.confidence_dtype not in CONFIDENCE_TYPES:
            raise OutputError(
                f"confidence as {self.confidence_dtype!r} can't be written: {' or '.join(CONFIDENCE_TYPES)} is expected"
            )
        if self.memory < LEAST_MEMORY:
            raise OutputError(f"memory is {self.memory} bytes: a size such as 500MB or 2GB is expected")
        if unknown := sorted(set(self.files) - set(LAYERS)):
            raise OutputError(f"a map has no layer {unknown[0]!r}: {', '.join(LAYERS)} can be written")
        for layer in LAYERS.values():
            if layer.option is not None and (layer.name in self.files) != (getattr(self, layer.option) is not None):
                raise OutputError(
                    f"the layer {layer.name!r} needs both a file and a {layer.option}: give both or neither"
                )

    @property
    def needs_familiarity(self) -> bool:
        return self.unknown is not None or FAMILIARITY.name in self.files

    def check_model(self, model: TrainedModel) -> None:
        """Refuse options that need calibrated probabilities or familiarity if the model has none."""
        for option in _CALIBRATED:
            if getattr(self, option) is not None:
                model.calibrated(f"--{option}")
        if self.needs_familiarity:
            model.familiar("--unknown" if self.unknown is not None else "--familiarity")

    def check_outputs(self, inputs: Iterable[Path]) -> None:
        """Refuse files that can't be written, would replace an input or a user's style, or are given twice."""
        taken = list(inputs)
        for path in self.files.values():
            check_name(path)  # from which the names of further files are made
        for path in (*self.outputs(), self.partial):
            suffixes = _TIFF if path in self.files.values() else frozenset()
            suffixes = _TIFF | {".png"} if path == self.main else suffixes
            check_output(path, suffixes, inputs=taken, new_folder=True)
            taken.append(path)
            if path.suffix == ".qml":
                refuse_foreign_style(path)

    @property
    def main(self) -> Path:
        """The file that the partial map is named after."""
        return self.files.get(CLASSES.name) or self.picture or next(iter(self.files.values()))

    @property
    def partial(self) -> Path:
        return partial_path(self.main)

    def outputs(self, legend: Legend | None = None) -> list[Path]:
        """Every file that is written; their names do not depend on the legend."""
        paths = [self.files[name] for name in LAYERS if name in self.files]
        return [*paths, *([self.picture] if self.picture else []), *self.legend_files(legend or Legend(()))]

    def legend_files(self, legend: Legend) -> dict[Path, bytes]:
        """Class names and colours beside the rasters of classes."""
        rasters = [path for name, path in self.files.items() if LAYERS[name].has_legend]
        return {path: content for raster in rasters for path, content in legend_files(raster, legend).items()}

    def inside(self, folder: Path) -> MapRequest:
        """The same files in a run folder, with a picture of the map."""
        files = {name: folder / path for name, path in self.files.items()}
        return replace(self, files=files, picture=folder / "map.png")


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """What a training run does in addition to the training itself."""

    split: Split | None = None  # None: drawn as the classifier says
    with_map: bool = True
    map: MapRequest = field(default_factory=MapRequest)  # file names relative to the run folder
    both: bool = False  # train a second time, by the other of random and blocks, and compare
    command: str | None = None  # as typed, for the report
    inputs: Mapping[str, object] | None = None  # options of the command that name or open files, for the report
    force: bool = False  # replace a run in the folder
    resume: bool = False  # continue the training whose checkpoint is in the folder
    budget: float | None = None  # minutes; then the training pauses after its epoch and leaves a checkpoint
    repeat: Mapping[str, object] = field(default_factory=dict)  # how to repeat the command, for the checkpoint

    def __post_init__(self) -> None:
        if self.budget is not None and not 0 < self.budget < inf:
            raise ModelError(f"the budget is {self.budget!r}: a number of minutes above 0 is expected")
        options = {name: getattr(self.map, name) is not None for name in (*_SHARES, "mask")}
        options |= {name: not layer.in_every_run and name in self.map.files for name, layer in LAYERS.items()}
        for option, is_given in options.items():
            if is_given and not self.with_map:
                raise OutputError(f"--{option} is about the map, and --no-map leaves it out: give one of them")


@dataclass(frozen=True)
class RunObserver:
    """Functions that are called while a job runs; each may be None."""

    on_training: Callable[[Progress], None] | None = None
    on_mapping: OnProgress | None = None
    on_second: Callable[[str], None] | None = None  # a second training begins; the kind of its split
    # Candidates of ``--method auto`` are compared: name, fold from 1, number of folds, steps done, steps in all.
    on_comparing: Callable[[str, int, int, int, int], None] | None = None
    on_candidate: Callable[[CandidateRow], None] | None = None  # a candidate is finished, left out or not run


DEFAULT_RUN = TrainRequest()
SILENT = RunObserver()
