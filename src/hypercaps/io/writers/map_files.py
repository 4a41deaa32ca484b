"""Which files are made of a map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypercaps.data.labels import Legend
from hypercaps.errors import OutputError
from hypercaps.io.writers.legend_files import legend_files
from hypercaps.io.writers.partial_map import partial_path

CONFIDENCE_TYPES = ("float32", "uint8")


@dataclass(frozen=True)
class MapFiles:
    """Which files are made of a map; None: not this one."""

    classes: Path | None = None  # .tif, with names and colours beside it
    confidence: Path | None = None  # .tif
    probabilities: Path | None = None  # .tif, one band a class
    picture: Path | None = None  # .png
    confidence_dtype: str = "float32"
    sets: Path | None = None  # .tif: the number of classes that hold the true one in ``coverage`` of the pixels
    coverage: float | None = None
    reject: float | None = None  # pixels below this confidence become "unsure"

    def __post_init__(self) -> None:
        check_share("coverage", self.coverage)
        check_share("reject", self.reject)
        if (self.sets is None) != (self.coverage is None):
            raise OutputError("sets of classes need both a file and a coverage: give both or neither")
        if self.confidence_dtype not in CONFIDENCE_TYPES:
            raise OutputError(
                f"confidence as {self.confidence_dtype!r} can't be written: {' or '.join(CONFIDENCE_TYPES)} is expected"
            )

    @property
    def main(self) -> Path:
        every = (self.classes, self.picture, self.confidence, self.probabilities, self.sets)
        return next(path for path in every if path)

    @property
    def partial(self) -> Path:
        return partial_path(self.main)

    def all(self, legend: Legend) -> list[Path]:
        beside = legend_files(self.classes, legend) if self.classes else {}
        return [*filter(None, (self.classes, self.confidence, self.probabilities, self.sets, self.picture)), *beside]

    def possible(self) -> list[Path]:
        """Every file that would be replaced, whatever the classes."""
        return self.all(Legend(()))


def check_share(option: str, value: float | None) -> None:
    if value is not None and not 0 < value < 1:
        raise OutputError(f"--{option} is {value}: a share between 0 and 1, such as 0.9, is expected")
