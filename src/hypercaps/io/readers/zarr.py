"""Zarr stores, versions 2 and 3: a folder, or a .zip of one, that holds one array or groups of them.

Zarr itself is only asked for windows of arrays whose description was checked.
"""

from __future__ import annotations

import base64
import itertools
import math
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.readers.cf import cube_arrays
from hypercaps.io.readers.variables import Part, Variable, check_claims
from hypercaps.io.readers.zarr_nodes import DESCRIPTIONS, Node, Place, check_codecs, checked_size, nodes_of, root_of


def zarr_arrays(path: Path) -> list[StoredArray]:
    """The cubes and maps of a store."""
    size = checked_size(path) if path.is_dir() else path.stat().st_size
    with root_of(path) as root:
        nodes = list(nodes_of(path, root))
    variables = {node.key: _variable(path, node, size) for node in nodes}
    return cube_arrays(variables)


# Variables


def _variable(path: Path, node: Node, size: int) -> Variable:
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
        check_codecs(path, node.key, array)
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


def _dims(node: Node, ndim: int) -> tuple[str, ...]:
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


def _fill_value(node: Node, dtype: np.dtype[Any] | None, attrs: dict[str, Any]) -> None:
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


# Windows


def _tell_missing(path: Path, node: Node, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    """A chunk that is not there was never written, or lost."""
    expected = math.prod(-(-length // step) for length, step in zip(shape, chunks, strict=True))
    with root_of(path) as root:
        if isinstance(root, Path):
            names = (name for _, _, files in os.walk(root / node.key) for name in files)
        else:
            prefix = f"{node.key}/" if node.key else ""
            whole = (name for name in root.root.namelist() if name.startswith(prefix) and not name.endswith("/"))
            names = (name.rpartition("/")[2] for name in whole)
        there = sum(name not in DESCRIPTIONS for name in names)
    if there < expected:
        warn_data(
            f"{path.name}: {expected - there:,} of {expected:,} chunks of {node.key or 'the array'} are not there; "
            "pixels in them count as nodata"
        )


def _taker(path: Path, node: Node, chunks: tuple[int, ...], chunk_bytes: int) -> Callable[[tuple[slice, ...]], Part]:
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
    path: Path, node: Node, chunks: tuple[int, ...], chunk_bytes: int, window: tuple[slice, ...],
    name_of: Callable[[tuple[int, ...]], str],
) -> npt.NDArray[np.bool_] | None:  # fmt: skip
    """Where a window's chunks are there; None: everywhere. Zarr gives the fill value for the others."""
    spans = [range(one.start // step, -(-one.stop // step)) for one, step in zip(window, chunks, strict=True)]
    missing = []
    with root_of(path) as root:
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
