"""Write an array of class numbers as a GeoTIFF with names and colours, and the confidence beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.grid import MapGrid
from hypercaps.data.labels import Legend
from hypercaps.io.writers.atomic import write_all_or_nothing
from hypercaps.io.writers.cog import encode, write_cog
from hypercaps.io.writers.legend_files import legend_files
from hypercaps.io.writers.raster_kind import RasterKind, class_kind, confidence_kind

SUFFIXES = (".tif", ".tiff")
Raster = tuple[RasterKind, npt.NDArray[Any]]  # and its values (rows, columns)


def write_class_raster(
    path: Path,
    classes: npt.NDArray[np.integer[Any]],
    legend: Legend,
    grid: MapGrid,
    *,
    tags: Mapping[str, str] | None = None,
    confidence: tuple[Path, npt.NDArray[np.float32]] | None = None,
) -> None:
    """Write classes (rows, columns) with their names in the files beside it, all files or none.

    confidence : a file, and the confidence (rows, columns)
    """
    rasters: dict[Path, Raster] = {path: (class_kind(legend, tags or {}), classes)}
    if confidence is not None:
        rasters[confidence[0]] = confidence_kind(tags or {}), confidence[1]
    beside = legend_files(path, legend)  # names, which a GeoTIFF itself does not have
    with write_all_or_nothing([*rasters, *beside]) as temporary:
        for file, (kind, values) in rasters.items():
            stored = encode(values, kind)[None]  # (1, rows, columns)
            write_cog(temporary[file], kind, grid, lambda r0, r1, stored=stored: stored[:, r0:r1])  # type: ignore[misc]
        for file, content in beside.items():
            temporary[file].write_bytes(content)
