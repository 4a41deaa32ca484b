"""Zipped shapefiles, and KML in a .kmz, read into memory: nothing is unpacked to the disk.

What GDAL gets is a new archive of the checked files under plain names.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np

from hypercaps.errors import LabelsError
from hypercaps.io.labels.vector_check import Content, check_shapefile_parts

ZIP = "ZIP"
MARK = b"PK\x03\x04"

_MAX_DIRECTORY = 1 << 22  # bytes of the list of files at the end of an archive, which zipfile reads as a whole
_MAX_UNPACKED = 1 << 28  # bytes
_END = b"PK\x05\x06"  # begins the record of 22 bytes at the end; up to 65,535 bytes of comment may follow
_NEEDED, _OPTIONAL = (".shp", ".shx", ".dbf"), (".prj", ".cpg")


def vector_members(path: Path) -> dict[str, str]:
    """The shapefiles and KML files in an archive by the name of their layer; empty if it has none."""
    if not _has_short_directory(path):
        return {}
    try:
        with zipfile.ZipFile(path) as opened:
            names = opened.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return {}
    # The copies that macOS adds have the names of the files, but not their contents.
    members = [name for name in names if name.lower().endswith((".shp", ".kml")) and "__MACOSX" not in name]
    return {PurePosixPath(name).stem: name for name in members}


def _has_short_directory(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - 22 - 65535))
        end = file.read()
    place = end.rfind(_END)
    return place >= 0 and int.from_bytes(end[place + 12 : place + 16], "little") <= _MAX_DIRECTORY


def read_member(path: Path, member: str) -> bytes:
    """The content of one file of an archive; its checksum is compared."""
    with zipfile.ZipFile(path) as opened:
        info = opened.getinfo(member)
        _check_size(path, info.file_size)
        return _read(opened, info)


def read_shapefile(path: Path, member: str) -> tuple[bytes, Content]:
    """The files of the shapefile ``member`` (its .shp) as an archive for GDAL, and what must be read from it."""
    stem = member[:-4]
    with zipfile.ZipFile(path) as opened:
        infos = {
            info.filename[len(stem) :].lower(): info
            for info in opened.infolist()
            if info.filename.startswith(stem) and info.filename[len(stem) :].lower() in (*_NEEDED, *_OPTIONAL)
        }
        _check_size(path, sum(info.file_size for info in infos.values()))
        lacking = [suffix for suffix in _NEEDED if suffix not in infos]
        if lacking:
            raise LabelsError(
                f"{path} lacks {PurePosixPath(stem).name}{lacking[0]}: a shapefile is several files of one name (.shp, "
                ".shx, .dbf, .prj); zip all of them"
            )
        parts = {suffix: _read(opened, info) for suffix, info in infos.items()}
    content = check_shapefile_parts(*(np.frombuffer(parts[suffix], dtype=np.uint8) for suffix in _NEEDED))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as new:
        for suffix, part in parts.items():
            new.writestr(f"labels{suffix}", part)
    return packed.getvalue(), content


def _read(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The content of a file, not more than its stated size, whatever it unpacks to."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # zipfile unpacks others without a limit
        raise LabelsError(f"{opened.filename} is compressed in an unusual way: zip it again, or unpack it")
    with opened.open(info) as file:
        return file.read(info.file_size)


def _check_size(path: Path, size: int) -> None:
    if size > _MAX_UNPACKED:
        raise LabelsError(
            f"{path} unpacks to {size:,} bytes: archives are read up to {_MAX_UNPACKED:,}; unpack it and name the file"
        )
