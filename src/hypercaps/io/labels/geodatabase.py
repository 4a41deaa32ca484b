"""File Geodatabases: folders of tables, read by GDAL's driver OpenFileGDB.

Only folders with the files of a geodatabase are accepted: GDAL would open a folder with other files by another driver.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

from hypercaps.errors import LabelsError

DRIVER = "OpenFileGDB"

_FIRST_TABLE = "a00000001.gdbtable"
_NAMES = re.compile(
    r"a[0-9a-f]{8}\.(gdbtable|gdbtablx|gdbindexes|spx|freelist|horizon|([^.]+\.)?atx)|gdb|timestamps|.+\.lock|\..+",
    re.IGNORECASE,
)
_TABLE = struct.Struct("<24xQ")  # header of a table: the size of its file
_ROWS = struct.Struct("<4xI4xI")  # header of the list of rows: number of blocks, bytes for each row
_MAX_FILES = 100_000


def is_geodatabase(path: Path) -> bool:
    return path.is_dir() and (path / _FIRST_TABLE).is_file()


def layer_names(path: Path) -> list[str]:
    """The layers with geometries, in the order of the geodatabase."""
    import pyogrio

    check_geodatabase(path)
    return [str(name) for name, geometry in pyogrio.list_layers(path.absolute()) if geometry is not None]


def check_geodatabase(path: Path) -> None:
    """Refuse a folder with files of other formats, and tables that are shorter than their headers state."""
    if path.suffix.lower() != ".gdb":
        raise LabelsError(f"{path} holds the files of a geodatabase: give the folder a name that ends in .gdb")
    for number, file in enumerate(path.iterdir()):
        if number >= _MAX_FILES or not _NAMES.fullmatch(file.name) or not file.is_file():
            raise LabelsError(f"{path} holds {file.name}, which is no part of a File Geodatabase: remove it")
        if file.suffix.lower() in (".gdbtable", ".gdbtablx") and file.stat().st_size < _stated_size(file):
            raise ValueError(f"{file.name} is shorter than its header says")


def _stated_size(file: Path) -> int:
    """The size in bytes of a table, or of the list of its rows, as its header says."""
    with file.open("rb") as opened:
        head = opened.read(_TABLE.size)
    if file.suffix.lower() == ".gdbtable":
        return int(_TABLE.unpack(head)[0])
    blocks, width = _ROWS.unpack_from(head)  # of 1,024 rows each
    return _ROWS.size + 1024 * int(blocks) * int(width)
