"""All files that a command reads, so that its results don't overwrite one of them."""

from __future__ import annotations

from pathlib import Path

from hypercaps.errors import CatalogError
from hypercaps.io import catalog
from hypercaps.io.paths import named_files
from hypercaps.io.readers.envi import DATA_SUFFIXES
from hypercaps.io.readers.sidecars import product_files

# Files that readers look for beside X.tif, in lower case: X.tif.hdr, and X.hdr.
_AFTER_NAME = (".hdr", ".aux.xml", ".msk", ".ovr", "-wal")
_AFTER_STEM = (".hdr", ".qml", ".shx", ".dbf", ".prj", ".cpg", ".tfw", ".wld")


def input_files(*specs: str | Path | None) -> list[Path]:
    """Every file that is read for these scenes, labels and other files, sidecar files included."""
    paths = [path for spec in specs if spec is not None for path in _main_files(spec)]
    return [file for path in paths for file in (path, *side_files(path))]


def side_files(path: Path) -> list[Path]:
    """Existing files beside ``path`` that are read together with it: headers, masks, styles, parts of a shapefile."""
    try:
        neighbours = [entry for entry in path.parent.iterdir() if entry.name != path.name and entry.is_file()]
        return [*(entry for entry in neighbours if _belongs_to(entry, path)), *product_files(path)]
    except OSError:  # a missing or unreadable folder: opening the file reports it
        return []


def _main_files(spec: str | Path) -> list[Path]:
    if str(spec) not in catalog.names():
        return named_files(spec)
    entry = catalog.get_scene(str(spec))
    try:
        return [path for part in ("cube", "labels") if (path := entry.locate(part)) is not None]
    except CatalogError:  # opening the scene reports it
        return []


def _belongs_to(entry: Path, path: Path) -> bool:
    name = entry.name.lower()
    if name in {path.name.lower() + end for end in _AFTER_NAME} | {path.stem.lower() + end for end in _AFTER_STEM}:
        return True
    is_data = entry.name == path.stem or (entry.stem == path.stem and entry.suffix.lower() in DATA_SUFFIXES)
    return path.suffix.lower() == ".hdr" and is_data
