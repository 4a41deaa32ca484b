"""What a person names as a scene or as labels: a file, several tiles, or an address in the network."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from hypercaps.errors import ClusterError, HypercapsError
from hypercaps.io import catalog

Named = str | Path | Sequence[str | Path]  # a file, a pattern, a list of tiles in a file (@FILE), an address; or tiles

_LONGEST = 1 << 22  # bytes of a list of tiles
_NETWORK = re.compile(r"(https?|ftps?|s3|gs|az|adl|abfss?|oss|swift|hdfs|webhdfs|file):/|/vsi", re.IGNORECASE)
# GDAL's own ways to name data; a file of this name, with a key in it, is one all the same.
_OF_GDAL = re.compile(
    r"[a-z][a-z0-9+.-]+://|(gtiff_(dir|raw)|vrt|hdf[45](_\w+)?|netcdf|zarr|wms|wmts|wcs|ogcapi|pg|postgisraster|mem"
    r"|rasterlite\w*|gpkg|sentinel2_\w+|stac\w*|plmosaic|daas|eedai?|derived_subdataset|nitf_im|dods):",
    re.IGNORECASE,
)


def address_in(named: str | Path, *, allowed: bool, error: type[HypercapsError]) -> str | None:
    """The http address that is named, or None for a file of this machine; all else that is no file is refused."""
    spec = str(named)
    if not _is_elsewhere(spec):
        return None
    # pathlib makes one slash of two.
    address = re.sub(r"^(https?):/+", r"\1://", spec.removeprefix("/vsicurl/"), flags=re.IGNORECASE)
    if urlsplit(address).scheme.lower() not in ("http", "https"):
        raise error(f"{spec} is no file of this machine: name a file, or a GeoTIFF's https address with --allow-remote")
    if not allowed:
        raise error(
            f"{spec} lies in the network, where nothing is read without --allow-remote (allow_remote=True): give "
            "that, or name a file"
        )
    if not urlsplit(address).path.lower().endswith((".tif", ".tiff")):
        raise error(f"{spec} is not the address of a .tif: only GeoTIFFs are read from the network, download it first")
    return address


def tiles_in(named: Named, error: type[HypercapsError]) -> list[str | Path] | None:
    """The tiles that are named: by a list, a pattern, names with commas, or @FILE with one a line; None: one file."""
    if not isinstance(named, str | Path):
        if not named:
            raise error("no tile is named: give the files of one scene, or a pattern such as 'tiles/*.tif'")
        return list(named)
    spec = str(named)
    if is_there(spec) or _is_elsewhere(spec):
        return None
    if spec.startswith("@"):
        return _listed(Path(spec[1:]).expanduser(), error)
    parts = [part.strip() for part in spec.split(",")]
    if len(parts) > 1 and (_is_pattern(parts[0]) or is_there(parts[0])):
        return [tile for part in parts for tile in (_matching(part, error) if _is_pattern(part) else [part])]
    return _matching(spec, error) if _is_pattern(spec) else None


def files_in(named: Named) -> list[Path]:
    """Every file that is named, also with :KEY, whether it exists or not; a list of tiles (@FILE) and its tiles."""
    try:
        tiles = tiles_in(named, HypercapsError)
    except HypercapsError:
        tiles = None
    specs = [str(tile) for tile in ([named] if tiles is None else tiles)]
    if isinstance(named, str | Path) and str(named).startswith("@"):
        specs.append(str(named)[1:])
    return [Path(spec).expanduser() for text in specs for spec in (text, text.rpartition(":")[0]) if spec]


def _is_elsewhere(spec: str) -> bool:
    before_key = spec.rpartition(":")[0]
    return bool(_NETWORK.match(spec) or (_OF_GDAL.match(spec) and not is_there(before_key)))


def is_there(spec: str) -> bool:
    """Whether a file or a folder has this name."""
    try:
        return spec != "" and Path(spec).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # a folder that may not be entered, a name that can't be one
        return False


def _is_pattern(spec: str) -> bool:
    # A key in brackets belongs to a file before it.
    return glob.has_magic(spec) and not is_there(spec.rpartition(":")[0])


def _matching(pattern: str, error: type[HypercapsError]) -> list[str | Path]:
    found = sorted(glob.glob(str(Path(pattern).expanduser())))  # noqa: PTH207 - Path.glob takes no whole paths
    if not found:
        raise error(f"no file matches {pattern!r}: give a pattern of tiles that are there, such as 'tiles/*.tif'")
    return list(found)


def _listed(path: Path, error: type[HypercapsError]) -> list[str | Path]:
    """The tiles of a list, one a line, as seen from the list's folder."""
    try:
        if path.stat().st_size > _LONGEST:
            raise error(f"{path} has {path.stat().st_size:,} bytes: a text file with one tile a line is expected")
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except OSError as cause:
        raise error(f"the list of tiles {path} can't be read: {(cause.strerror or str(cause)).lower()}") from None
    except UnicodeDecodeError:
        raise error(f"{path} is not text: the name of one tile a line is expected") from None
    tiles = [line for line in lines if line and not line.startswith("#")]
    if not tiles:
        raise error(f"{path} names no tile: the name of one a line is expected")
    return [line if _is_elsewhere(line) else path.parent / Path(line).expanduser() for line in tiles]


def absolute(spec: str) -> str:
    """A name of the catalogue and an address as they are, a path so that it holds in any folder."""
    if spec in catalog.names() or address_in(spec, allowed=True, error=ClusterError):
        return spec
    return str(Path.cwd() / Path(spec).expanduser())
