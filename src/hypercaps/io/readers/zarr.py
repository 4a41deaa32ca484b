"""Zarr stores, versions 2 and 3: a folder, or a .zip of one, with one array or groups of arrays.

The zarr library only reads windows of arrays whose metadata was checked.
"""

from __future__ import annotations

import base64
import math
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.arrays import StoredArray
from hypercaps.io.readers.cf import cube_arrays
from hypercaps.io.readers.variables import Attribute, Part, Slices, Variable, attribute, chunks_in
from hypercaps.io.readers.zarr_chunks import ChunkLayout, chunk_layout
from hypercaps.io.readers.zarr_nodes import (
    METADATA_FILES,
    Json,
    Node,
    Place,
    check_codecs,
    checked_size,
    nodes_of,
    root_of,
)


@dataclass(frozen=True, eq=False)
class _ZarrVariable(Variable):
    node: Node
    file_chunks: tuple[int, ...]  # one file each: chunks, or shards that hold several
    file_bytes: int  # of the whole store
    checked: set[tuple[int, ...]] = field(default_factory=set)  # positions of files

    def check(self) -> None:
        check_codecs(self.path, self.key, self.node.metadata)
        self.check_size(self.file_bytes)
        _check_chunk_lengths(self.path, self.key, self.chunks or (), self.shape)
        _ = self._layout  # refused at once, and not when a window is read
        if len(self.shape) > 1:  # coordinates aside
            self._warn_of_missing_chunks()

    def take(self, window: Slices) -> Part:
        import zarr
        from zarr.storage import LocalStore, ZipStore

        where = self.path.absolute()
        store = LocalStore(where, read_only=True) if self.path.is_dir() else ZipStore(where, mode="r")
        try:
            array = zarr.open_array(store, path=self.key, mode="r", zarr_format=self.node.version)
            written = self._written(window, array.metadata.encode_chunk_key)
            stored = np.asarray(array[window])
        finally:
            store.close()
        return Part(stored.astype(stored.dtype.newbyteorder("="), copy=False), written)

    def _warn_of_missing_chunks(self) -> None:
        """A chunk without a file was never written, or was lost."""
        expected = math.prod(-(-length // step) for length, step in zip(self.shape, self.file_chunks, strict=True))
        with root_of(self.path) as root:
            stored = sum(name not in METADATA_FILES for name in _file_names(root, self.key))
        if stored < expected:
            warn_data(
                f"{self.path.name}: {expected - stored:,} of {expected:,} chunks of {self.key or 'the array'} are "
                "missing; pixels in them count as nodata"
            )

    @cached_property
    def _layout(self) -> ChunkLayout:
        return chunk_layout(
            self.path, self.key, self.node.metadata, (self.chunks or (), self.file_chunks), self.dtype.itemsize
        )

    def _written(self, window: Slices, name_of: Callable[[tuple[int, ...]], str]) -> npt.NDArray[np.bool_] | None:
        """Where a window's chunks have a file; None: everywhere. Zarr returns its fill value elsewhere."""
        written = np.ones([one.stop - one.start for one in window], dtype=bool)
        with root_of(self.path) as root:
            for position, covered in chunks_in(window, self.file_chunks):
                name = name_of(position)
                at = root / (f"{self.key}/{name}" if self.key else name)
                if not at.is_file():
                    written[covered] = False
                elif position not in self.checked:
                    self._layout.check(self.path, at)
                    self.checked.add(position)
        return None if written.all() else written


def zarr_arrays(path: Path) -> list[StoredArray]:
    return cube_arrays(zarr_variables(path))


def zarr_variables(path: Path) -> dict[str, Variable]:
    """All arrays of a store, by their keys."""
    size = checked_size(path) if path.is_dir() else path.stat().st_size
    with root_of(path) as root:
        return {node.key: _variable(path, node, size) for node in nodes_of(path, root)}


def _file_names(root: Place, key: str) -> Iterator[str]:
    """Names of all files below a key, without their folders."""
    if isinstance(root, Path):
        return (name for _, _, files in os.walk(root / key) for name in files)
    names = (name for name in root.root.namelist() if not name.endswith("/"))
    return (name.rpartition("/")[2] for name in names if name.startswith(f"{key}/" if key else ""))


def _variable(path: Path, node: Node, size: int) -> Variable:
    metadata, key = node.metadata, node.key
    shape = _lengths(path, key, metadata.get("shape"), least=0)
    dtype = _dtype(metadata.get("dtype" if node.version == 2 else "data_type"))
    chunks: tuple[int, ...] = ()
    if dtype.kind != "O":
        grid = metadata.get("chunks")
        if node.version == 3:
            described = metadata.get("chunk_grid")
            grid = described.get("configuration", {}).get("chunk_shape") if isinstance(described, dict) else None
        chunks = _lengths(path, key, grid, least=1)
        _check_chunk_lengths(path, key, chunks, shape)
    listed = node.attrs.get("_ARRAY_DIMENSIONS") if node.version == 2 else metadata.get("dimension_names")
    dims = listed if isinstance(listed, list) and len(listed) == len(shape) else [""] * len(shape)
    names = tuple(name if isinstance(name, str) else "" for name in dims)
    inner = _chunks_in_shard(metadata) or chunks
    return _ZarrVariable(path, key, names, shape, dtype, _attributes(node, dtype), inner, node, chunks, size)


def _lengths(path: Path, key: str, value: Any, least: int) -> tuple[int, ...]:
    is_good = isinstance(value, list) and all(type(one) is int and least <= one < 1 << 62 for one in value)
    if not is_good or len(value) > 8:
        raise SceneError(f"{path} gives {value!s:.60} as lengths of {key!r}: whole numbers are expected, get it again")
    return tuple(value)


def _check_chunk_lengths(path: Path, key: str, chunks: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if len(chunks) != len(shape):
        raise SceneError(f"{path} gives {len(chunks)} chunk lengths for {len(shape)} of {key!r}: get it again")


def _dtype(text: object) -> np.dtype[Any]:
    """The type of plain numbers; "O" for all others, which are never opened."""
    try:
        dtype = np.dtype(text if isinstance(text, str) else "O")
    except TypeError:
        return np.dtype("O")
    return dtype.newbyteorder("=") if dtype.kind in "iufb" and dtype.itemsize <= 8 else np.dtype("O")


def _chunks_in_shard(metadata: Json) -> tuple[int, ...] | None:
    """Lengths of the chunks within a shard, which are decompressed one by one."""
    codecs = metadata.get("codecs")
    for codec in codecs if isinstance(codecs, list) else ():
        if isinstance(codec, dict) and codec.get("name") == "sharding_indexed":
            shape = (codec.get("configuration") or {}).get("chunk_shape")
            if isinstance(shape, list) and all(type(one) is int and one > 0 for one in shape):
                return tuple(shape)
    return None


def _attributes(node: Node, dtype: np.dtype[Any]) -> dict[str, Attribute]:
    """Text and numbers, with _FillValue as xarray writes it: version 2 as the array's fill value, 3 in base64."""
    attrs = {name: attribute(value) for name, value in node.attrs.items()}
    fill = attrs.get("_FillValue")
    if node.version == 2 and fill is None and "_ARRAY_DIMENSIONS" in node.attrs:
        value = node.metadata.get("fill_value")
        if isinstance(value, str):
            value = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}.get(value)
        if type(value) in (int, float):
            attrs["_FillValue"] = np.array(value)
    elif isinstance(fill, str) and dtype.kind == "f":
        raw = base64.standard_b64decode(fill)
        attrs["_FillValue"] = np.array(struct.unpack("<d", raw)[0] if len(raw) == 8 else np.nan)
    return attrs
