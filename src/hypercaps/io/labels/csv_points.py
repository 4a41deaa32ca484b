"""Points in a CSV file: a header, and one point per line with its coordinates or its row and column, and its class.

Columns ``x`` and ``y`` are map coordinates in the coordinate system of the scene, ``lon`` and ``lat`` are degrees
(EPSG:4326), ``row`` and ``column`` are a pixel of the scene, both counted from 0. Any other column is a field.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import LabelsError
from hypercaps.io.csv_cells import from_cell
from hypercaps.io.labels.layer import Features, Reference, VectorLayer

_SUFFIXES = (".csv", ".tsv")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # as spreadsheets mark it; refused with a sentence when it is read
_MAX_BYTES = 1 << 26
_MAX_COLUMNS = 1000
_MAX_CELLS = 4_000_000  # of a table, held as text: about 400 MB
_WGS84 = "EPSG:4326"
# Names of the columns of coordinates, in lower case without blanks and underscores: first of x, then of y.
_NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "map": (("x", "xcoord", "coordx", "pointx", "easting"), ("y", "ycoord", "coordy", "pointy", "northing")),
    "degrees": (("lon", "long", "lng", "longitude"), ("lat", "latitude")),
    "pixels": (("col", "column"), ("row",)),
}


class _Table(NamedTuple):
    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]  # of the file, from 1, for each row
    decimal_comma: bool


def is_csv(path: Path, head: bytes) -> bool:
    """Whether a file is a table by its name; ``head``, its first bytes, must be text, in UTF-16 also."""
    return path.suffix.lower() in _SUFFIXES and (head.startswith(_UTF16) or b"\x00" not in head)


def csv_layer(path: Path, *, prefer_pixels: bool) -> VectorLayer:
    """The points of a table.

    prefer_pixels : take rows and columns if the table has map coordinates too
    """
    table = _read(path)
    pairs = {kind: pair for kind, names in _NAMES.items() if (pair := _pair(table, *names)) is not None}
    order = ("pixels", "map", "degrees") if prefer_pixels else ("map", "degrees", "pixels")
    kind = next((kind for kind in order if kind in pairs), None)
    if kind is None:
        raise LabelsError(_no_coordinates(path, table.header))
    x, y = (_numbers(table, place, whole=kind == "pixels") for place in pairs[kind])
    if kind == "pixels":
        x, y = x + 0.5, y + 0.5  # the centre of the pixel
    coordinates = {place for pair in pairs.values() for place in pair}
    fields = {name: place for place, name in enumerate(table.header) if name and place not in coordinates}
    columns = {name: _column(table, place) for name, place in fields.items()}
    reference: Reference = {"map": "scene", "degrees": "own", "pixels": "pixels"}[kind]  # type: ignore[assignment]
    crs = _WGS84 if kind == "degrees" else None
    return VectorLayer.parsed(path, "CSV", path.stem, crs, Features(_points(x, y), columns), reference)


def _no_coordinates(path: Path, header: Sequence[str]) -> str:
    if len(header) == 1:
        return (
            f"{path} has one column, {header[0][:200]!r}: several are expected, with commas, semicolons or tabs "
            "between them"
        )
    return (
        f"{path} has the columns {', '.join(header)[:200]}: two columns named x and y (in the coordinate system of the "
        "scene), lon and lat (degrees), or row and column (from 0) are expected; rename those that hold the place"
    )


def _read(path: Path) -> _Table:
    """The cells of a table, stripped, without empty lines."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise LabelsError(f"{path} has {size:,} bytes: CSV is read up to {_MAX_BYTES:,}; save it as a GeoPackage")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise LabelsError(f"{path} is not text in UTF-8: save it again as 'CSV UTF-8'") from None
    first = text.partition("\n")[0]
    delimiter = max((",", ";", "\t"), key=first.count)
    if text.count(delimiter) + text.count("\n") > _MAX_CELLS:  # before the cells take memory
        raise LabelsError(f"{path} has more than {_MAX_CELLS:,} cells: save it as a GeoPackage")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, lines = [], []
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append([from_cell(cell.strip()) for cell in cells])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise LabelsError(f"line {reader.line_num} of {path} can't be read ({error}): correct it") from None
    if not rows:
        raise LabelsError(f"{path} is empty: a line of column names, and one line per point are expected")
    _check_table(path, rows, lines)
    return _Table(path, rows[0], rows[1:], lines[1:], delimiter != ",")


def _check_table(path: Path, rows: Sequence[list[str]], lines: Sequence[int]) -> None:
    header = rows[0]
    if len(header) > _MAX_COLUMNS or not all(name.isprintable() for name in header):
        raise LabelsError(f"{path} does not begin with the names of its columns: a table with a header is expected")
    named = [name for name in header if name]
    if len(set(named)) < len(named):
        raise LabelsError(f"{path} has two columns of one name: give each its own")
    for cells, line in zip(rows[1:], lines[1:], strict=True):
        if len(cells) != len(header):
            raise LabelsError(
                f"line {line} of {path} has {len(cells)} cells but its header has {len(header)}: correct it"
            )


def _pair(table: _Table, x_names: tuple[str, ...], y_names: tuple[str, ...]) -> tuple[int, int] | None:
    """The places of a column of x and a column of y; None unless there is exactly one of each."""
    plain = [re.sub(r"[\s_]", "", name).lower() for name in table.header]
    places = [[place for place, name in enumerate(plain) if name in names] for names in (x_names, y_names)]
    return (places[0][0], places[1][0]) if all(len(columns) == 1 for columns in places) else None


def _numbers(table: _Table, place: int, *, whole: bool) -> npt.NDArray[np.float64]:
    """(points,) the numbers of a column of coordinates."""
    numbers = np.empty(len(table.rows))
    for point, cells in enumerate(table.rows):
        number = _number(cells[place], table.decimal_comma)
        if number is None or (whole and number != math.floor(number)):
            kind = "a whole number from 0 up" if whole else "a number"
            raise LabelsError(
                f"line {table.lines[point]} of {table.path} has {cells[place][:40]!r} as {table.header[place]}: {kind} "
                "is expected"
            )
        numbers[point] = number
    return numbers


def _number(text: str, decimal_comma: bool) -> float | None:
    """A finite number, or None."""
    try:
        number = float(text.replace(",", ".") if decimal_comma else text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None  # Python also reads 1_000


def _column(table: _Table, place: int) -> npt.NDArray[Any]:
    """(points,) a field: whole numbers, fractions or text."""
    cells = [cells[place] for cells in table.rows]
    if cells and all(re.fullmatch(r"[+-]?\d{1,18}", cell) for cell in cells):
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    numbers = [_number(cell, table.decimal_comma) for cell in cells]
    if cells and all(number is not None for number in numbers):
        return np.array(numbers, dtype=np.float64)
    return np.array(cells, dtype=object)


def _points(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.object_]:
    import shapely

    points: npt.NDArray[np.object_] = shapely.points(x, y)
    return points
