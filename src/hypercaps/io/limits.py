"""What may be read as a whole: checked by the sizes that a file claims, before any memory is used."""

from __future__ import annotations

from pathlib import Path

from hypercaps.compute.memory import available_memory
from hypercaps.errors import SceneError

SMALL = 1 << 28  # bytes: up to here anything may compress to nearly nothing, as a label raster does
_MOST = 200  # measured values compress by a factor of 2 to 20, and deflate reaches 1,032
_LABEL_BYTES = 12  # for each pixel: labels are read into memory, and copied once or twice


def check_claim(path: Path, what: str, claimed: int, stored: int) -> None:
    """Refuse a part of a file that is read as a whole and does not fit into memory, or only claims its size.

    what : the part, for messages, such as "array 'cube'"
    claimed : bytes in memory
    stored : bytes in the file
    """
    if claimed > SMALL and claimed > _MOST * stored:
        raise SceneError(
            f"{path} claims {claimed:,} bytes for {what} and stores {stored:,}, which measured values never compress "
            "to: get it again, or save it without compression"
        )
    if claimed > (free := available_memory()):
        raise SceneError(
            f"{path} must be read as a whole: {what} takes {claimed / 1e9:.1f} GB and {free / 1e9:.1f} GB of "
            "memory are free; save it in a format that is read by window, such as .npy or GeoTIFF"
        )


def check_labels(source: Path | str, rows: int, cols: int) -> None:
    """Refuse a raster of labels, or a mask, that does not fit into memory, or a huge one that stores nearly nothing."""
    pixels = rows * cols
    if isinstance(source, Path) and pixels > SMALL and pixels > _MOST * (stored := _stored_bytes(source)):
        raise SceneError(
            f"{source} claims {rows:,} x {cols:,} pixels of labels or a mask and stores {stored:,} bytes: give the "
            "part that the scene covers, or polygons"
        )
    needed, free = pixels * _LABEL_BYTES, available_memory()
    if needed > free:
        raise SceneError(
            f"{source} spans {rows:,} x {cols:,} pixels, which take {needed / 1e9:.1f} GB as labels or a mask, and "
            f"{free / 1e9:.1f} GB of memory are free: give a part of it"
        )


def _stored_bytes(source: Path) -> int:
    """Size of a file, or of all files of a folder."""
    files = source.rglob("*") if source.is_dir() else [source]
    return sum(file.stat().st_size for file in files if file.is_file())
