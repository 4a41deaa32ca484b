"""Label rasters in files of the project."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from hypercaps.errors import LabelsError
from hypercaps.io.writers.atomic import write_npz


def write_raster(path: Path, labels: npt.NDArray[np.uint8], strokes: npt.NDArray[np.int32]) -> None:
    write_npz(path, labels=labels, strokes=strokes)


def read_raster(path: Path, shape: tuple[int, int]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Classes and strokes (rows, columns) of a file that ``write_raster`` wrote."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            labels, strokes = arrays["labels"], arrays["strokes"]
    except (OSError, ValueError, KeyError) as error:
        raise LabelsError(f"{path} of the project is missing or damaged: restore it from a copy") from error
    if labels.shape != shape or strokes.shape != shape or labels.dtype != np.uint8 or strokes.dtype != np.int32:
        raise LabelsError(f"{path} has labels of another scene: restore it from a copy")
    return labels, strokes
