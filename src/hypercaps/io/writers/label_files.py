"""Write labels so that ``open_labels`` reads the same raster again: GeoPackage, GeoJSON, GeoTIFF, CSV or .npy.

Vector files have one feature for each group of pixels, whose outlines follow the pixels' borders. Those of a scene
without georeference are in columns and rows.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hypercaps.data.grid import MapGrid
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits.polygons import connected_areas
from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import write_bytes, write_csv
from hypercaps.io.writers.points import to_wgs84

CLASS_FIELD = "class_id"  # number of the class in vector files and tables
_DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON"}
SUFFIXES = (".gpkg", ".geojson", ".tif", ".csv", ".npy")
_WGS84 = "EPSG:4326"


def write_labels(path: Path, labels: Labels, scene: Scene) -> None:
    """Write labels in the format that the file's name says, all or nothing."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise OutputError(f"{path} can't be written: its name must end in {', '.join(SUFFIXES)}")
    if suffix in _DRIVERS:
        _write_polygons(path, labels, scene)
    elif suffix == ".tif":
        _write_raster(path, labels, scene)
    elif suffix == ".csv":
        _write_table(path, labels)
    else:
        content = io.BytesIO()
        np.save(content, labels.array, allow_pickle=False)
        write_bytes(path, content.getvalue())


def vector_suffix(scene: Scene) -> str:
    """Ending of the best file for labels of a scene: a raster if its pixels have no place on a map of their own."""
    return ".tif" if scene.lookup is not None else ".gpkg"


def _write_table(path: Path, labels: Labels) -> None:
    """One line for each labelled pixel."""
    entries = {entry.label: entry for entry in labels.legend}
    rows, cols = np.nonzero(labels.array)
    lines = []
    for row, col in zip(rows.tolist(), cols.tolist(), strict=True):
        entry = entries[int(labels.array[row, col])]
        lines.append((row, col, entry.label, entry.name, _hex(entry.color)))
    write_csv(path, ("row", "col", CLASS_FIELD, "class_name", "color"), lines)


def _write_raster(path: Path, labels: Labels, scene: Scene) -> None:
    from hypercaps.io.writers.class_raster import write_class_raster

    grid = MapGrid((scene.rows, scene.cols), scene.crs, scene.transform)  # of a swath: its own rows and columns
    write_class_raster(path, labels.array, labels.legend, grid)


def _hex(color: tuple[int, int, int]) -> str:
    return f"#{bytes(color).hex()}"


def _write_polygons(path: Path, labels: Labels, scene: Scene) -> None:
    import pyogrio
    import shapely

    if scene.lookup is not None:
        raise OutputError(
            f"{path} can't be written: scene {scene.name!r} is a swath, whose pixels are no squares of a map; give a "
            "name that ends in .tif or .csv"
        )
    driver, crs = _DRIVERS[path.suffix.lower()], scene.crs
    groups, shapes = _outlines(labels)
    x, y = _placed(shapely.get_coordinates(shapes), scene)
    if driver == "GeoJSON" and crs is not None:
        x, y = to_wgs84(path, crs, x, y)
        crs = _WGS84
    shapes = shapely.set_coordinates(shapes, np.stack([x, y], axis=1))
    entries = {entry.label: entry for entry in labels.legend}
    of_group = [entries[number] for number in groups]
    fields = {
        CLASS_FIELD: np.array([entry.label for entry in of_group], dtype=np.int32),
        "class_name": np.array([entry.name for entry in of_group], dtype=object),
        "color": np.array([_hex(entry.color) for entry in of_group], dtype=object),
    }
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # e.g. of a scene without a coordinate system
        pyogrio.raw.write(
            content,
            shapely.to_wkb(shapes),
            list(fields.values()),
            list(fields),
            layer="labels",
            geometry_type="MultiPolygon",
            crs=crs,
            driver=driver,
            **({"COORDINATE_PRECISION": 12} if driver == "GeoJSON" else {}),
        )
    write_bytes(path, content.getvalue())


def _outlines(labels: Labels) -> tuple[list[int], npt.NDArray[np.object_]]:
    """Class number (G,) and outline (G,) of each group of pixels, in columns and rows."""
    import shapely
    from rasterio.features import shapes
    from rasterio.transform import Affine

    array = np.ascontiguousarray(labels.array)
    numbers = connected_areas(array) if labels.groups is None else labels.groups
    pairs, number = np.unique(
        np.stack([numbers[array > 0], array[array > 0].astype(np.int32)], axis=1), axis=0, return_inverse=True
    )  # a group may have several classes
    raster = np.zeros(array.shape, dtype=np.int32)
    raster[array > 0] = number.ravel() + 1
    parts: list[list[object]] = [[] for _ in pairs]
    for shape, value in shapes(raster, mask=raster > 0, connectivity=4, transform=Affine.identity()):
        rings = shape["coordinates"]
        parts[int(value) - 1].append(shapely.Polygon(rings[0], rings[1:]))
    outlines = np.array([shapely.MultiPolygon(polygons) for polygons in parts], dtype=object)
    return pairs[:, 1].tolist(), outlines


def _placed(xy: npt.NDArray[np.float64], scene: Scene) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Map coordinates of columns and rows; these themselves without georeference."""
    cols, rows = xy.T
    if scene.transform is None:
        return cols, rows
    a, b, c, d, e, f = scene.transform
    return a * cols + b * rows + c, d * cols + e * rows + f
