"""Descriptions of Zarr stores, versions 2 and 3, read before Zarr sees them.

A compressor named pickle would run what is in a file, and a link in a folder could read any file of the machine.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hypercaps.errors import SceneError

_MARKS = ("zarr.json", ".zgroup", ".zarray")
DESCRIPTIONS = (*_MARKS, ".zattrs", ".zmetadata")
_LONGEST_JSON = 1 << 24  # bytes
_DEEPEST = 16  # groups within groups
# What may be done to the bytes of a chunk: all of it arithmetic. Objects, text and pickles are not among them.
_CODECS = frozenset((
    "bytes", "transpose", "sharding_indexed", "crc32c", "gzip", "zstd", "blosc", "zlib", "bz2", "lzma", "lz4",
    "shuffle", "delta", "fixedscaleoffset", "bitround", "quantize", "crc32", "adler32", "fletcher32",
))  # fmt: skip
_CODEC_KEYS = ("codecs", "index_codecs", "filters", "compressor")

Place = Path | zipfile.Path


@dataclass(frozen=True)
class Node:
    """An array of a store and its description."""

    key: str
    version: Literal[2, 3]
    about: Mapping[str, Any]
    attrs: Mapping[str, Any]


def is_zarr(path: Path) -> bool:
    """Whether a folder or a .zip is a Zarr store."""
    if path.is_dir():
        return any((path / mark).is_file() for mark in _MARKS)
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(mark in archive.namelist() for mark in _MARKS)


@contextmanager
def root_of(path: Path) -> Iterator[Place]:
    """The top of a store, which files are found from by ``/`` in a folder and in a .zip alike."""
    if path.is_dir():
        yield path
    else:
        with zipfile.ZipFile(path) as archive:
            yield zipfile.Path(archive)


def checked_size(path: Path) -> int:
    """Bytes in a folder; a link that leads out of it is refused, and so is what is neither file nor folder."""
    inside, total, folders = path.resolve(), 0, [os.fspath(path)]
    while folders:
        with os.scandir(folders.pop()) as entries:  # there may be a million of them
            for entry in entries:
                if entry.is_symlink():
                    if not Path(entry.path).resolve().is_relative_to(inside):
                        raise SceneError(f"{path} refers elsewhere by {entry.path}: only what is inside it is read")
                elif entry.is_dir():
                    folders.append(entry.path)
                elif entry.is_file():
                    total += entry.stat().st_size
                else:
                    raise SceneError(f"{path} has {entry.path}, which is no file: take it away")
    return total


def nodes_of(path: Path, at: Place, key: str = "", depth: int = 0, copy: Any = None) -> Iterator[Node]:
    """The arrays at and below a place. ``copy`` holds the descriptions that a group repeats of what is in it."""
    about = _json(path, at / "zarr.json")
    version: Literal[2, 3] = 3 if about is not None else 2
    attrs: Any = about.get("attributes") if about is not None else _json(path, at / ".zattrs")
    array = about if version == 3 else _json(path, at / ".zarray")
    if array is not None and (version == 2 or array.get("node_type") == "array"):
        _compare(path, key, array, attrs, version, copy)
        yield Node(key, version, array, attrs or {})
        return
    group = about if version == 3 else _json(path, at / ".zgroup")
    if group is None:
        return
    if depth > _DEEPEST:
        raise SceneError(f"{path} has groups within groups more than {_DEEPEST} deep: a store of fewer is expected")
    if copy is None:
        copy = _copy(path, at, about)
    places: list[Any] = list(at.iterdir())
    for inner in sorted(places, key=lambda place: str(place.name)):
        if inner.is_dir():
            yield from nodes_of(path, inner, f"{key}/{inner.name}" if key else inner.name, depth + 1, copy)


def _copy(path: Path, at: Place, about: Any) -> dict[str, Any]:
    """The descriptions that are repeated at the top of a store, by key."""
    whole = _json(path, at / ".zmetadata") if about is None else about.get("consolidated_metadata")
    copied = whole.get("metadata") if isinstance(whole, dict) else None
    return copied if isinstance(copied, dict) else {}


def _compare(path: Path, key: str, array: Any, attrs: Any, version: int, copy: Any) -> None:
    """A description has no checksum, but nearly every store has it twice."""
    if version == 3:
        pairs = [(copy.get(key), array)] if copy else []
    else:
        pairs = [(copy.get(f"{key}/.zarray"), array), (copy.get(f"{key}/.zattrs"), attrs)] if copy else []
    for ours, theirs in pairs:
        if ours is not None and json.dumps(ours, sort_keys=True) != json.dumps(theirs or {}, sort_keys=True):
            raise SceneError(
                f"{path} describes {key!r} in two ways, at its top and beside it: it is damaged, or was changed and "
                "its metadata must be consolidated again"
            )


def _json(path: Path, at: Place) -> Any:
    """An object of a JSON file; None if there is no such file."""
    if not at.is_file():
        return None
    size = at.stat().st_size if isinstance(at, Path) else at.root.getinfo(at.at).file_size
    if size > _LONGEST_JSON:
        raise SceneError(f"{path} has a description of {size:,} bytes in {at.name}: far fewer are expected")
    found = json.loads(at.read_bytes())
    if not isinstance(found, dict):
        raise SceneError(f"{path} has no object in {at.name}: get the store again")
    return found


def check_codecs(path: Path, key: str, item: Any, depth: int = 0) -> None:
    """Refuse what is not on the list of codecs, within shards too."""
    if item.get("storage_transformers"):
        raise SceneError(f"{path} keeps {key!r} through storage transformers, which are not read: write it without")
    for where in _CODEC_KEYS:
        listed = item.get(where)
        for codec in listed if isinstance(listed, list) else [] if listed is None else [listed]:
            name = codec.get("name", codec.get("id")) if isinstance(codec, dict) else codec
            plain = name.removeprefix("numcodecs.") if isinstance(name, str) else None
            if plain not in _CODECS or depth > 2:
                raise SceneError(
                    f"{path} packs {key!r} with {name!s:.40}, which is not read: write it again with zstd or gzip"
                )
            if isinstance(codec, dict) and isinstance(codec.get("configuration"), dict):
                check_codecs(path, key, codec["configuration"], depth + 1)
