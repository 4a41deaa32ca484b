"""Read HDF5 files (NetCDF-4, products, MATLAB v7.3) from untrusted sources; nothing outside the file is read.

The HDF5 library can crash or hang on a damaged file. Every public function here therefore first lets another process
read the file's structure; a file that this process does not survive is refused.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError
from hypercaps.io.readers.hdf5_chunks import check_found, check_written, fill_is_nodata
from hypercaps.io.readers.variables import Part, Variable, check_claims

_LONGEST_ATTRIBUTE = 1 << 20  # bytes
_SECONDS = 10  # of processor time: a sound file takes a small part of one
_BYTES_PER_SECOND = 1 << 27  # one more second for so many bytes: large files have more chunks to check
_PATIENCE = 300  # seconds by the clock: the disk may be slow
# Of the many attributes of a dataset, those that mean something here; REFERENCE_LIST and others are not touched.
_KNOWN = frozenset((
    "_FillValue", "missing_value", "valid_min", "valid_max", "valid_range", "scale_factor", "add_offset", "_Unsigned",
    "units", "standard_name", "axis", "grid_mapping", "crs_wkt", "spatial_ref", "epsg_code", "grid_mapping_name",
    "GeoTransform", "flag_values", "flag_meanings", "wavelength", "wavelengths", "wavelength_units", "fwhm", "bbl",
    "CLASS", "NAME", "DIMENSION_LIST",
))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Hdf5:
    """What an HDF5 file holds."""

    path: Path
    variables: Mapping[str, Variable]  # by key, in the file's order
    attrs: Mapping[str, Any]  # of the file itself


def is_described(path: Path) -> bool:
    """Whether a file describes its arrays: NetCDF names their dimensions, products keep them in groups."""
    _check_survivable(path)
    return _is_described(path)


def survey(path: Path) -> Hdf5:
    """List all datasets of a file; refused if anything in it leads to another file."""
    _check_survivable(path)
    return _survey(path)


def top_level(path: Path) -> dict[str, Variable]:
    """Numeric datasets outside any group, by name, as MATLAB stores arrays.

    Of the attributes only the mark ``MATLAB_class`` is kept, without its value. Links and storage that lead outside the
    file are refused: they could read any file of the machine.
    """
    _check_survivable(path)
    return _top_level(path)


def _is_described(path: Path) -> bool:
    with h5py.File(path, "r") as file:
        if "_NCProperties" in file.attrs or {"HDFEOS", "sensor_band_parameters"} & set(file):
            return True
        own = [file[name] for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
        return any({"DIMENSION_LIST", "REFERENCE_LIST"} & set(item.attrs) for item in own)


def _top_level(path: Path) -> dict[str, Variable]:
    size = path.stat().st_size
    variables: dict[str, Variable] = {}
    with h5py.File(path, "r") as file:
        for key in file:
            # A soft link may lead to an external one: only what is stored right here is taken.
            if not isinstance(file.get(key, getlink=True), h5py.HardLink):
                raise SceneError(f"{path} refers elsewhere by its entry {key!r}: only what is inside it is read")
            item = file[key]
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "iufb":
                attrs = {"MATLAB_class": None} if "MATLAB_class" in item.attrs else {}
                variables[key] = _variable(path, key, item, attrs, {}, size)
    return variables


def _survey(path: Path) -> Hdf5:
    size = path.stat().st_size
    with h5py.File(path, "r") as file:
        links: dict[str, Any] = {}
        file.visititems_links(lambda name, link: links.__setitem__(name, link))
        for name, link in links.items():
            # Soft links are only followed inside: what they could lead out by is refused here as well.
            if not isinstance(link, (h5py.HardLink, h5py.SoftLink)):
                raise SceneError(f"{path} refers elsewhere by its entry {name!r}: only what is inside it is read")
        datasets = {name: item for name in links if isinstance(item := file.get(name), h5py.Dataset)}
        attrs = {name: _attributes(path, dataset, _KNOWN) for name, dataset in datasets.items()}
        scales = {_address(dataset): name for name, dataset in datasets.items() if _is_scale(attrs[name])}
        variables = {
            name: _variable(path, name, dataset, attrs[name], scales, size)
            for name, dataset in datasets.items()
            if not (_is_scale(attrs[name]) and _is_mere_dimension(attrs[name]))
        }
        return Hdf5(path, variables, _attributes(path, file, None))


def _variable(
    path: Path, key: str, dataset: h5py.Dataset, attrs: Mapping[str, Any], scales: Mapping[int, str], size: int
) -> Variable:
    if dataset.external or dataset.is_virtual:
        raise SceneError(f"{path} keeps {key!r} in another file: only what is inside it is read")
    shape = tuple(int(length) for length in dataset.shape or ())
    dims = _dimensions(dataset, attrs, key, scales, len(shape))

    def check() -> None:
        check_claims(path, key, shape, dataset_chunks, dtype.itemsize, size)
        with h5py.File(path, "r") as file:
            check_written(path, file[key], attrs)

    dtype, dataset_chunks = dataset.dtype, dataset.chunks
    native = dtype.newbyteorder("=") if dtype.kind in "iuf" else dtype
    return Variable(path, key, dims, shape, native, attrs, _taker(path, key, native, attrs), dataset_chunks, check)


def _taker(path: Path, key: str, dtype: np.dtype[Any], attrs: Mapping[str, Any]) -> Callable[[tuple[slice, ...]], Part]:
    def take(window: tuple[slice, ...]) -> Part:
        with h5py.File(path, "r") as file:
            dataset = file[key]
            stored: npt.NDArray[Any] = np.asarray(dataset[window])
            if dataset.chunks is not None and not fill_is_nodata(dataset, attrs):
                check_found(dataset, window, stored)
        return Part(stored.astype(dtype, copy=False), None)

    return take


# Attributes and dimensions


def _attributes(path: Path, item: Any, wanted: frozenset[str] | None) -> dict[str, Any]:
    """Text as str, numbers as arrays; other things are left out."""
    found: dict[str, Any] = {}
    for name in item.attrs:
        if wanted is not None and name not in wanted:
            continue
        stored = item.attrs.get_id(name)
        if math.prod(stored.shape or ()) * stored.dtype.itemsize > _LONGEST_ATTRIBUTE:
            raise SceneError(f"{path} has an attribute {name!r} of over {_LONGEST_ATTRIBUTE >> 20} MB: get it again")
        if stored.dtype.kind in "iufb":
            found[name] = np.asarray(item.attrs[name])
        elif stored.dtype.kind == "S" or h5py.check_string_dtype(stored.dtype) is not None:
            found[name] = _text(item.attrs[name])
        elif name == "DIMENSION_LIST":
            found[name] = item.attrs[name]
    return found


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return " ".join(_text(one) for one in value.ravel())
    return value.decode("utf-8", "replace").rstrip("\0") if isinstance(value, bytes) else str(value)


def _address(item: Any) -> int:
    return int(h5py.h5o.get_info(item.id).addr)


def _is_scale(attrs: Mapping[str, Any]) -> bool:
    return attrs.get("CLASS") == "DIMENSION_SCALE"


def _is_mere_dimension(attrs: Mapping[str, Any]) -> bool:
    """NetCDF keeps a dimension without coordinates as a dataset that is never written."""
    name = attrs.get("NAME")
    return isinstance(name, str) and name.startswith("This is a netCDF dimension but not a netCDF variable")


def _dimensions(
    dataset: h5py.Dataset, attrs: Mapping[str, Any], key: str, scales: Mapping[int, str], ndim: int
) -> tuple[str, ...]:
    """Names of the axes. h5py's own ``dims`` are not used: a damaged file ends the whole program there."""
    lists = attrs.get("DIMENSION_LIST", ())
    if len(lists) == ndim:
        keys = [scales.get(_address(dataset.file[refs[0]]), "") if len(refs) else "" for refs in lists]
        return tuple(name.rpartition("/")[2] for name in keys)
    if ndim == 1 and _is_scale(attrs):
        return (key.rpartition("/")[2],)
    return ("",) * ndim


# The trial in another process

_survived: set[tuple[str, int, int, int]] = set()  # path, inode, size and time of files that passed


def _check_survivable(path: Path) -> None:
    """Refuse a file that crashes the HDF5 library or keeps it busy for ever; each file is tried once."""
    about = path.stat()
    mark = (str(path.absolute()), about.st_ino, about.st_size, about.st_mtime_ns)
    if mark in _survived:
        return
    if not _is_survived(path):
        raise SceneError(f"{path} ({about.st_size:,} bytes) is damaged: HDF5 itself breaks on it; get it again")
    _survived.add(mark)


def _is_survived(path: Path) -> bool:
    """Whether a process that lists and touches all that is read of the file ends regularly and in time."""
    seconds = _SECONDS + path.stat().st_size // _BYTES_PER_SECOND
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import look; look(sys.argv[1], {seconds})"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, os.fspath(path.absolute())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=_PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    except OSError:  # no Python to start: the file is then opened without this check
        return True
    return done.returncode == 0  # look() swallows Python errors, so anything else is a crash or a check that never ran


def look(path: str, seconds: int) -> None:
    """Touch everything in a file that will be read later, within some seconds of processor time.

    Python errors are ignored here: they come again, and are explained, when the file itself is opened.
    """
    with suppress(ImportError, ValueError, OSError):
        import resource  # missing on Windows

        end = int(time.process_time()) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (end, end))
    with suppress(Exception):
        file = Path(path)
        variables = _survey(file).variables if _is_described(file) else _top_level(file)
        for variable in variables.values():
            if variable.dtype.kind in "iufb" and min(variable.shape, default=0) > 0:
                _touch(variable)


def _touch(variable: Variable) -> None:
    try:
        variable.check()
        if len(variable.shape) < 2:
            variable.all()
        else:
            variable.take(tuple(slice(0, 1) for _ in variable.shape))
            variable.take(tuple(slice(length - 1, length) for length in variable.shape))
    except Exception:
        return
