"""Read finished rasters for a picture: thinned, with the pixel count of each class."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.tiling import thinning

_ROWS = 512  # read at once


@dataclass(frozen=True, eq=False)
class MapLook:
    """A class raster that hypercaps wrote."""

    classes: npt.NDArray[Any]  # (h, w), every step-th row and column
    counts: dict[int, int]  # pixels of each label in the whole raster
    names: dict[int, str]  # of the classes, and of unsure pixels and unknown ground if the map may have some
    colors: dict[int, tuple[int, int, int]]  # of the same
    hectares: float | None  # of one pixel; None: the grid is not in metres


def look_at_map(path: Path, longest: int) -> MapLook:
    with _opened(path) as file:
        counts = np.zeros(1 << 16, dtype=np.int64)
        for _, strip in _strips(file):
            counts += np.bincount(strip.ravel(), minlength=counts.size)
        hectares = None
        if file.crs is not None and file.crs.is_projected:
            metres = file.crs.linear_units_factor[1]
            hectares = abs(file.transform.determinant) * metres**2 / 10_000
        tags = file.tags(1)
        names = {int(tag.removeprefix("CLASS_")): name for tag, name in tags.items() if tag.startswith("CLASS_")}
        colors = {value: color[:3] for value, color in file.colormap(1).items() if value in names}
        return MapLook(_thinned(file, longest), dict(enumerate(counts.tolist())), names, colors, hectares)


def look_at_raster(path: Path, longest: int) -> npt.NDArray[Any]:
    """Every step-th row and column of the first band, in its own units; NaN for nodata."""
    with _opened(path) as file:
        stored = _thinned(file, longest)
        values = stored.astype(np.float32) * np.float32(file.scales[0]) + np.float32(file.offsets[0])
        if file.nodata is not None and not np.isnan(file.nodata):
            values[stored == file.nodata] = np.nan
        return values


def _opened(path: Path) -> Any:
    import rasterio  # here, because what draws pictures is imported before a map's writer imports it beside the kernels
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        return rasterio.open(path, driver="GTiff")


def _thinned(file: Any, longest: int) -> npt.NDArray[Any]:
    step = thinning((file.height, file.width), longest)
    return np.concatenate([strip[-r0 % step :: step, ::step] for r0, strip in _strips(file)])


def _strips(file: Any) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """First row and values of strips of the first band: a large raster is never in memory as a whole."""
    for r0 in range(0, file.height, _ROWS):
        yield r0, file.read(1, window=((r0, min(r0 + _ROWS, file.height)), (0, file.width)))
