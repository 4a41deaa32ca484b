"""Whether a vector file is whole, before GDAL sees it.

GDAL reads what is left of a damaged vector file and says little of the rest. What each format says of itself, such as
how many features it has and which box each lies in, is therefore compared with what is there. None has a checksum:
nobody can see a flipped bit in a name, in GeoJSON's numbers, or in a corner that does not change its feature's box.
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

MOST_JSON = 1 << 26  # bytes: JSON is read in one piece, and takes several times its length in memory

# Tables that live inside their own file. Others, such as VirtualOGR, may be any file of the machine.
_OWN_MODULES = {"rtree", "rtree_i32", "fts3", "fts4", "fts5"}
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_QUOTED = r"""(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|`[^`]*`|\[[^\]]*\]|[^\s(]+)"""
_VIRTUAL = re.compile(rf"CREATE\s+VIRTUAL\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_QUOTED}\s+USING\s+(\w+)", re.IGNORECASE)


class Content(NamedTuple):
    """What a layer must turn out to hold."""

    rows: int
    geometries: int  # rows that have one
    boxes: Boxes | None = None  # (rows, 4): west, south, east, north as the file says; NaN where it does not


@contextmanager
def geopackage(path: Path) -> Iterator[sqlite3.Connection]:
    """The database of a GeoPackage, which is neither changed nor locked."""
    address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as database:
        database.execute("PRAGMA trusted_schema=OFF")
        database.execute("PRAGMA cell_size_check=ON")
        yield database


def geopackage_layers(path: Path) -> list[str]:
    """The layers of features of a GeoPackage, in their order."""
    journal = path.with_name(path.name + "-wal")
    if journal.is_file() and journal.stat().st_size:
        raise LabelsError(
            f"{path} has changes that another program keeps in {journal.name} and has not written into it yet: save "
            "and close it there (in QGIS: remove the layer)"
        )
    with geopackage(path) as database:
        tables = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
        if "gpkg_contents" not in tables:
            raise LabelsError(f"{path} is an SQLite database but no GeoPackage: it has no table gpkg_contents")
        for name, sql in tables.items():
            words = _COMMENT.sub(" ", sql or "")
            virtual = _VIRTUAL.match(words.strip())
            if not re.match(r"\s*CREATE\s+TABLE\b", words, re.IGNORECASE) and not (
                virtual and virtual[1].lower() in _OWN_MODULES
            ):
                raise LabelsError(f"{path} keeps its table {name!r} elsewhere: only what is inside it is read")
        layers = database.execute("SELECT table_name FROM gpkg_contents WHERE data_type = 'features'").fetchall()
    return [name for (name,) in layers if name in tables]  # a view could compute anything


def check_geopackage_layer(path: Path, layer: str, large: int) -> Content:
    """Look through the pages of a layer's table, and count its rows: the number GDAL goes by is a note of its own."""
    with geopackage(path) as database:
        found = database.execute(f"PRAGMA quick_check({_name(layer)})").fetchall()
        if found != [("ok",)]:
            raise ValueError(found)
        columns = database.execute(
            "SELECT column_name FROM gpkg_geometry_columns WHERE table_name = ?", (layer,)
        ).fetchall()
        if len(columns) != 1:
            raise ValueError("no column of geometries")
        counted = f"SELECT count(*), count({_name(columns[0][0])}) FROM {_name(layer)}"
        rows, geometries = database.execute(counted).fetchone()
        if path.stat().st_size > large:
            return Content(rows, geometries)
        heads = f"SELECT substr({_name(columns[0][0])}, 1, 40) FROM {_name(layer)} ORDER BY rowid"
        return Content(rows, geometries, np.array([_box(head) for (head,) in database.execute(heads)]).reshape(-1, 4))


def _box(head: bytes | None) -> tuple[float, float, float, float]:
    """The box that a geometry of a GeoPackage begins with, if it has one."""
    nan = float("nan")
    if not isinstance(head, bytes) or len(head) < 40 or not head[3] >> 1 & 7:
        return nan, nan, nan, nan
    west, east, south, north = struct.unpack_from("<4d" if head[3] & 1 else ">4d", head, 8)
    return west, south, east, north


def _name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def check_geojson(path: Path, content: bytes) -> Content:
    """GeoJSON that is nothing else: other kinds of JSON can tell GDAL to run commands or read other files."""

    def no_number(text: str) -> NoReturn:
        raise ValueError(text)

    document = json.loads(content, parse_constant=no_number)
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection":
        features = document["features"]
    elif kind == "Feature":
        features = [document]
    else:
        raise LabelsError(f"{path} is JSON but no GeoJSON: a FeatureCollection is expected")
    if b"gdal_streamed_alg" in content:  # the word by which GDAL knows commands
        raise LabelsError(f"{path} holds the name of a command of GDAL: GeoJSON of features alone is expected")
    for number, feature in enumerate(features, start=1):
        if feature.get("type") != "Feature" or not {"geometry", "properties"} <= feature.keys():
            raise LabelsError(
                f"feature {number} of {path} lacks its type, geometry or properties: GeoJSON of whole features is "
                "expected, get it again"
            )
    return Content(len(features), sum(feature["geometry"] is not None for feature in features))


def check_shapefile(path: Path) -> Content:
    """The three files of a shapefile, by their lengths and against each other."""
    shp = _bytes(path)
    shx, dbf = (_bytes(_beside(path, suffix)) for suffix in (".shx", ".dbf"))
    for file in (shp, shx):
        if 2 * _whole(file, 24, ">i4") > file.size:
            raise ValueError("shorter than its header says")
    entries = shx[100 : 2 * _whole(shx, 24, ">i4")].tobytes()
    offset, length = 2 * np.frombuffer(entries, dtype=">i4").reshape(-1, 2).astype(np.int64).T
    if offset.size and (offset.min() < 100 or length.min() < 4 or (offset + 8 + length).max() > shp.size):
        raise ValueError("records outside of the file")
    heads = shp[offset[:, None] + np.arange(12)]  # (n, 12): number, length, kind of shape
    number, words = heads[:, :8].copy().view(">i4").T
    kind = heads[:, 8:].copy().view("<i4")[:, 0]
    if (2 * words != length).any() or not (np.diff(number) == 1).all():
        raise ValueError("index and records differ")
    if not np.isin(kind, (0, _whole(shp, 32, "<i4"))).all():
        raise ValueError("shapes of another kind")
    has_points = kind != 0
    many = np.flatnonzero(np.isin(kind, (3, 5, 13, 15, 23, 25)) & (length >= 44))  # lines and polygons
    points = shp[offset[many, None] + 48 + np.arange(4)].copy().view("<i4")[:, 0]
    has_points[many[points == 0]] = False
    boxes = np.full((offset.size, 4), np.nan)
    boxes[many] = shp[offset[many, None] + 12 + np.arange(32)].copy().view("<f8")
    boxes[~has_points] = np.nan
    kept = _kept_rows(dbf, offset.size)
    return Content(int(kept.sum()), int((has_points & kept).sum()), boxes[kept])


def flatgeobuf_boxes(path: Path, features: int) -> Boxes | None:
    """The boxes of the features in the index of a FlatGeobuf file; None if it has none.

    The index is a tree of nodes of 40 bytes (a box, and where it leads to), 16 to a parent, the features' own last.
    """
    file = _bytes(path)
    level = -(-features // 16)
    nodes = features + level
    while level > 1:
        level = -(-level // 16)
        nodes += level
    start = 12 + _whole(file, 8, "<u4") + 40 * nodes  # where the features begin
    if features < 1 or start > file.size:
        return None
    leaves = file[start - 40 * features : start].tobytes()
    boxes = np.frombuffer(leaves, dtype="<f8").reshape(-1, 5)[:, :4].copy()
    offset = start + np.frombuffer(leaves, dtype="<u8").reshape(-1, 5)[:, 4].astype(np.int64)
    if offset[0] != start or (np.diff(offset) < 4).any() or offset[-1] + 4 > file.size:
        return None
    lengths = file[offset[:, None] + np.arange(4)].copy().view("<u4")[:, 0].astype(np.int64)
    ends = np.append(offset[1:], file.size)
    return boxes if (offset + 4 + lengths == ends).all() else None


def _kept_rows(dbf: npt.NDArray[np.uint8], shapes: int) -> npt.NDArray[np.bool_]:
    """Which rows of a dBASE table are not deleted."""
    rows, start, width = _whole(dbf, 4, "<u4"), _whole(dbf, 8, "<u2"), _whole(dbf, 10, "<u2")
    if rows != shapes or start + rows * width > dbf.size or start < 33:
        raise ValueError("rows are missing")
    fields = dbf[32 : 32 + (start - 33) // 32 * 32].reshape(-1, 32)
    ends = np.flatnonzero(fields[:, 0] == 0x0D)  # some writers leave room after the last field
    fields = fields[: ends[0]] if ends.size else fields
    # Texts may be longer than one byte can say: the next byte is then the higher part.
    widths = fields[:, 16] + np.where(np.isin(fields[:, 11], list(b"CM")), fields[:, 17].astype(int) << 8, 0)
    if 1 + int(widths.sum()) != width:
        raise ValueError("fields and rows differ")
    marks = dbf[start : start + rows * width].reshape(rows, width)[:, 0]
    if not np.isin(marks, list(b" *")).all():
        raise ValueError("a row that is neither there nor deleted")
    kept: npt.NDArray[np.bool_] = marks == ord(" ")
    return kept


def _bytes(path: Path) -> npt.NDArray[np.uint8]:
    if path.stat().st_size < 33:
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


def _whole(file: npt.NDArray[np.uint8], place: int, kind: str) -> int:
    dtype = np.dtype(kind)
    number: Any = file[place : place + dtype.itemsize].copy().view(dtype)[0]
    return int(number)
