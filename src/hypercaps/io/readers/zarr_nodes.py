"""Metadata of Zarr stores, versions 2 and 3, read and checked before the zarr library sees the store.

A codec named pickle would run code from the file, and a link in a folder could read any file of the machine.
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
METADATA_FILES = (*_MARKS, ".zattrs", ".zmetadata")
_MAX_JSON_BYTES = 1 << 24
_MAX_DEPTH = 16  # groups within groups
# All of these are arithmetic on the bytes of a chunk; codecs of objects, text and pickles are not listed.
_CODECS = frozenset((
    "bytes", "transpose", "sharding_indexed", "crc32c", "gzip", "zstd", "blosc", "zlib", "bz2", "lzma", "lz4",
    "shuffle", "delta", "fixedscaleoffset", "bitround", "quantize", "crc32", "adler32", "fletcher32",
))  # fmt: skip
_CODEC_KEYS = ("codecs", "index_codecs", "filters", "compressor")

Place = Path | zipfile.Path
Json = Mapping[str, object]


@dataclass(frozen=True)
class Node:
    """An array of a store and its metadata."""

    key: str
    version: Literal[2, 3]
    metadata: Json
    attrs: Json


def is_zarr(path: Path) -> bool:
    if path.is_dir():
        return any((path / mark).is_file() for mark in _MARKS)
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(mark in archive.namelist() for mark in _MARKS)


@contextmanager
def root_of(path: Path) -> Iterator[Place]:
    """The root of a store: ``root / key`` is a file in a folder and in a .zip alike."""
    if path.is_dir():
        yield path
    else:
        with zipfile.ZipFile(path) as archive:
            yield zipfile.Path(archive)


def checked_size(path: Path) -> int:
    """Bytes in a folder; refused if it holds a link that leads out of it, or a pipe or device."""
    inside, total, folders = path.resolve(), 0, [os.fspath(path)]
    while folders:
        with os.scandir(folders.pop()) as entries:  # may be a million
            for entry in entries:
                if entry.is_symlink():
                    if not Path(entry.path).resolve().is_relative_to(inside):
                        raise SceneError(f"{path} refers elsewhere by {entry.path}: only data inside it is read")
                elif entry.is_dir():
                    folders.append(entry.path)
                elif entry.is_file():
                    total += entry.stat().st_size
                else:
                    raise SceneError(f"{path} has {entry.path}, which is no file: remove it")
    return total


def nodes_of(path: Path, at: Place, key: str = "", depth: int = 0, consolidated: Json | None = None) -> Iterator[Node]:
    """The arrays at and below a place; ``consolidated`` is the copy of their metadata in the outermost group."""
    third = _json(path, at / "zarr.json")
    version: Literal[2, 3] = 2 if third is None else 3
    attrs = _json(path, at / ".zattrs") if third is None else third.get("attributes")
    array = _json(path, at / ".zarray") if third is None else third
    if array is not None and (version == 2 or array.get("node_type") == "array"):
        node = Node(key, version, array, attrs or {})
        _check_consolidated(path, node, consolidated or {})
        yield node
        return
    if third is None and _json(path, at / ".zgroup") is None:
        return
    if depth > _MAX_DEPTH:
        raise SceneError(f"{path} has groups within groups more than {_MAX_DEPTH} deep: fewer are expected")
    if consolidated is None:
        outer = _json(path, at / ".zmetadata") if third is None else third.get("consolidated_metadata")
        copies = outer.get("metadata") if isinstance(outer, dict) else None
        consolidated = copies if isinstance(copies, dict) else {}
    places: list[Any] = sorted((place for place in at.iterdir() if place.is_dir()), key=lambda place: str(place.name))
    for inner in places:
        yield from nodes_of(path, inner, f"{key}/{inner.name}" if key else inner.name, depth + 1, consolidated)


def _check_consolidated(path: Path, node: Node, consolidated: Json) -> None:
    """Metadata has no checksum, but most stores hold it twice."""
    pairs = [(node.key, node.metadata)]
    if node.version == 2:
        pairs = [(f"{node.key}/.zarray", node.metadata), (f"{node.key}/.zattrs", node.attrs)]
    for key, metadata in pairs:
        copy = consolidated.get(key)
        if copy is not None and json.dumps(copy, sort_keys=True) != json.dumps(metadata, sort_keys=True):
            raise SceneError(
                f"{path} describes {node.key!r} in two ways, at its top and beside it: it is damaged, or was changed "
                "and its metadata must be consolidated again"
            )


def _json(path: Path, at: Place) -> Any:
    """The object of a JSON file; None if there is no such file."""
    if not at.is_file():
        return None
    size = at.stat().st_size if isinstance(at, Path) else at.root.getinfo(at.at).file_size
    if size > _MAX_JSON_BYTES:
        raise SceneError(f"{path} has metadata of {size:,} bytes in {at.name}: far fewer are expected")
    value = json.loads(at.read_bytes())
    if not isinstance(value, dict):
        raise SceneError(f"{path} has no object in {at.name}: get the store again")
    return value


def check_codecs(path: Path, key: str, metadata: Json, depth: int = 0) -> None:
    """Refuse codecs that are not on the list, within shards too."""
    if metadata.get("storage_transformers"):
        raise SceneError(f"{path} keeps {key!r} through storage transformers, which are not read: write it without")
    for where in _CODEC_KEYS:
        value = metadata.get(where)
        for codec in value if isinstance(value, list) else [] if value is None else [value]:
            name = codec_name(codec)
            if name not in _CODECS or depth > 2:
                raise SceneError(
                    f"{path} packs {key!r} with {name!s:.40}, which is not read: write it again with zstd or gzip"
                )
            inner = codec.get("configuration") if isinstance(codec, dict) else None
            if isinstance(inner, dict):
                check_codecs(path, key, inner, depth + 1)


def codec_name(codec: object) -> str | None:
    name = codec.get("name", codec.get("id")) if isinstance(codec, dict) else codec
    return name.removeprefix("numcodecs.") if isinstance(name, str) else None
