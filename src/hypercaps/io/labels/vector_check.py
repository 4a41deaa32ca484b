"""Checks of vector files before GDAL opens them.

GDAL reads the intact part of a damaged vector file without an error. So the counts and bounding boxes that each format
stores are compared with the features that GDAL reads. No format has a checksum: a flipped bit in a name, in GeoJSON's
numbers, or in a vertex that does not change its feature's bounding box is not detected.
"""

from __future__ import annotations

import json
import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from hypercaps.errors import LabelsError

Boxes = npt.NDArray[np.float64]
FileBytes = npt.NDArray[np.uint8]

MOST_JSON = 1 << 26  # bytes: JSON is parsed as a whole, which takes several times its length in memory

_LEAST_BYTES = 33  # of a file of a shapefile or of FlatGeobuf: its header

# Virtual tables that are stored in the same file. Others, such as VirtualOGR, can read any file.
_OWN_MODULES = {"rtree", "rtree_i32", "fts3", "fts4", "fts5"}
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_QUOTED = r"""(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|`[^`]*`|\[[^\]]*\]|[^\s(]+)"""
_VIRTUAL = re.compile(rf"CREATE\s+VIRTUAL\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_QUOTED}\s+USING\s+(\w+)", re.IGNORECASE)


class Content(NamedTuple):
    """What must be read from a layer, according to its file."""

    rows: int
    geometries: int  # rows with a geometry
    boxes: Boxes | None = None  # (rows, 4): west, south, east, north; NaN where the file has none


@contextmanager
def geopackage(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database of a GeoPackage without changing or locking it."""
    address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as database:
        database.execute("PRAGMA trusted_schema=OFF")
        database.execute("PRAGMA cell_size_check=ON")
        yield database


def geopackage_layers(path: Path) -> list[str]:
    """The feature layers of a GeoPackage, in the order of the file."""
    journal = path.with_name(path.name + "-wal")
    if journal.is_file() and journal.stat().st_size:
        raise LabelsError(
            f"{path} has changes that another program has not yet written from {journal.name} into it: save "
            "and close it there (in QGIS: remove the layer)"
        )
    with geopackage(path) as database:
        tables = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
        if "gpkg_contents" not in tables:
            raise LabelsError(f"{path} is an SQLite database but no GeoPackage: it has no table gpkg_contents")
        for name, sql in tables.items():
            statement = _COMMENT.sub(" ", sql or "").strip()
            virtual = _VIRTUAL.match(statement)
            is_plain = re.match(r"CREATE\s+TABLE\b", statement, re.IGNORECASE) is not None
            if not is_plain and not (virtual and virtual[1].lower() in _OWN_MODULES):
                raise LabelsError(f"{path} stores its table {name!r} outside the file: only tables inside it are read")
        layers = database.execute("SELECT table_name FROM gpkg_contents WHERE data_type = 'features'").fetchall()
    return [name for (name,) in layers if name in tables]  # a view could compute anything


def check_geopackage_layer(path: Path, layer: str, *, with_boxes: bool) -> Content:
    """Check the pages of a layer's table and count its rows: GDAL uses a count that is stored separately."""
    with geopackage(path) as database:
        problems = database.execute(f"PRAGMA quick_check({_quoted(layer)})").fetchall()
        if problems != [("ok",)]:
            raise ValueError(problems)
        columns = database.execute(
            "SELECT column_name FROM gpkg_geometry_columns WHERE table_name = ?", (layer,)
        ).fetchall()
        if len(columns) != 1:
            raise ValueError("no geometry column")
        column, table = _quoted(columns[0][0]), _quoted(layer)
        rows, geometries = database.execute(f"SELECT count(*), count({column}) FROM {table}").fetchone()
        if not with_boxes:
            return Content(rows, geometries)
        heads = database.execute(f"SELECT substr({column}, 1, 40) FROM {table} ORDER BY rowid")
        return Content(rows, geometries, np.array([_box(head) for (head,) in heads]).reshape(-1, 4))


def _box(head: bytes | None) -> tuple[float, float, float, float]:
    """The bounding box in the first 40 bytes of a GeoPackage geometry; NaN if it has none."""
    nan = float("nan")
    if not isinstance(head, bytes) or len(head) < 40 or not head[3] >> 1 & 7:
        return nan, nan, nan, nan
    west, east, south, north = struct.unpack_from("<4d" if head[3] & 1 else ">4d", head, 8)
    return west, south, east, north


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


class GeoJson(NamedTuple):
    content: Content
    has_crs: bool  # whether it names a coordinate system, which is not in its standard any more


def check_geojson(path: Path, content: bytes) -> GeoJson:
    """Refuse JSON other than GeoJSON features: some kinds make GDAL run commands or read other files."""

    def refuse_constant(text: str) -> NoReturn:  # NaN and Infinity
        raise ValueError(text)

    document = json.loads(content, parse_constant=refuse_constant)
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection":
        features = document["features"]
    elif kind == "Feature":
        features = [document]
    else:
        raise LabelsError(f"{path} is JSON but no GeoJSON: a FeatureCollection is expected")
    if b"gdal_streamed_alg" in content:  # by which GDAL recognises commands
        raise LabelsError(f"{path} contains a command of GDAL: GeoJSON with features only is expected")
    for number, feature in enumerate(features, start=1):
        if feature.get("type") != "Feature" or not {"geometry", "properties"} <= feature.keys():
            raise LabelsError(
                f"feature {number} of {path} lacks its type, geometry or properties: GeoJSON with complete "
                "features is expected, get it again"
            )
    counts = Content(len(features), sum(feature["geometry"] is not None for feature in features))
    return GeoJson(counts, document.get("crs") is not None)


def check_shapefile(path: Path) -> Content:
    """Check the three files of a shapefile; see :func:`check_shapefile_parts`."""
    return check_shapefile_parts(*(_bytes(file) for file in (path, _beside(path, ".shx"), _beside(path, ".dbf"))))


def check_shapefile_parts(shp: FileBytes, shx: FileBytes, dbf: FileBytes) -> Content:
    """Compare the three files of a shapefile with their headers and with each other.

    .shx lists the position and length of each record of .shp; a record of lines or polygons begins with its box. GDAL
    skips the rows of .dbf that are marked as deleted.
    """
    if min(shp.size, shx.size, dbf.size) < _LEAST_BYTES:
        raise ValueError("too short")
    for file in (shp, shx):
        if 2 * _number(file, 24, ">i4") > file.size:
            raise ValueError("shorter than its header says")
    index = shx[100 : 2 * _number(shx, 24, ">i4")].tobytes()
    offset, length = 2 * np.frombuffer(index, dtype=">i4").reshape(-1, 2).astype(np.int64).T
    if offset.size and (offset.min() < 100 or length.min() < 4 or (offset + 8 + length).max() > shp.size):
        raise ValueError("records outside the file")
    number, words, shape = (_numbers(shp, offset + 4 * k, kind) for k, kind in enumerate((">i4", ">i4", "<i4")))
    if (2 * words != length).any() or not (np.diff(number) == 1).all():
        raise ValueError("index and records differ")
    if not np.isin(shape, (0, _number(shp, 32, "<i4"))).all():
        raise ValueError("shapes of another type")
    has_points = shape != 0
    boxes = np.full((offset.size, 4), np.nan)
    long = np.flatnonzero(np.isin(shape, (3, 5, 13, 15, 23, 25)) & (length >= 44))  # lines and polygons
    boxes[long] = _numbers(shp, offset[long] + 12, "<f8", 4).reshape(-1, 4)
    empty = long[_numbers(shp, offset[long] + 48, "<i4") == 0]
    has_points[empty], boxes[empty] = False, np.nan
    rows, start, width = _number(dbf, 4, "<u4"), _number(dbf, 8, "<u2"), _number(dbf, 10, "<u2")
    marks = dbf[start : start + rows * width].reshape(rows, width)[:, 0]
    if rows != offset.size or not np.isin(marks, list(b" *")).all():
        raise ValueError("rows and records differ")
    kept = marks == ord(" ")
    return Content(int(kept.sum()), int((has_points & kept).sum()), boxes[kept])


def flatgeobuf_boxes(path: Path, features: int) -> Boxes | None:
    """(features, 4) the boxes in the spatial index of a FlatGeobuf file; None if it has no index.

    The index is a tree of nodes of 40 bytes (a box and an offset), 16 to a parent, the features' own last.
    """
    file = _bytes(path)
    level = -(-features // 16)
    nodes = features + level
    while level > 1:
        level = -(-level // 16)
        nodes += level
    start = 12 + _number(file, 8, "<u4") + 40 * nodes  # of the features
    if features < 1 or start > file.size:
        return None
    leaves = np.frombuffer(file[start - 40 * features : start].tobytes(), dtype=[("box", "<f8", 4), ("offset", "<i8")])
    ends = np.append(start + leaves["offset"], file.size)
    if ends[0] != start or (np.diff(ends) < 4).any():
        return None
    is_index = (np.diff(ends) == 4 + _numbers(file, ends[:-1], "<u4")).all()  # each feature begins with its length
    return leaves["box"] if is_index else None


def _bytes(path: Path) -> FileBytes:
    if path.stat().st_size < _LEAST_BYTES:
        raise ValueError("too short")
    return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))


def _beside(path: Path, suffix: str) -> Path:
    for name in (path.with_suffix(suffix), path.with_suffix(suffix.upper())):
        if name.is_file():
            return name
    raise LabelsError(
        f"{path} lacks {path.with_suffix(suffix).name}: a shapefile is several files of one name (.shp, .shx, .dbf, "
        ".prj); copy all of them"
    )


def _numbers(file: FileBytes, places: npt.NDArray[np.int64], kind: str, count: int = 1) -> Any:
    """(n * count,) ``count`` numbers of dtype ``kind`` at each of n positions in bytes."""
    size = count * np.dtype(kind).itemsize
    return np.frombuffer(file[places[:, None] + np.arange(size)].tobytes(), dtype=kind)


def _number(file: FileBytes, place: int, kind: str) -> int:
    return int(_numbers(file, np.array([place]), kind)[0])
