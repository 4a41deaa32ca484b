"""The format of a file, detected once from its first bytes, and the arrays that its reader finds in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hypercaps.errors import ModelFileError, SceneError, did_you_mean
from hypercaps.io import catalog
from hypercaps.io.arrays import StoredArray, choose
from hypercaps.io.damage import READABLE, translate_errors
from hypercaps.io.limits import check_labels
from hypercaps.io.marks import CLASSIC_MARKS, HDF5_MARK, NUMPY_MARK, PNG_MARK, TIFF_MARKS, VRT_MARK, ZIP_MARK
from hypercaps.io.raster import StoredRaster

_TILE_SUFFIXES = (".tif", ".tiff", ".hdr")

Kind = Literal[
    "matlab", "hdf5", "netcdf", "zarr", "numpy", "tiff", "envi", "png", "product", "vector", "safetensors", "unknown"
]


@dataclass(frozen=True)
class DetectedFile:
    """A file and its format. Its arrays are listed, or its raster opened, on first use and only once."""

    path: Path
    kind: Kind
    key: str | None = None  # of one array or layer, as in PATH:KEY
    vector_driver: str | None = None  # GDAL's driver, for kind "vector"

    @cached_property
    def arrays(self) -> list[StoredArray]:
        """The arrays in the file, not read yet; a GeoTIFF or ENVI file has one, its raster."""
        with translate_errors(self.path):
            if self.kind in _ARRAY_READERS:
                return _ARRAY_READERS[self.kind](self.path)
        if self.kind == "vector":
            raise SceneError(f"{self.path} holds polygons, lines or points: they can be labels or a mask only")
        if self.path.is_file() and _begins_with(self.path, VRT_MARK):
            raise SceneError(
                f"{self.path} is a VRT, in which GDAL finds other files: name these, 'tiles/*.tif' in quotes, or make "
                f"a GeoTIFF of it, gdal_translate {self.path.name} scene.tif"
            )
        raise SceneError(f"{self.path} has a format that is not supported: {READABLE}")

    def load(self, ndim: int, what: str) -> Any:
        """The raster, or the array named by the key or the only one of ``ndim`` dimensions; ``what`` it is for."""
        chosen = choose(self.arrays, self.key, ndim, self.path, what)
        if ndim == 2 and len(chosen.shape) == 2:
            check_labels(self.path, *chosen.shape)
        with translate_errors(self.path):
            array = chosen.load()  # cubes stay on disk
            return array if ndim == 3 or isinstance(array, StoredRaster) else np.asarray(array)


def _begins_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def _raster_array(raster: StoredRaster) -> list[StoredArray]:
    shape = raster.shape if raster.shape[2] > 1 else raster.shape[:2]  # one band is a map
    return [StoredArray("", shape, lambda: raster)]


def _tiff_arrays(path: Path) -> list[StoredArray]:
    from hypercaps.io.readers.geotiff import geotiff_raster
    from hypercaps.io.readers.sidecars import with_sidecar

    return _raster_array(with_sidecar(geotiff_raster(path)))


def _envi_arrays(path: Path) -> list[StoredArray]:
    from hypercaps.io.readers.envi import envi_raster
    from hypercaps.io.readers.sidecars import with_sidecar

    return _raster_array(with_sidecar(envi_raster(path)))


def _png_arrays(path: Path) -> list[StoredArray]:
    from hypercaps.io.readers.png import png_raster

    picture = png_raster(path)
    return [StoredArray("", picture.shape[:2], lambda: picture)]


def _product_arrays(path: Path) -> list[StoredArray]:
    from hypercaps.io.readers.sidecars import image_of

    return detect_file(image_of(path)).arrays


def _hdf5_arrays(path: Path) -> list[StoredArray]:
    """The cubes of a product with a known layout or of NetCDF-4, or the arrays of plain HDF5 and MATLAB v7.3."""
    from hypercaps.io.readers.cf import cube_arrays
    from hypercaps.io.readers.emit import emit_arrays, is_emit
    from hypercaps.io.readers.hdf5 import is_described, survey
    from hypercaps.io.readers.matlab import hdf5_arrays
    from hypercaps.io.readers.prisma import is_prisma, prisma_arrays

    if not is_described(path):
        return hdf5_arrays(path)
    file = survey(path)
    if is_emit(file):
        return emit_arrays(file)
    return prisma_arrays(file) if is_prisma(file) else cube_arrays(file.variables)


def _matlab_arrays(path: Path) -> list[StoredArray]:
    from hypercaps.io.readers.matlab import matlab_arrays

    return matlab_arrays(path)


def _netcdf_arrays(path: Path) -> list[StoredArray]:
    from hypercaps.io.readers.netcdf import classic_arrays

    return classic_arrays(path)


def _numpy_arrays(path: Path) -> list[StoredArray]:
    from hypercaps.io.readers.numpy import numpy_arrays

    return numpy_arrays(path)


def _zarr_arrays(path: Path) -> list[StoredArray]:
    from hypercaps.io.readers.zarr import zarr_arrays

    return zarr_arrays(path)


# Readers, and the libraries that they load (rasterio, h5py, scipy, zarr), are imported when a file needs them.
_ARRAY_READERS = {
    "tiff": _tiff_arrays,
    "envi": _envi_arrays,
    "png": _png_arrays,
    "product": _product_arrays,
    "matlab": _matlab_arrays,
    "hdf5": _hdf5_arrays,
    "netcdf": _netcdf_arrays,
    "zarr": _zarr_arrays,
    "numpy": _numpy_arrays,
}


def _is_zarr(path: Path) -> bool:
    from hypercaps.io.readers.zarr_nodes import is_zarr

    return is_zarr(path)


def _vector_kind(path: Path, head: bytes) -> str | None:
    from hypercaps.io.labels.vector_file import vector_kind

    return vector_kind(path, head)


def detect(spec: str, what: str) -> DetectedFile:
    """The file named by PATH or PATH:KEY; ``what`` it should be, for error messages."""
    path, key = Path(spec).expanduser(), None
    try:
        if not path.exists() and ":" in spec:
            before, _, after = spec.rpartition(":")
            if Path(before).expanduser().exists():
                path, key = Path(before).expanduser(), after
        exists, is_folder = path.exists(), path.is_dir()
    except OSError as cause:  # a folder without permission, a name that is too long
        raise SceneError(f"{spec} can't be read: {(cause.strerror or str(cause)).lower()}") from None
    if is_folder and not _is_zarr(path) and _vector_kind(path, b"") is None:
        raise SceneError(f"{path} is a folder: give the file of the {what} itself{_tiles_in(path)}")
    if not exists:
        if what == "mask":
            raise SceneError(f"there is no file {spec!r}: give the path of the mask{_similar_file(path)}")
        public = catalog.names()
        raise SceneError(
            f"there is no file {spec!r}, and no public scene of that name: give the path of the {what}, or one of "
            f"{', '.join(public)}{did_you_mean(spec, public) or _similar_file(path)}"
        )
    return detect_file(path, key)


def _tiles_in(folder: Path) -> str:
    """The end of a message about a folder: how to name the tiles in it, if it has some."""
    try:
        ends = Counter(entry.suffix for entry in folder.iterdir() if entry.suffix.lower() in _TILE_SUFFIXES)
    except OSError:
        return ""
    if not ends:
        return ""
    pattern = folder / f"*{ends.most_common(1)[0][0]}"
    return f", or '{pattern}' in quotes for the tiles in it"


def _similar_file(path: Path) -> str:
    """The end of a message about a missing file: one of a similar name in the same folder, if there is one."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    return did_you_mean(path.name, names, cutoff=0.8)


def find_model(path: Path) -> Path:
    """The model file that is named itself, or by the folder of its run; refused if there is none."""
    found = path / "model.safetensors" if path.is_dir() else path
    if not found.is_file():
        hint = _similar_file(path) if found == path else ""
        raise ModelFileError(
            f"there is no model file {found}: give the folder of a finished run, or its model.safetensors{hint}"
        )
    return found


def detect_file(path: Path, key: str | None = None) -> DetectedFile:
    """Detect the format of an existing file, or of a Zarr folder or a geodatabase."""
    with translate_errors(path):
        if path.is_dir():
            driver = _vector_kind(path, b"")
            return DetectedFile(path, "vector" if driver else "zarr" if _is_zarr(path) else "unknown", key, driver)
        if path.exists() and not path.is_file():  # opening a pipe would wait until somebody writes to it
            raise SceneError(f"{path} is a pipe or a device: save its content as a file first, and give that")
        with path.open("rb") as file:
            head = file.read(520)
        kind = _kind(path, head)
        return DetectedFile(path, kind, key, _vector_kind(path, head) if kind == "vector" else None)


def _kind(path: Path, head: bytes) -> Kind:
    """The format by a file's first bytes; raw numbers are ENVI if a header is beside them."""
    if head.startswith(HDF5_MARK) or head[512:520] == HDF5_MARK:
        return "hdf5"
    if head.startswith((b"MATLAB 5.0", b"MATLAB 7.3")) or path.suffix.lower() == ".mat":
        return "matlab"  # version 4 has no signature
    if head.startswith(CLASSIC_MARKS):
        return "netcdf"
    if head.startswith(ZIP_MARK) and _is_zarr(path):
        return "zarr"
    if head.startswith(ZIP_MARK) and _vector_kind(path, head) is not None:
        return "vector"
    if head.startswith((NUMPY_MARK, ZIP_MARK)):
        return "numpy"
    if head.startswith(TIFF_MARKS):
        return "tiff"
    if head.startswith(PNG_MARK):
        return "png"
    return _kind_by_more(path, head)


def _kind_by_more(path: Path, head: bytes) -> Kind:
    """The format of a file without a mark of its own, by its text or by a header beside it."""
    from hypercaps.io.readers.envi import header_of, is_header
    from hypercaps.io.readers.sidecars import is_metadata

    if is_metadata(path, head):
        return "product"
    if _vector_kind(path, head) is not None:
        return "vector"
    if is_header(path) or header_of(path) is not None:
        return "envi"
    # A safetensors file begins with the length of its JSON header.
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return "safetensors"
    return "unknown"
