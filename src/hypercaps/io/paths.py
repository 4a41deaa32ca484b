"""How a user names a scene or labels: a file, several tiles, or an address on the network."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from hypercaps.errors import HypercapsError, SceneError
from hypercaps.io import catalog

PathSpec = str | Path | Sequence[str | Path]  # a file, pattern, list of tiles (@FILE) or address; or several tiles

_MAX_TEXT_BYTES = 1 << 22  # of a list of tiles or wavelengths
_NETWORK = re.compile(r"(https?|ftps?|s3|gs|az|adl|abfss?|oss|swift|hdfs|webhdfs|file):/|/vsi", re.IGNORECASE)
# GDAL's own connection strings; an existing file of this name, with a key after it, is a file all the same.
_OF_GDAL = re.compile(
    r"[a-z][a-z0-9+.-]+://|(gtiff_(dir|raw)|vrt|hdf[45](_\w+)?|netcdf|zarr|wms|wmts|wcs|ogcapi|pg|postgisraster|mem"
    r"|rasterlite\w*|gpkg|sentinel2_\w+|stac\w*|plmosaic|daas|eedai?|derived_subdataset|nitf_im|dods):",
    re.IGNORECASE,
)


def local_file(spec: PathSpec) -> Path | None:
    """The existing file that ``spec`` is; None for anything else, such as a pattern, PATH:KEY or an address."""
    if not isinstance(spec, str | Path) or _NETWORK.match(str(spec)) or _OF_GDAL.match(str(spec)):
        return None
    return Path(spec).expanduser() if exists(str(spec)) and Path(spec).expanduser().is_file() else None


def remote_address(spec: str, *, allowed: bool) -> str | None:
    """The http address that ``spec`` is; None for a local file. Other remote names are refused."""
    if not _is_remote(spec):
        return None
    # pathlib turns two slashes into one.
    address = re.sub(r"^(https?):/+", r"\1://", spec.removeprefix("/vsicurl/"), flags=re.IGNORECASE)
    if urlsplit(address).scheme.lower() not in ("http", "https"):
        raise SceneError(f"{spec} is not a local file: name a file, or a GeoTIFF's https address with --allow-remote")
    if not allowed:
        raise SceneError(
            f"{spec} is a network address, which is only read with --allow-remote (allow_remote=True): give that "
            "option, or name a file"
        )
    if not urlsplit(address).path.lower().endswith((".tif", ".tiff")):
        raise SceneError(
            f"{spec} is not the address of a .tif: only GeoTIFFs are read from the network, download it first"
        )
    return address


def tile_paths(spec: PathSpec) -> list[str | Path] | None:
    """The tiles named by a list, a pattern, names with commas, or @FILE with one per line; None: one file."""
    if not isinstance(spec, str | Path):
        if not spec:
            raise SceneError("no tile is named: give the files of one scene, or a pattern such as 'tiles/*.tif'")
        return list(spec)
    text = str(spec)
    if exists(text) or _is_remote(text):
        return None
    if text.startswith("@"):
        return _listed_tiles(Path(text[1:]).expanduser())
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and (_is_pattern(parts[0]) or exists(parts[0])):
        return [tile for part in parts for tile in (_matching(part) if _is_pattern(part) else [part])]
    return _matching(text) if _is_pattern(text) else None


def named_files(spec: PathSpec) -> list[Path]:
    """Every file that ``spec`` names, also with :KEY, existing or not; for @FILE the list and its tiles."""
    try:
        tiles = tile_paths(spec)
    except HypercapsError:
        tiles = None
    specs = [str(tile) for tile in ([spec] if tiles is None else tiles)]
    if isinstance(spec, str | Path) and str(spec).startswith("@"):
        specs.append(str(spec)[1:])
    return [Path(path).expanduser() for text in specs for path in (text, text.rpartition(":")[0]) if path]


def absolute(spec: str) -> str:
    """An absolute path; names of the catalogue and addresses stay as they are."""
    if spec in catalog.names() or remote_address(spec, allowed=True):
        return spec
    return str(Path(spec).expanduser().absolute())


def _is_remote(spec: str) -> bool:
    return bool(_NETWORK.match(spec) or (_OF_GDAL.match(spec) and not exists(spec.rpartition(":")[0])))


def exists(spec: str) -> bool:
    try:
        return spec != "" and Path(spec).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # a folder without permission, a name that can't be a path
        return False


def _is_pattern(spec: str) -> bool:
    return glob.has_magic(spec) and not exists(spec.rpartition(":")[0])  # the key of a file may have brackets


def _matching(pattern: str) -> list[str | Path]:
    paths = sorted(glob.glob(str(Path(pattern).expanduser())))  # noqa: PTH207 - Path.glob refuses absolute patterns
    if not paths:
        raise SceneError(f"no file matches {pattern!r}: give a pattern of existing tiles, such as 'tiles/*.tif'")
    return list(paths)


def _listed_tiles(path: Path) -> list[str | Path]:
    """The tiles of a list with one per line, relative to the folder of the list."""
    tiles = list(text_lines(path, "tile").values())
    if not tiles:
        raise SceneError(f"{path} names no tile: the name of one tile per line is expected")
    return [line if _is_remote(line) else path.parent / Path(line).expanduser() for line in tiles]


def text_lines(path: Path, what: str) -> dict[int, str]:
    """The lines of a text file with one ``what`` per line, by number from 1, without blank lines and # comments."""
    expected = f"a text file with one {what} per line is expected"
    try:
        size = path.stat().st_size
        if size > _MAX_TEXT_BYTES:
            raise SceneError(f"{path} has {size:,} bytes: {expected}")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise SceneError(f"{path} is not text: {expected}") from None
    except OSError as cause:
        raise SceneError(
            f"the list of {what}s {path} can't be read: {(cause.strerror or str(cause)).lower()}"
        ) from None
    return {n: line.strip() for n, line in enumerate(lines, 1) if line.strip() and not line.strip().startswith("#")}
