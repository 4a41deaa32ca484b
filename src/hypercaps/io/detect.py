"""What a file is, by its content, and what is in it: each format's reader in its place, errors in one sentence."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

from scipy.io.matlab import MatReadError

from hypercaps.errors import HypercapsError, LabelsError, SceneError
from hypercaps.io import catalog
from hypercaps.io.arrays import StoredArray, numpy_arrays
from hypercaps.io.labels.vector_file import vector_kind
from hypercaps.io.raster import StoredRaster
from hypercaps.io.readers.cf import cube_arrays
from hypercaps.io.readers.emit import emit_arrays, is_emit
from hypercaps.io.readers.envi import envi_raster, header_of, is_header
from hypercaps.io.readers.geotiff import TIFF_MARKS, geotiff_raster
from hypercaps.io.readers.hdf5 import is_described, survey
from hypercaps.io.readers.matlab import hdf5_arrays, matlab_arrays
from hypercaps.io.readers.netcdf import CLASSIC_MARKS, classic_arrays
from hypercaps.io.readers.prisma import is_prisma, prisma_arrays
from hypercaps.io.readers.sidecars import image_of, is_metadata, with_sidecar
from hypercaps.io.readers.zarr import zarr_arrays
from hypercaps.io.readers.zarr_nodes import is_zarr

Kind = Literal[
    "matlab", "hdf5", "netcdf", "zarr", "numpy", "tiff", "envi", "product", "vector", "safetensors", "unknown"
]
P = ParamSpec("P")
T = TypeVar("T")

_READABLE = "GeoTIFF, ENVI, NetCDF, HDF5, Zarr, .mat (any version), .npy and .npz files are read"
# What the readers raise on damaged files; RuntimeError stands for "not implemented" as well.
DAMAGE = (
    OSError, ValueError, TypeError, KeyError, IndexError, EOFError, MemoryError, SystemError, AssertionError,
    AttributeError, RuntimeError, ArithmeticError, SyntaxError, struct.error, zlib.error, lzma.LZMAError,
    zipfile.BadZipFile, tokenize.TokenError, MatReadError,
)  # fmt: skip


def sniff(path: Path) -> Kind:
    """What a file is, by its first bytes; plain numbers are ENVI's if its header is beside them; a folder is Zarr's."""
    if path.is_dir():
        return "zarr" if is_zarr(path) else "unknown"
    with path.open("rb") as file:
        head = file.read(520)
    if head.startswith(b"\x89HDF\r\n\x1a\n") or head[512:520] == b"\x89HDF\r\n\x1a\n":
        return "hdf5"
    if head.startswith((b"MATLAB 5.0", b"MATLAB 7.3")) or path.suffix.lower() == ".mat":
        return "matlab"  # version 4 has no mark of its own
    if head.startswith(CLASSIC_MARKS):
        return "netcdf"
    if head.startswith(b"PK\x03\x04") and is_zarr(path):
        return "zarr"
    if head.startswith((b"\x93NUMPY", b"PK\x03\x04")):
        return "numpy"
    if head.startswith(TIFF_MARKS):
        return "tiff"
    if is_metadata(path, head):
        return "product"
    if vector_kind(path, head) is not None:
        return "vector"
    if is_header(path) or header_of(path) is not None:
        return "envi"
    # A safetensors file: the length of its JSON header, and that header.
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return "safetensors"
    return "unknown"


def split_spec(spec: str, what: str, error: type[HypercapsError]) -> tuple[Path, str | None]:
    """PATH or PATH:KEY to an existing file and a key."""
    path, key = Path(spec).expanduser(), None
    try:
        if not path.exists() and ":" in spec:
            before, _, after = spec.rpartition(":")
            if Path(before).expanduser().exists():
                path, key = Path(before).expanduser(), after
        there, is_folder = path.exists(), path.is_dir()
    except OSError as cause:  # a folder that may not be entered, a name that is too long
        raise error(f"{spec} can't be read: {(cause.strerror or str(cause)).lower()}") from None
    if is_folder and not is_zarr(path):
        raise error(f"{path} is a folder: give the file of the {what} itself")
    if not there:
        raise error(
            f"there is no file {spec!r}, and no public scene of that name: give the path of the {what}, or one of "
            f"{', '.join(catalog.names())}"
        )
    return path, key


def stored_arrays(path: Path, error: type[HypercapsError]) -> list[StoredArray]:
    with explained(path, error):
        kind = sniff(path)
        if kind == "matlab":
            return matlab_arrays(path)
        if kind == "hdf5":
            return _described_arrays(path) if is_described(path) else hdf5_arrays(path)
        if kind == "netcdf":
            return classic_arrays(path)
        if kind == "zarr":
            return zarr_arrays(path)
        if kind == "numpy":
            return numpy_arrays(path)
        if kind in ("tiff", "envi", "product"):
            raster = raster_of(path)
            shape = raster.shape if raster.shape[2] > 1 else raster.shape[:2]  # one band is a map, not a cube
            return [StoredArray("", shape, lambda: raster)]
        if kind == "vector":
            raise error(f"{path} holds polygons, lines or points: they can be labels or a mask, and nothing else")
    raise error(f"{path} is of a kind that is not read here: {_READABLE}")


def raster_of(path: Path) -> StoredRaster:
    """The raster of a GeoTIFF or an ENVI file, with what the metadata of its product says."""
    if sniff(path) == "product":
        path = image_of(path)
    raster = geotiff_raster(path) if sniff(path) == "tiff" else envi_raster(path)
    return with_sidecar(raster)


def _described_arrays(path: Path) -> list[StoredArray]:
    """The cubes of an HDF5 file that is a product known by its layout, or NetCDF-4."""
    file = survey(path)
    if is_emit(file):
        return emit_arrays(file)
    return prisma_arrays(file) if is_prisma(file) else cube_arrays(file.variables)


@contextmanager
def explained(path: Path, error: type[HypercapsError]) -> Iterator[None]:
    """What goes wrong in opening a file, in one sentence."""
    try:
        yield
    except HypercapsError as cause:
        raise cause if isinstance(cause, error) or not isinstance(cause, SceneError) else error(str(cause)) from None
    except PermissionError:
        raise error(f"{path} can't be read: permission denied") from None
    except FileNotFoundError:
        raise error(f"there is no file {path}: give the path of one") from None
    except DAMAGE as cause:
        raise damaged(path, error, cause) from cause


def damaged(path: Path, error: type[HypercapsError], cause: BaseException) -> HypercapsError:
    size = " (a folder)" if path.is_dir() else f" ({path.stat().st_size:,} bytes)" if path.is_file() else ""
    return error(
        f"{path}{size} is truncated, damaged or not what its name says "
        f"({type(cause).__name__}): a whole file was expected, get it again; {_READABLE}"
    )


def explaining(read: Callable[P, T], path: Path, error: type[HypercapsError] = SceneError) -> Callable[P, T]:
    """Damage inside a file that is read by window shows only then."""

    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except DAMAGE as cause:
            if isinstance(cause, HypercapsError):
                raise
            raise damaged(path, error, cause) from cause

    return reading


def vector_driver(path: Path) -> str | None:
    """GDAL's driver for a vector file; None for other files."""
    with explained(path, LabelsError):
        if sniff(path) != "vector":
            return None
        with path.open("rb") as file:
            return vector_kind(path, file.read(520))
