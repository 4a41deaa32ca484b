"""Compressed bytes are measured without decompressing more of them than is expected."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zlib

import numcodecs
import numpy as np
import pytest

from hypercaps.io.readers.inflate import COMPRESSORS, inflated_length, is_within

PLAIN = np.random.default_rng(0).integers(0, 9, 300_000, dtype=np.uint8).tobytes()
PACK = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "bz2": bz2.compress,
    "lzma": lzma.compress,
    "zstd": lambda raw: bytes(numcodecs.Zstd().encode(raw)),
    "blosc": lambda raw: bytes(numcodecs.Blosc().encode(raw)),
    "lz4": lambda raw: bytes(numcodecs.LZ4().encode(raw)),
}


def zstd_blocks(*blocks: tuple[int, int]) -> bytes:
    """A frame without its length, of blocks of (kind, size): 1 is one byte that is repeated."""
    frame = b"\x28\xb5\x2f\xfd\x00\x58"
    for place, (kind, size) in enumerate(blocks, start=1):
        head = (place == len(blocks)) | kind << 1 | size << 3
        frame += struct.pack("<I", head)[:3] + (b"x" if kind == 1 else b"y" * size)
    return frame


def within(compressor: str, raw: bytes, most: int) -> bool:
    return is_within(compressor, io.BytesIO(raw), len(raw), most)


def test_every_compressor_is_tested() -> None:
    assert PACK.keys() == COMPRESSORS


@pytest.mark.parametrize("compressor", sorted(PACK))
def test_what_is_as_long_as_expected(compressor: str) -> None:
    assert within(compressor, PACK[compressor](PLAIN), len(PLAIN))


@pytest.mark.parametrize("compressor", sorted(PACK))
def test_what_is_longer(compressor: str) -> None:
    assert not within(compressor, PACK[compressor](PLAIN + b"x"), len(PLAIN))
    assert not within(compressor, PACK[compressor](bytes(10_000_000)), 10_000)


def test_blosc_that_claims_more_bytes_than_there_are() -> None:
    """The library reads as far as the header says, behind the end of the buffer too, and crashes."""
    raw = PACK["blosc"](PLAIN)
    assert within("blosc", raw + b"crc4", len(PLAIN))
    for stored in (len(raw) + 1, 2**31 - 1, 2**32 - 1, 0):
        assert not within("blosc", raw[:12] + struct.pack("<I", stored) + raw[16:], len(PLAIN))
    for cut in (1, 7, 15, 16, 100, len(raw) - 1):
        assert not within("blosc", raw[:cut], len(PLAIN))


@pytest.mark.parametrize("compressor", ["gzip", "bz2", "lzma"])
def test_a_second_stream_behind_the_first(compressor: str) -> None:
    assert not within(compressor, PACK[compressor](PLAIN) * 2, len(PLAIN))


@pytest.mark.parametrize("compressor", sorted(PACK))
def test_damaged(compressor: str) -> None:
    for raw in (b"", b"\xff" * 10, b"\xff" * 1000):
        assert not within(compressor, raw, 1000) or compressor in ("blosc", "lz4") or raw == b""
    if compressor not in ("blosc", "lz4", "zstd"):  # of which only the header is read
        assert not within(compressor, PACK[compressor](PLAIN)[:-20], len(PLAIN))


def test_zstd_without_its_length() -> None:
    assert within("zstd", zstd_blocks((1, 100_000), (0, 50)), 100_050)
    assert not within("zstd", zstd_blocks((1, 100_000), (0, 50)), 100_049)
    assert within("zstd", zstd_blocks((2, 1000)), 1 << 17)  # as far as can be known
    assert not within("zstd", zstd_blocks(*[(1, 1 << 17)] * 1000), 1 << 20)
    assert not within("zstd", zstd_blocks((1, 100))[:-2], 1 << 20)  # truncated
    assert not within("zstd", zstd_blocks((1, 100)) + zstd_blocks((1, 1 << 17)), 1000)
    assert bytes(numcodecs.Zstd().decode(zstd_blocks((1, 5), (0, 3)))) == b"xxxxxyyy"  # it is a frame


def test_the_length_of_a_zlib_stream() -> None:
    assert inflated_length(zlib.compress(PLAIN), len(PLAIN)) == len(PLAIN)
    assert inflated_length(zlib.compress(PLAIN), len(PLAIN) - 1) is None
    assert inflated_length(zlib.compress(PLAIN)[:-1], len(PLAIN)) is None
    assert inflated_length(b"nothing", len(PLAIN)) is None
