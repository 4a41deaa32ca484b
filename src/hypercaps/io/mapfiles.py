"""Which files are made of a map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypercaps.errors import OutputError
from hypercaps.io.legendfiles import legend_files
from hypercaps.io.partial import partial_path
from hypercaps.scene import Legend

CONFIDENCE_TYPES = ("float32", "uint8")


@dataclass(frozen=True)
class MapFiles:
    """Which files are made of a map; None: not this one."""

    classes: Path | None = None  # .tif, with names and colours beside it
    confidence: Path | None = None  # .tif
    probabilities: Path | None = None  # .tif, one band a class
    picture: Path | None = None  # .png
    confidence_dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.confidence_dtype not in CONFIDENCE_TYPES:
            raise OutputError(
                f"confidence as {self.confidence_dtype!r} can't be written: {' or '.join(CONFIDENCE_TYPES)} is expected"
            )

    @property
    def main(self) -> Path:
        return next(path for path in (self.classes, self.picture, self.confidence, self.probabilities) if path)

    @property
    def partial(self) -> Path:
        return partial_path(self.main)

    def all(self, legend: Legend) -> list[Path]:
        beside = legend_files(self.classes, legend) if self.classes else {}
        return [*filter(None, (self.classes, self.confidence, self.probabilities, self.picture)), *beside]

    def possible(self) -> list[Path]:
        """Every file that would be replaced, whatever the classes."""
        return self.all(Legend(()))
