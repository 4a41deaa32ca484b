"""Zarr stores, versions 2 and 3: a folder, or a .zip of one, that holds one array or groups of them.

Their descriptions are read here before Zarr sees them: a compressor named pickle would run what is in a file, and a
link in the folder could read any file of the machine.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError
from hypercaps.io.arrays import StoredArray
from hypercaps.io.cf import cube_arrays
from hypercaps.io.stored import tell
from hypercaps.io.variables import Part, Variable, check_claims

_MARKS = ("zarr.json", ".zgroup", ".zarray")
_DESCRIPTIONS = (*_MARKS, ".zattrs", ".zmetadata")
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
class _Node:
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


def zarr_arrays(path: Path) -> list[StoredArray]:
    """The cubes and maps of a store."""
    size = _checked_size(path) if path.is_dir() else path.stat().st_size
    with _root(path) as root:
        nodes = list(_nodes(path, root))
    variables = {node.key: _variable(path, node, size) for node in nodes}
    return cube_arrays(variables)


@contextmanager
def _root(path: Path) -> Iterator[Place]:
    if path.is_dir():
        yield path
    else:
        with zipfile.ZipFile(path) as archive:
            yield zipfile.Path(archive)


def _checked_size(path: Path) -> int:
    """Bytes in a folder; a link that leads out of it is refused."""
    inside, total = path.resolve(), 0
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            at = Path(folder, name)
            if at.is_symlink() and not at.resolve().is_relative_to(inside):
                raise SceneError(f"{path} refers elsewhere by {at}: only what is inside it is read")
        total += sum(os.lstat(os.path.join(folder, name)).st_size for name in files)  # noqa: PTH118 - a million of them
    return total


# Descriptions


def _nodes(path: Path, at: Place, key: str = "", depth: int = 0, copy: Any = None) -> Iterator[_Node]:
    """The arrays at and below a place. ``copy`` holds the descriptions that a group repeats of what is in it."""
    about = _json(path, at / "zarr.json")
    version: Literal[2, 3] = 3 if about is not None else 2
    attrs: Any = about.get("attributes") if about is not None else _json(path, at / ".zattrs")
    array = about if version == 3 else _json(path, at / ".zarray")
    if array is not None and (version == 2 or array.get("node_type") == "array"):
        _compare(path, key, array, attrs, version, copy)
        yield _Node(key, version, array, attrs or {})
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
            yield from _nodes(path, inner, f"{key}/{inner.name}" if key else inner.name, depth + 1, copy)


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


# Variables


def _variable(path: Path, node: _Node, size: int) -> Variable:
    array = node.about
    shape = _lengths(path, node.key, array.get("shape"), 0)
    dtype = _dtype(array.get("dtype" if node.version == 2 else "data_type"))
    chunks: tuple[int, ...] = ()
    if dtype is not None:
        grid = array.get("chunks")
        if node.version == 3:
            described = array.get("chunk_grid")
            grid = described.get("configuration", {}).get("chunk_shape") if isinstance(described, dict) else None
        chunks = _lengths(path, node.key, grid, 1)
        if len(chunks) != len(shape):
            raise SceneError(f"{path} gives {len(chunks)} chunk lengths for {len(shape)} of {node.key!r}: get it again")
    inner = _inner_chunks(array) or chunks
    attrs = {name: _attribute(value) for name, value in node.attrs.items()}
    _fill_value(node, dtype, attrs)

    def check() -> None:
        _check_codecs(path, node.key, array)
        check_claims(path, node.key, shape, inner, 1 if dtype is None else dtype.itemsize, size)
        if len(inner) != len(shape):
            raise SceneError(f"{path} gives {len(inner)} chunk lengths for {len(shape)} of {node.key!r}: get it again")
        if len(shape) > 1:  # not of coordinates
            _tell_missing(path, node, shape, chunks)

    kind = np.dtype("O") if dtype is None else dtype
    take = _taker(path, node, chunks, math.prod(chunks) * kind.itemsize)
    return Variable(path, node.key, _dims(node, len(shape)), shape, kind, attrs, take, inner, check)


def _lengths(path: Path, key: str, value: Any, least: int) -> tuple[int, ...]:
    good = isinstance(value, list) and all(type(one) is int and least <= one < 1 << 62 for one in value)
    if not good or len(value) > 8:
        raise SceneError(f"{path} gives {value!s:.60} as lengths of {key!r}: whole numbers are expected, get it again")
    return tuple(value)


def _dtype(text: Any) -> np.dtype[Any] | None:
    """The type of plain numbers; None for all others, which are never opened."""
    try:
        dtype = np.dtype(text) if isinstance(text, str) else None
    except TypeError:
        return None
    if dtype is None or dtype.kind not in "iufb" or dtype.itemsize > 8:
        return None
    return dtype.newbyteorder("=")


def _inner_chunks(array: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The chunks within a shard, which are unpacked one by one."""
    for codec in array.get("codecs") or ():
        if isinstance(codec, dict) and codec.get("name") == "sharding_indexed":
            shape = (codec.get("configuration") or {}).get("chunk_shape")
            if isinstance(shape, list) and all(type(one) is int and one > 0 for one in shape):
                return tuple(shape)
    return None


def _dims(node: _Node, ndim: int) -> tuple[str, ...]:
    listed = node.attrs.get("_ARRAY_DIMENSIONS") if node.version == 2 else node.about.get("dimension_names")
    if isinstance(listed, list) and len(listed) == ndim:
        return tuple(name if isinstance(name, str) else "" for name in listed)
    return ("",) * ndim


def _attribute(value: Any) -> Any:
    """Text and numbers; anything else is of no use here."""
    if isinstance(value, str):
        return value
    listed = value if isinstance(value, list) else [value]
    return np.array(value) if listed and all(type(one) in (int, float, bool) for one in listed) else None


def _fill_value(node: _Node, dtype: np.dtype[Any] | None, attrs: dict[str, Any]) -> None:
    """Where xarray keeps what stands for missing: version 2 in the array's own fill value, version 3 in base64."""
    given = attrs.get("_FillValue")
    if node.version == 2 and given is None and "_ARRAY_DIMENSIONS" in node.attrs:
        fill = node.about.get("fill_value")
        named = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
        fill = named.get(fill, fill) if isinstance(fill, str) else fill
        if type(fill) in (int, float):
            attrs["_FillValue"] = np.array(fill)
    elif isinstance(given, str) and dtype is not None and dtype.kind == "f":
        raw = base64.standard_b64decode(given)
        attrs["_FillValue"] = np.array(struct.unpack("<d", raw)[0]) if len(raw) == 8 else np.array(np.nan)


def _check_codecs(path: Path, key: str, item: Any, depth: int = 0) -> None:
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
                _check_codecs(path, key, codec["configuration"], depth + 1)


# Windows


def _tell_missing(path: Path, node: _Node, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    """A chunk that is not there was never written, or lost."""
    expected = math.prod(-(-length // step) for length, step in zip(shape, chunks, strict=True))
    with _root(path) as root:
        if isinstance(root, Path):
            names = (name for _, _, files in os.walk(root / node.key) for name in files)
        else:
            prefix = f"{node.key}/" if node.key else ""
            whole = (name for name in root.root.namelist() if name.startswith(prefix) and not name.endswith("/"))
            names = (name.rpartition("/")[2] for name in whole)
        there = sum(name not in _DESCRIPTIONS for name in names)
    if there < expected:
        tell(
            f"{path.name}: {expected - there:,} of {expected:,} chunks of {node.key or 'the array'} are not there; "
            "pixels in them count as nodata"
        )


def _taker(path: Path, node: _Node, chunks: tuple[int, ...], chunk_bytes: int) -> Callable[[tuple[slice, ...]], Part]:
    def take(window: tuple[slice, ...]) -> Part:
        import zarr
        from zarr.storage import LocalStore, ZipStore

        store = LocalStore(path.absolute(), read_only=True) if path.is_dir() else ZipStore(path.absolute(), mode="r")
        try:
            array = zarr.open_array(store, path=node.key, mode="r", zarr_format=node.version)
            written = _written(path, node, chunks, chunk_bytes, window, array.metadata.encode_chunk_key)
            stored = np.asarray(array[window])
        finally:
            store.close()
        return Part(stored.astype(stored.dtype.newbyteorder("="), copy=False), written)

    return take


def _written(
    path: Path, node: _Node, chunks: tuple[int, ...], chunk_bytes: int, window: tuple[slice, ...],
    name_of: Callable[[tuple[int, ...]], str],
) -> npt.NDArray[np.bool_] | None:  # fmt: skip
    """Where a window's chunks are there; None: everywhere. Zarr gives the fill value for the others."""
    spans = [range(one.start // step, -(-one.stop // step)) for one, step in zip(window, chunks, strict=True)]
    missing = []
    with _root(path) as root:
        for place in itertools.product(*spans):
            size = _size(root, f"{node.key}/{name_of(place)}" if node.key else name_of(place))
            if size is None:
                missing.append(place)
            elif size > 2 * chunk_bytes + (1 << 16):
                raise SceneError(f"{path} has a chunk of {size:,} bytes for {chunk_bytes:,} of data: get it again")
    if not missing:
        return None
    written = np.ones([one.stop - one.start for one in window], dtype=bool)
    for place in missing:
        here = zip(place, chunks, window, strict=True)
        written[tuple(slice(max(i * n - one.start, 0), (i + 1) * n - one.start) for i, n, one in here)] = False
    return written


def _size(root: Place, key: str) -> int | None:
    try:
        return (root / key).stat().st_size if isinstance(root, Path) else root.root.getinfo(key).file_size
    except (FileNotFoundError, NotADirectoryError, KeyError):
        return None
