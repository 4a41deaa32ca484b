"""The reader of a scene in files, which another process gets by opening the files itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hypercaps.data.pixels import PixelReader, Pixels, SelectsBands
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, SceneError
from hypercaps.io.damage import translate_errors
from hypercaps.io.raster import Bands


class Opens(Protocol):
    """How files are opened; can be sent to another process."""

    def open(self) -> Scene:
        """The scene in the files."""


@dataclass(frozen=True)
class FileReader:
    """Reads windows; whatever goes wrong in that is one sentence.

    In a pickle there are names and options instead of what reads an open file.
    """

    reader: PixelReader
    path: Path  # for messages
    shape: tuple[int, int, int]  # of the scene
    opening: Opens | None = None

    def __call__(self, rows: slice, cols: slice) -> Pixels:
        with translate_errors(self.path):
            return self.reader(rows, cols)

    def select(self, chosen: Bands) -> PixelReader:
        """A reader of some of the bands."""
        assert isinstance(self.reader, SelectsBands)  # as those of arrays and of rasters are
        return translate_errors(self.path)(self.reader.select(chosen))

    def __reduce__(self) -> tuple[Callable[..., PixelReader], tuple[Any, ...]]:
        if self.opening is None:
            raise SceneError(f"a scene in {self.path} can't be sent to another process: open it there")
        return _opened_again, (self.opening, self.path, self.shape)


def _opened_again(opening: Opens, path: Path, shape: tuple[int, int, int]) -> PixelReader:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # they were shown where it was first opened
        scene = opening.open()
    if scene.shape != shape:
        raise SceneError(
            f"{path} has changed since the scene was opened: it had {shape} rows, columns and bands, and now has "
            f"{scene.shape}; open it again"
        )
    return scene.reader
