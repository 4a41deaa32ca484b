"""Errors of readers and damaged files, translated into one sentence for the user."""

from __future__ import annotations

import lzma
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypercaps.errors import HypercapsError, SceneError

READABLE = "GeoTIFF, ENVI, NetCDF, HDF5, Zarr, .mat (any version), .npy and .npz files are read (docs/data.md)"
READABLE_LABELS = (
    "labels may be GeoPackage, GeoJSON, Shapefile (also zipped), FlatGeobuf, File Geodatabase, KML, CSV, PNG, GeoTIFF, "
    "ENVI, NetCDF, HDF5, Zarr, .mat, .npy or .npz files (docs/labels.md)"
)
# What the readers raise on damaged files, scipy's MatReadError aside
_DAMAGE = (
    OSError, ValueError, TypeError, KeyError, IndexError, EOFError, MemoryError, SystemError, AssertionError,
    AttributeError, RuntimeError, ArithmeticError, SyntaxError, struct.error, zlib.error, lzma.LZMAError,
    zipfile.BadZipFile, tokenize.TokenError,
)  # fmt: skip


def damage() -> tuple[type[Exception], ...]:
    """What the readers raise on damaged files."""
    matlab = sys.modules.get("scipy.io.matlab")  # takes half a second to import, and reads .mat files only
    return _DAMAGE if matlab is None else (*_DAMAGE, matlab.MatReadError)


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise a SceneError of one sentence for whatever goes wrong in reading ``path``.

    Also a decorator: damage in a file that is read by window only shows when a window is read.
    """
    try:
        yield
    except HypercapsError:
        raise
    except PermissionError:
        raise SceneError(f"{path} can't be read: permission denied") from None
    except FileNotFoundError:
        raise SceneError(f"there is no file {path}: give the path of one") from None
    except UnicodeEncodeError:
        raise SceneError(f"{path} has a name that is not valid text (UTF-8): rename it") from None
    except damage() as cause:
        size = " (a folder)" if path.is_dir() else f" ({path.stat().st_size:,} bytes)" if path.is_file() else ""
        raise SceneError(
            f"{path}{size} is truncated, damaged or not what its name says ({type(cause).__name__}): a whole file was "
            f"expected, get it again; {READABLE}"
        ) from cause


@contextmanager
def raise_as(error: type[HypercapsError]) -> Iterator[None]:
    """Raise the SceneErrors of readers as ``error``: the same files can be labels, masks or splits."""
    try:
        yield
    except SceneError as cause:
        raise error(str(cause)) from cause.__cause__
