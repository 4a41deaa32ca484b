"""open_scene and open_labels: a name of the catalogue or a path, decided by the file's content."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.io.matlab import MatReadError

from hypercaps.errors import HypercapsError, LabelsError, SceneError, SplitError
from hypercaps.io import catalog
from hypercaps.io.arrays import StoredArray, choose, numpy_arrays
from hypercaps.io.cf import cube_arrays
from hypercaps.io.emit import emit_arrays, is_emit
from hypercaps.io.envi import envi_raster, header_of, is_header
from hypercaps.io.hdf5 import is_described, survey
from hypercaps.io.matlab import hdf5_arrays, matlab_arrays
from hypercaps.io.netcdf import CLASSIC_MARKS, classic_arrays
from hypercaps.io.prisma import is_prisma, prisma_arrays
from hypercaps.io.raster import TIFF_MARKS, geotiff_raster
from hypercaps.io.regrid import labels_on_grid
from hypercaps.io.stored import StoredRaster, labels_from, scene_from
from hypercaps.io.zarrnodes import is_zarr
from hypercaps.io.zarrstore import zarr_arrays
from hypercaps.scene import Labels, Legend, PixelReader, Pixels, Scene
from hypercaps.splits import Split

Kind = Literal["matlab", "hdf5", "netcdf", "zarr", "numpy", "tiff", "envi", "safetensors", "unknown"]

_READABLE = "GeoTIFF, ENVI, NetCDF, HDF5, Zarr, .mat (any version), .npy and .npz files are read"
# What the readers raise on damaged files; RuntimeError stands for "not implemented" as well.
_DAMAGE = (
    OSError, ValueError, TypeError, KeyError, IndexError, EOFError, MemoryError, SystemError, AssertionError,
    AttributeError, RuntimeError, ArithmeticError, SyntaxError, struct.error, zlib.error, lzma.LZMAError,
    zipfile.BadZipFile, tokenize.TokenError, MatReadError,
)  # fmt: skip


def open_scene(name_or_path: str | Path, *, progress: catalog.ProgressMaker | None = None) -> Scene:
    """A scene by catalogue name, by path, or by PATH:KEY for one array of several."""
    spec = str(name_or_path)
    if spec in catalog.names():
        entry = catalog.get_scene(spec)
        path, key = entry.get("cube", progress)
        waves = None if entry.wavelengths is None else np.array(entry.wavelengths)
        return _scene_from(path, key, name=spec, wavelengths=waves)
    path, key = split_spec(spec, "scene", SceneError)
    return _scene_from(path, key, name=path.stem)


def open_labels(
    name_or_path: str | Path, *, scene: Scene | None = None, progress: catalog.ProgressMaker | None = None
) -> Labels:
    """Labels by catalogue name, by path, or by PATH:KEY.

    A label raster that lies on another grid than ``scene`` is brought onto it by nearest neighbour.
    """
    spec = str(name_or_path)
    if spec in catalog.names():
        entry = catalog.get_scene(spec)
        path, key = entry.get("labels", progress)
        return _labels_from(path, key, name=spec, legend=entry.legend)
    path, key = split_spec(spec, "labels", LabelsError)
    return _labels_from(path, key, name=path.stem, legend=None, scene=scene)


def open_split(path: str | Path, labels: Labels, *, patch: int = 7) -> Split:
    """A split.npz: flat pixel indices ``train``, ``val`` and ``test``, checked against the labels."""
    path = Path(path).expanduser()
    arrays = {array.key: array for array in _stored(path, SplitError)}
    missing = [key for key in ("train", "val", "test") if key not in arrays]
    if missing:
        raise SplitError(
            f"{path} is not a split: it lacks {', '.join(missing)}; an .npz with the flat pixel indices train, val "
            "and test is expected, as a run's split.npz"
        )
    train, val, test = (arrays[key].load() for key in ("train", "val", "test"))
    how = {"kind": "file", "file": path.name}
    return Split.from_indices(labels, train, val, test, patch=patch, how=how)


def list_arrays(path: Path) -> list[StoredArray]:
    """The arrays in a file, unread."""
    return _stored(path, SceneError)


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


def _stored(path: Path, error: type[HypercapsError]) -> list[StoredArray]:
    with _explained(path, error):
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
        if kind in ("tiff", "envi"):
            raster = geotiff_raster(path) if kind == "tiff" else envi_raster(path)
            shape = raster.shape if raster.shape[2] > 1 else raster.shape[:2]  # one band is a map, not a cube
            return [StoredArray("", shape, lambda: raster)]
    raise error(f"{path} is of a kind that is not read here: {_READABLE}")


def _described_arrays(path: Path) -> list[StoredArray]:
    """The cubes of an HDF5 file that is a product known by its layout, or NetCDF-4."""
    file = survey(path)
    if is_emit(file):
        return emit_arrays(file)
    return prisma_arrays(file) if is_prisma(file) else cube_arrays(file.variables)


@contextmanager
def _explained(path: Path, error: type[HypercapsError]) -> Iterator[None]:
    """What goes wrong in opening a file, in one sentence."""
    try:
        yield
    except HypercapsError as cause:
        raise cause if isinstance(cause, error) or not isinstance(cause, SceneError) else error(str(cause)) from None
    except PermissionError:
        raise error(f"{path} can't be read: permission denied") from None
    except FileNotFoundError:
        raise error(f"there is no file {path}: give the path of one") from None
    except _DAMAGE as cause:
        raise _damaged(path, error, cause) from cause


def _damaged(path: Path, error: type[HypercapsError], cause: BaseException) -> HypercapsError:
    size = "a folder" if path.is_dir() else f"{path.stat().st_size:,} bytes"
    return error(
        f"{path} ({size}) is truncated, damaged or not what its name says "
        f"({type(cause).__name__}): a whole file was expected, get it again; {_READABLE}"
    )


def _load(path: Path, key: str | None, ndim: int, what: str, error: type[HypercapsError]) -> Any:
    chosen = choose(_stored(path, error), key, ndim, path, what, error)
    with _explained(path, error):
        array = chosen.load()
        in_file = ndim == 3 or isinstance(array, StoredRaster)  # a cube may stay on disk
        return array if in_file else np.asarray(array)


def _scene_from(path: Path, key: str | None, *, name: str, wavelengths: npt.NDArray[np.float64] | None = None) -> Scene:
    cube = _load(path, key, 3, "scene", SceneError)
    if isinstance(cube, StoredRaster):
        with _explained(path, SceneError):
            scene = scene_from(cube)
        return replace(scene, reader=_explaining(scene.reader, path))
    scene = Scene.from_array(cube, name=name, wavelengths=wavelengths)
    return replace(scene, reader=_explaining(scene.reader, path))


def _explaining(reader: PixelReader, path: Path) -> PixelReader:
    """Damage inside a file that is read by window shows only then."""

    def read(rows: slice, cols: slice) -> Pixels:
        try:
            return reader(rows, cols)
        except _DAMAGE as cause:
            if isinstance(cause, HypercapsError):
                raise
            raise _damaged(path, SceneError, cause) from cause

    return read


def _labels_from(
    path: Path, key: str | None, *, name: str, legend: Legend | None, scene: Scene | None = None
) -> Labels:
    loaded = _load(path, key, 2, "labels", LabelsError)
    if not isinstance(loaded, StoredRaster):
        return Labels.from_array(loaded, legend, name=name)
    with _explained(path, LabelsError):
        labels = labels_from(loaded)
        return labels if scene is None else labels_on_grid(labels, loaded, scene)
