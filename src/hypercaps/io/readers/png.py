"""PNG pictures of class numbers: one band of numbers, or a palette whose positions are the class numbers.

A PNG has no georeference: its pixels are those of the scene. Its chunks are checked before GDAL reads them.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import rasterio
from rasterio.errors import NotGeoreferencedWarning

from hypercaps.data.colors import Rgb
from hypercaps.errors import SceneError
from hypercaps.io.marks import PNG_MARK
from hypercaps.io.raster import Bands, RawWindow, StoredRaster

_MAX_PIXELS = 1 << 28
_GREY, _PALETTE = 0, 3  # colour types
_ENV = {"GDAL_PAM_ENABLED": "NO", "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR"}  # no sidecar files


def png_raster(path: Path) -> StoredRaster:
    """The class numbers of a PNG, and the colours of its palette."""
    rows, cols, bits, colors = _check(path)

    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        with warnings.catch_warnings(), rasterio.Env(**_ENV):
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with rasterio.open(path.absolute(), driver="PNG") as dataset:
                whole = dataset.read(1)
        return RawWindow(whole[rows, cols, None], None)

    return StoredRaster(path, (rows, cols, 1), np.dtype(f"u{max(1, bits // 8)}"), take, colors=colors, has_place=False)


def _check(path: Path) -> tuple[int, int, int, dict[int, Rgb]]:
    """Rows, columns, bits per pixel and palette; refuses damaged files and pictures in full colour."""
    chunks = _chunks(path)
    kind, header = next(chunks)
    if kind != b"IHDR":
        raise ValueError("no header")
    cols, rows, bits, color = struct.unpack_from(">IIBB", header)
    if color not in (_GREY, _PALETTE):
        raise SceneError(
            f"{path} is a picture in full colour: save it with one band of class numbers, or with a palette (indexed "
            "colours)"
        )
    if not 0 < rows * cols <= _MAX_PIXELS:
        raise SceneError(f"{path} has {rows:,} x {cols:,} pixels: PNG files are read up to {_MAX_PIXELS:,} pixels")
    palette, pixels, inflated = b"", 0, zlib.decompressobj()  # bytes of all rows
    row_bytes = cols * bits // 8
    most = 2 * rows * (row_bytes + 2)  # with a byte for the filter of each row, and more if it is interlaced
    for kind, content in chunks:
        palette = content if kind == b"PLTE" else palette
        if kind == b"IDAT":
            pixels += _count_inflated(inflated, content, most - pixels)
    if not rows * row_bytes <= pixels <= most:  # GDAL may leave rows that are missing as they happen to be
        raise ValueError(f"{pixels} bytes of pixels")
    triples = np.frombuffer(palette[: len(palette) // 3 * 3], dtype=np.uint8).reshape(-1, 3).tolist()
    # Black is ignored, because palettes are padded with it.
    return rows, cols, bits, {label: (r, g, b) for label, (r, g, b) in enumerate(triples) if (r, g, b) != (0, 0, 0)}


def _chunks(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of each chunk up to the last one, compared with its checksum."""
    size, kind = path.stat().st_size, b""
    with path.open("rb") as file:
        file.seek(len(PNG_MARK))
        while kind != b"IEND":
            length, kind = struct.unpack(">I4s", file.read(8))
            content = file.read(min(length, size))
            (checksum,) = struct.unpack(">I", file.read(4))
            if len(content) != length or zlib.crc32(kind + content) != checksum:
                raise ValueError(f"a chunk {kind!r} that fails its checksum")
            yield kind, content


def _count_inflated(stream: zlib._Decompress, content: bytes, most: int) -> int:
    """Bytes that a further part of a stream inflates to, a megabyte at a time; stops beyond ``most``: a bomb."""
    count, piece = 0, stream.decompress(content, 1 << 20)
    while piece and count <= most:
        count += len(piece)
        piece = stream.decompress(stream.unconsumed_tail, 1 << 20)
    return count
