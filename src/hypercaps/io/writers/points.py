"""Write suggested points and doubtful labels to GeoPackage, GeoJSON or CSV."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.grid import Lookup
from hypercaps.data.labels import DoubtfulLabel, Suggestion
from hypercaps.data.scene import Scene
from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import write_bytes, write_csv

_DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON"}
SUFFIXES = frozenset({*_DRIVERS, ".csv"})
_WGS84 = "EPSG:4326"

Floats = npt.NDArray[np.float64]
Columns = dict[str, list[int] | list[float] | list[str]]


def check_placed(path: Path, scene: Scene) -> None:
    """Refuse a georeferenced file for a scene without a coordinate system."""
    if path.suffix.lower() in _DRIVERS and None in (scene.map_grid.crs, scene.map_grid.transform):
        raise OutputError(
            f"{path} can't be written: scene {scene.name!r} has no coordinate system; give a name that ends in "
            ".csv for the rows and columns of its pixels"
        )


def write_points(path: Path, points: Sequence[Suggestion], scene: Scene, label_field: str | None = None) -> None:
    """Write points with rank, predicted classes and confidence, all or nothing.

    ``label_field`` is an empty field for the classes that the user will enter. x and y are the centre of the pixel in
    the scene's coordinate system; GeoJSON has longitude and latitude, as its standard requires. Rows and columns count
    from 0.
    """
    columns: Columns = {
        "rank": [point.rank for point in points],
        "class": [point.first.name for point in points],
        "second": [point.second.name for point in points],
        "confidence": [round(point.confidence, 4) for point in points],
        "margin": [round(point.margin, 4) for point in points],
        **_places(points),
    }
    if label_field is not None:
        if label_field.lower() in columns:
            raise OutputError(f"the points have a field {label_field!r} already: give the class field another name")
        columns[label_field] = [""] * len(points)
    _write(path, columns, scene, "to label")


def doubtful_file(scene: Scene) -> str:
    """Name of the file of doubtful labels: a table if the scene has no coordinate system."""
    return "doubtful.csv" if None in (scene.map_grid.crs, scene.map_grid.transform) else "doubtful.gpkg"


def write_doubtful(path: Path, labels: Sequence[DoubtfulLabel], scene: Scene) -> None:
    """Write doubtful labels with rank, given class, predicted class and doubt, all or nothing, as ``write_points``."""
    columns: Columns = {
        "rank": [label.rank for label in labels],
        "class": [label.given.name for label in labels],
        "predicted": [label.predicted.name for label in labels],
        "doubt": [round(label.doubt, 4) for label in labels],
        **_places(labels),
    }
    _write(path, columns, scene, "doubtful labels")


def _places(points: Sequence[Suggestion | DoubtfulLabel]) -> Columns:
    return {"row": [point.row for point in points], "col": [point.col for point in points]}


def _write(path: Path, columns: Columns, scene: Scene, layer: str) -> None:
    """Write points, whose pixels are in the columns ``row`` and ``col``."""
    check_placed(path, scene)
    xy = _centres(np.array([columns["row"], columns["col"]], dtype=np.float64), scene)
    if path.suffix.lower() == ".csv":
        if xy is not None:
            columns |= {"x": xy[0].tolist(), "y": xy[1].tolist()}
        write_csv(path, list(columns), zip(*columns.values(), strict=True))
        return
    assert scene.map_grid.crs is not None and xy is not None  # checked by check_placed
    _write_layer(path, columns, scene.map_grid.crs, xy, layer)


def _write_layer(path: Path, columns: Columns, crs: str, xy: tuple[Floats, Floats], layer: str) -> None:
    import pyogrio
    import shapely

    driver = _DRIVERS[path.suffix.lower()]
    x, y = xy
    if driver == "GeoJSON":
        x, y = to_wgs84(path, crs, x, y)
        crs = _WGS84
    fields = [np.asarray(values, dtype=_dtype(name)) for name, values in columns.items()]
    content = io.BytesIO()  # in memory: GDAL has many errors for a full disk, and some of them are lost
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # e.g. of a coordinate system without an authority code
        pyogrio.raw.write(
            content,
            shapely.to_wkb(shapely.points(x, y)),
            fields,
            list(columns),
            layer=layer,
            geometry_type="Point",
            crs=crs,
            driver=driver,
        )
    write_bytes(path, content.getvalue())


def _dtype(field: str) -> np.dtype[Any]:
    """Type of a field, which an empty list does not tell."""
    if field in ("rank", "row", "col"):
        return np.dtype(np.int64)
    return np.dtype(np.float64 if field in ("confidence", "margin", "doubt") else object)


def _centres(pixels: Floats, scene: Scene) -> tuple[Floats, Floats] | None:
    """x and y of the centres of pixels (2, N), rows and columns; None without georeference."""
    rows, cols = pixels
    if scene.lookup is not None:
        rows, cols = _map_positions(scene.lookup, rows, cols)
    if scene.map_grid.transform is None:
        return None
    a, b, c, d, e, f = scene.map_grid.transform
    return a * (cols + 0.5) + b * (rows + 0.5) + c, d * (cols + 0.5) + e * (rows + 0.5) + f


def _map_positions(lookup: Lookup, rows: Floats, cols: Floats) -> tuple[Floats, Floats]:
    """Rows and columns of the map pixels that take their values from these pixels of a swath."""
    places, exact = _exact_positions(lookup, rows, cols)
    nearest = np.full(len(rows), np.inf)
    for i in np.flatnonzero(~exact):  # pixels that are not in the map: the one whose pixel is nearest
        for r in range(lookup.shape[0]):  # row by row: the table may be large
            off = np.hypot(lookup.rows[r] - rows[i], lookup.cols[r] - cols[i])
            off[lookup.rows[r] < 0] = np.inf
            at = int(off.argmin())
            if off[at] < nearest[i]:
                nearest[i], places[i] = off[at], (r, at)
    return places[:, 0], places[:, 1]


def _exact_positions(lookup: Lookup, rows: Floats, cols: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(N, 2) the first map pixel, rows and columns, that shows each of these pixels of a swath, and (N,) whether any
    does."""
    places, is_exact = np.full((len(rows), 2), np.nan), np.zeros(len(rows), dtype=bool)
    width = int(max(lookup.cols.max(initial=0), cols.max(initial=0))) + 1
    codes = (rows * width + cols).astype(np.int64)  # (N,)
    for r in range(lookup.shape[0]):
        inside = np.flatnonzero(lookup.rows[r] >= 0)
        shown, first = np.unique(
            lookup.rows[r, inside].astype(np.int64) * width + lookup.cols[r, inside], return_index=True
        )
        if shown.size == 0:
            continue
        at = np.minimum(np.searchsorted(shown, codes), shown.size - 1)
        matches = ~is_exact & (shown[at] == codes)
        places[matches, 0], places[matches, 1] = r, inside[first[at[matches]]]
        is_exact |= matches
    return places, is_exact


def to_wgs84(path: Path, crs: str, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Longitude and latitude of coordinates, as GeoJSON has them; ``path`` is for messages."""
    from rasterio.crs import CRS
    from rasterio.warp import transform

    lon, lat = (np.asarray(values) for values in transform(CRS.from_user_input(crs), CRS.from_user_input(_WGS84), x, y))
    if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
        raise OutputError(
            f"{path} can't be written: the scene's coordinates have no longitude and latitude; give a name that ends "
            "in .gpkg"
        )
    return lon, lat
