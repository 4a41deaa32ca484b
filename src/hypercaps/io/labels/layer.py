"""A vector layer that was opened and checked, and the features that are read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.io.labels.vector_check import Content

Geometries = npt.NDArray[np.object_]  # (n,) shapely geometries, or None
Box = tuple[float, float, float, float]  # west, south, east, north
# What coordinates refer to: the file's own system, or none if it has none; longitude and latitude, because the format
# says so where the file names no system (GeoJSON); the system of whatever scene they are used with (x and y in a
# table); or columns and rows of that scene's pixels.
Reference = Literal["own", "default", "scene", "pixels"]

LARGE = 1 << 26  # bytes; of larger files only features near the scene are read, by their spatial index


class Features(NamedTuple):
    geometries: Geometries  # (n,)
    columns: Mapping[str, npt.NDArray[Any]]  # (n,) each, by field


@dataclass(frozen=True)
class VectorLayer:
    """A layer that was opened and checked but not read, unless ``source`` are its features."""

    path: Path
    driver: str
    name: str
    geometry: str
    crs: str | None
    fields: Mapping[str, str]  # numpy types by name
    features: int
    source: Path | bytes | Features  # for pyogrio, or all features of a format that is parsed here
    content: Content | None = None  # what must be read, where the format stores it
    reference: Reference = "own"

    @classmethod
    def parsed(
        cls, path: Path, driver: str, name: str, crs: str | None, features: Features, reference: Reference = "own"
    ) -> VectorLayer:
        """A layer of a format that is parsed here."""
        import shapely

        kinds = {geometry.geom_type for geometry in features.geometries if geometry is not None}
        fields = {field: str(column.dtype) for field, column in features.columns.items()}
        return cls(
            path,
            driver,
            name,
            kinds.pop() if len(kinds) == 1 else "Unknown",
            crs,
            fields,
            len(features.geometries),
            features,
            Content(len(features.geometries), int((~shapely.is_missing(features.geometries)).sum())),
            reference,
        )

    @property
    def count(self) -> int:
        """Number of features that the layer has, by its rows where GDAL uses a count that is stored separately."""
        return self.features if self.content is None else self.content.rows

    @property
    def is_large(self) -> bool:
        return isinstance(self.source, Path) and is_large(self.source)


def is_large(path: Path) -> bool:
    return file_size(path) > LARGE


def file_size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
