"""How much compressed bytes decompress to, found out without decompressing more than is expected.

Libraries allocate whatever a chunk decompresses to, which for deflate may be 1,032 times its size, for others more.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import IO

from isal import isal_zlib

_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub gives an instance

DEFLATE_RATIO = 1032  # the highest that deflate reaches
_ZSTD_MARK, _ZSTD_BLOCK = b"\x28\xb5\x2f\xfd", 1 << 17  # most bytes that a block decompresses to
_HEADER = 18  # bytes of the longest header of zstd
_BLOSC_HEADER = 16  # bytes: of them 4 to 7 are the length before compression, 12 to 15 that after it
_MOST_MEMORY = 1 << 28  # bytes for a dictionary of lzma

COMPRESSORS = frozenset(("gzip", "zlib", "zstd", "blosc", "bz2", "lzma", "lz4"))


def inflated_length(deflated: bytes, most: int) -> int | None:
    """Length of a zlib stream, inflated and verified by its checksum; None if it is damaged or longer than ``most``."""
    plain = inflated(deflated, most)
    return None if plain is None else len(plain)


def inflated(deflated: bytes, most: int) -> bytes | None:
    """A zlib stream, inflated and verified by its checksum; None if it is damaged or longer than ``most`` bytes.

    ISA-L inflates more than twice as fast as zlib and refuses the same damaged streams.
    """
    inflater = isal_zlib.decompressobj()
    try:
        plain = inflater.decompress(deflated, most + 1)
    except _InflateError:
        return None
    return plain if inflater.eof and len(plain) <= most else None


def is_within(compressor: str, file: IO[bytes], stored: int, most: int) -> bool:
    """Whether the next ``stored`` bytes of a file decompress to at most ``most`` bytes; damaged ones do not."""
    try:
        if compressor == "blosc":
            head = file.read(min(stored, _BLOSC_HEADER))
            # Blosc reads as many bytes as its header gives, also behind the end of the buffer.
            is_whole = _BLOSC_HEADER <= _number(head[12:16]) <= stored
            return is_whole and _number(head[4:8]) <= most
        if compressor == "lz4":
            return _number(file.read(min(stored, 4))) <= most
        if compressor == "zstd":
            head = file.read(min(stored, _HEADER))
            size = _zstd_size(head)
            return (_zstd_bound(head + file.read(stored - len(head)), most) if size is None else size) <= most
        if compressor in ("gzip", "zlib"):
            return stored * DEFLATE_RATIO <= most or _is_single(zlib.decompressobj(47), file.read(stored), most)
        unpacker = bz2.BZ2Decompressor() if compressor == "bz2" else lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
        return _is_single(unpacker, file.read(stored), most)
    except (OSError, EOFError, IndexError, zlib.error, lzma.LZMAError):
        return False


def _is_single(unpacker: zlib._Decompress | bz2.BZ2Decompressor | lzma.LZMADecompressor, raw: bytes, most: int) -> bool:
    """Whether there is one stream, of at most ``most`` bytes: a second one would be decompressed too."""
    return len(unpacker.decompress(raw, most + 1)) <= most and unpacker.eof and not unpacker.unused_data


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def _zstd_size(raw: bytes) -> int | None:
    """The length that the header of a frame gives; None if it gives none."""
    if not raw.startswith(_ZSTD_MARK):
        raise EOFError("not a frame of zstd")
    at, width = _zstd_fields(raw[4])
    return None if width == 0 else _number(raw[4 + at : 4 + at + width]) + (256 if width == 2 else 0)


def _zstd_fields(descriptor: int) -> tuple[int, int]:
    """Where the length is, from the descriptor of a frame on, and its width in bytes; 0: there is none."""
    single = descriptor >> 5 & 1
    return 1 + (1 - single) + (0, 1, 2, 4)[descriptor & 3], (single, 2, 4, 8)[descriptor >> 6]


def _zstd_bound(raw: bytes, most: int) -> int:
    """The most that frames without a length can decompress to, by their blocks; stops beyond ``most``."""
    at, total = 0, 0
    while at < len(raw):
        if raw[at : at + 4] != _ZSTD_MARK:
            raise EOFError("not a frame of zstd")
        descriptor = raw[at + 4]
        at += 4 + sum(_zstd_fields(descriptor))
        is_last = False
        while not is_last and total <= most:
            if at + 3 > len(raw):
                raise EOFError("a truncated block")
            head = _number(raw[at : at + 3])
            is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            total += size if kind < 2 else _ZSTD_BLOCK  # as they are, one byte repeated, or compressed
            at += 3 + (1 if kind == 1 else size)
        if total > most:
            return total
        at += 4 if descriptor >> 2 & 1 else 0  # a checksum
    return total
