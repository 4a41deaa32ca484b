"""Small vector files to test with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio
import shapely

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Affine, Scene

DRIVERS = {"gpkg": "GPKG", "geojson": "GeoJSON", "shp": "ESRI Shapefile", "fgb": "FlatGeobuf"}
GRID: Affine = (10.0, 0.0, 366000.0, 0.0, -10.0, 5809600.0)
TURNED: Affine = (8.0, 6.0, 366000.0, 6.0, -8.0, 5809600.0)
SQUARES = [shapely.box(1, 1, 5, 5), shapely.box(10, 2, 14, 9), shapely.box(30, 20, 41.5, 30)]
KINDS = ["tree", "soil", "water"]


def names(labels: Labels) -> list[tuple[int, str]]:
    return [(entry.label, entry.name) for entry in labels.legend]


def scene_on(grid: Affine | None = GRID, shape: tuple[int, int] = (40, 60), crs: str | None = "EPSG:32633") -> Scene:
    return replace(Scene.from_array(np.ones((*shape, 2), np.float32), name="s"), crs=crs, transform=grid)


def on_grid(geometry: Any, grid: Affine = GRID) -> Any:
    """A geometry drawn in columns and rows, where it lies."""
    a, b, c, d, e, f = grid

    def there(xy: np.ndarray) -> np.ndarray:
        return np.column_stack([a * xy[:, 0] + b * xy[:, 1] + c, d * xy[:, 0] + e * xy[:, 1] + f])

    return shapely.transform(geometry, there)


def write(
    path: Path,
    geometries: Sequence[Any],
    fields: Mapping[str, Sequence[Any]],
    *,
    crs: str | None = "EPSG:32633",
    grid: Affine | None = GRID,
    geometry_type: str = "Unknown",
    **options: Any,
) -> Path:
    """Geometries in columns and rows of ``grid`` (None: as they are) and their fields in any of the four formats."""
    placed = [geometry if geometry is None or grid is None else on_grid(geometry, grid) for geometry in geometries]
    wkb = np.array([None if geometry is None else shapely.to_wkb(geometry) for geometry in placed], dtype=object)
    if path.suffix == ".shp" and geometry_type == "Unknown":
        geometry_type = placed[0].geom_type
    columns = [
        np.array(values, dtype=object if isinstance(values[0], str | None) else None) for values in fields.values()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pyogrio.raw.write(
            path, wkb, columns, list(fields), geometry_type=geometry_type, crs=crs, driver=DRIVERS[path.suffix[1:]],
            **options,
        )  # fmt: skip
    return path
