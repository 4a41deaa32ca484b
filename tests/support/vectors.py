"""Small georeferenced test files: vectors, and a scene with labels of several kinds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio
import rasterio
import shapely

from hypercaps.data.grid import Affine
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from support.scenes import make_cube

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
    """A geometry in columns and rows, transformed to map coordinates."""
    a, b, c, d, e, f = grid

    def to_map(xy: np.ndarray) -> np.ndarray:
        return np.column_stack([a * xy[:, 0] + b * xy[:, 1] + c, d * xy[:, 0] + e * xy[:, 1] + f])

    return shapely.transform(geometry, to_map)


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
    """Write geometries in columns and rows of ``grid`` (None: unchanged) and their fields in one of four formats."""
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


def write_raster(path: Path, bands: np.ndarray, grid: Affine = GRID) -> None:
    """Write an array (bands, rows, columns) as a GeoTIFF on ``grid``."""
    count, height, width = bands.shape
    with rasterio.open(
        path, "w", driver="GTiff", width=width, height=height, count=count, dtype=bands.dtype, crs="EPSG:32633",
        transform=rasterio.Affine(*grid),
    ) as file:  # fmt: skip
        file.write(bands)


def write_scene_and_labels(folder: Path) -> None:
    """Write scene.tif (36 x 36 pixels of 10 m), its labels as polygons (fields.gpkg) and in 20 m pixels (coarse.tif).

    The scene has three vertical stripes, one for each class; the polygons name theirs in the field ``kind``.
    """
    cube, _ = make_cube()
    write_raster(folder / "scene.tif", np.moveaxis(cube, -1, 0))
    stripes = [shapely.box(12 * k + 1, 1, 12 * k + 11, 35) for k in range(3)]
    write(folder / "fields.gpkg", stripes, {"kind": KINDS, "owner": ["a", "b", "b"]})
    coarse = np.repeat(np.arange(1, 4, dtype=np.uint8), 6) * np.ones((18, 1), np.uint8)  # (18, 18)
    write_raster(folder / "coarse.tif", coarse[None], (20.0, 0.0, GRID[2], 0.0, -20.0, GRID[5]))
