"""Check the chunks of a Zarr array before the zarr library decompresses them, which allocates whatever they claim."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from hypercaps.errors import SceneError
from hypercaps.io.readers.inflate import COMPRESSORS, is_within
from hypercaps.io.readers.zarr_nodes import Json, Place, codec_name

_SHARD = "sharding_indexed"
_CHECKSUM = "crc32c"  # 4 bytes at the end
_OVERHEAD = 1 << 16  # bytes that compression may add to a small chunk
_SLACK = 1 << 20  # bytes that a small chunk may decompress to, as its filters may use a wider type
_MISSING = np.iinfo(np.uint64).max  # in the index of a shard


@dataclass(frozen=True)
class ChunkLayout:
    """How the files of an array are compressed, by its metadata."""

    compressor: str | None
    chunk_bytes: int  # of a chunk, decompressed
    inner: int = 1  # chunks in a file
    index_bytes: int = 0  # of a shard
    index_first: bool = False

    @property
    def most_stored(self) -> int:
        """Bytes that a file may have."""
        return self.inner * (2 * self.chunk_bytes + _OVERHEAD) + self.index_bytes

    def check(self, path: Path, at: Place) -> None:
        """Refuse a file with a chunk that decompresses to far more than a chunk."""
        size = at.stat().st_size if isinstance(at, Path) else at.root.getinfo(at.at).file_size
        if size > self.most_stored:
            raise SceneError(f"{path} has a chunk of {size:,} bytes for {self.chunk_bytes:,}: get it again")
        if self.compressor is None:
            return
        with at.open("rb") as file:
            for start, length in self._chunks(file, size):
                file.seek(start)
                if not is_within(self.compressor, file, length, 2 * self.chunk_bytes + _SLACK):
                    raise SceneError(f"{path} has a damaged chunk, {at.name}, or one that is too long: get it again")

    def _chunks(self, file: IO[bytes], size: int) -> Iterator[tuple[int, int]]:
        """Start and length of each chunk of a file; their checksums count as part of them."""
        if not self.index_bytes:
            yield 0, size
            return
        file.seek(0 if self.index_first else max(0, size - self.index_bytes))
        raw = file.read(16 * self.inner)
        index = np.frombuffer(raw.ljust(16 * self.inner, b"\xff"), dtype="<u8").reshape(-1, 2)
        for start, length in index[index[:, 0] != _MISSING].tolist():
            if start + length <= size:  # else zarr raises an error
                yield start, length


def chunk_layout(
    path: Path, key: str, metadata: Json, shapes: tuple[tuple[int, ...], tuple[int, ...]], item: int
) -> ChunkLayout:
    """The layout of an array; refused if its chunks are compressed more than once.

    shapes : of a chunk, and of a file, which holds several if it is a shard
    item : bytes of a number
    """
    chunk, file = shapes
    chunk_bytes = math.prod(chunk) * item
    codecs = _codecs(metadata)
    shard = next((codec for codec in codecs if codec_name(codec) == _SHARD), None)
    if shard is None:
        return ChunkLayout(_compressor(path, key, codecs), chunk_bytes)
    inside = shard.get("configuration") if isinstance(shard, dict) else None
    if codecs[-1] is not shard or not isinstance(inside, dict) or _compressor(path, key, codecs[:-1]):
        raise _unusual(path, key)
    index = _codecs({"codecs": inside.get("index_codecs")})
    if not {codec_name(codec) for codec in index} <= {"bytes", _CHECKSUM}:
        raise _unusual(path, key)
    inner = math.prod(-(-length // step) for length, step in zip(file, chunk, strict=True))
    index_bytes = 16 * inner + 4 * sum(codec_name(codec) == _CHECKSUM for codec in index)
    first = inside.get("index_location") == "start"
    return ChunkLayout(_compressor(path, key, _codecs(inside)), chunk_bytes, inner, index_bytes, first)


def _codecs(metadata: Json) -> list[Any]:
    """All codecs in the order in which they encode, of version 3 or of 2."""
    listed = [metadata.get("codecs"), metadata.get("filters"), [metadata.get("compressor")]]
    return [codec for part in listed if isinstance(part, list) for codec in part if codec is not None]


def _compressor(path: Path, key: str, codecs: list[Any]) -> str | None:
    """The only codec that compresses, after which there is nothing but a checksum."""
    names = [codec_name(codec) or "" for codec in codecs]
    places = [place for place, name in enumerate(names) if name in COMPRESSORS]
    if not places and _SHARD not in names:
        return None
    if len(places) > 1 or _SHARD in names or set(names[places[0] + 1 :]) - {_CHECKSUM}:
        raise _unusual(path, key)
    return names[places[0]]


def _unusual(path: Path, key: str) -> SceneError:
    return SceneError(f"{path} packs {key!r} several times, which is not read: write it again with zstd or gzip")
