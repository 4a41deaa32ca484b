"""Read HDF5 files (NetCDF-4, products, MATLAB v7.3) from untrusted sources; nothing outside the file is read.

The HDF5 library can crash or hang on a damaged file. Every public function therefore first lets another process read
the file's structure, and refuses a file on which that process fails.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hypercaps.errors import SceneError
from hypercaps.io.readers.hdf5_chunks import check_found, check_inflated, check_written, fill_is_nodata, warn_of_rest
from hypercaps.io.readers.variables import Attribute, Attributes, Part, Slices, Variable

_MAX_ATTRIBUTE_BYTES = 1 << 20
_MAX_DEPTH = 16  # groups within groups
_SECONDS = 10  # of processor time for the trial: a sound file takes a fraction of one
_BYTES_PER_SECOND = 1 << 27  # one more second for so many bytes: large files have more chunks to check
_TIMEOUT = 300  # seconds of wall-clock time: the disk may be slow
# Only these attributes of a dataset are read; REFERENCE_LIST and others are never touched.
_ATTRIBUTES = frozenset((
    "_FillValue", "missing_value", "valid_min", "valid_max", "valid_range", "scale_factor", "add_offset", "_Unsigned",
    "units", "standard_name", "axis", "grid_mapping", "crs_wkt", "spatial_ref", "epsg_code", "grid_mapping_name",
    "GeoTransform", "coordinates", "flag_values", "flag_meanings", "flag_colors", "wavelength", "wavelengths",
    "wavelength_units", "fwhm", "bbl", "CLASS", "NAME", "DIMENSION_LIST",
))  # fmt: skip
# NetCDF stores a dimension without coordinates as a dataset with this name, which is never written.
_MERE_DIMENSION = "This is a netCDF dimension but not a netCDF variable"


@dataclass(frozen=True, eq=False)
class Hdf5:
    path: Path
    variables: Mapping[str, Variable]  # by key, in the file's order
    attrs: Attributes  # of the file itself


@dataclass(frozen=True, eq=False)
class _Hdf5Variable(Variable):
    file_bytes: int
    inflated: set[tuple[int, ...]] = field(default_factory=set)  # positions of chunks that were checked

    def check(self) -> None:
        self.check_size(self.file_bytes)
        with h5py.File(self.path, "r") as file:
            check_written(self.path, file[self.key], self.attrs)

    def take(self, window: Slices) -> Part:
        with h5py.File(self.path, "r") as file:
            dataset = file[self.key]
            if dataset.chunks is not None:
                check_inflated(self.path, dataset, window, self.inflated)
            stored = np.asarray(dataset[window])
            if dataset.chunks is not None and not fill_is_nodata(dataset, self.attrs):
                check_found(dataset, window, stored)
        return Part(stored.astype(self.dtype, copy=False), None)


def is_described(path: Path) -> bool:
    """Whether a file describes its arrays: NetCDF names their dimensions, products keep them in groups."""
    check_survivable(path)
    with h5py.File(path, "r") as file:
        if "_NCProperties" in file.attrs or {"HDFEOS", "sensor_band_parameters"} & set(file):
            return True
        own = [file[name] for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
        return any({"DIMENSION_LIST", "REFERENCE_LIST"} & set(item.attrs) for item in own)


def plain_arrays(path: Path) -> dict[str, Variable]:
    """Numeric datasets outside any group, by name, as MATLAB stores arrays; in a file that has none, those in groups.

    Of the attributes only the mark ``MATLAB_class`` is kept, without its value. Soft links are refused as well: they
    may lead to an external link in a group that is not looked at.
    """
    check_survivable(path)
    with h5py.File(path, "r") as file:
        warn_of_rest(path)
        own = {key: file.get(key, getlink=True) for key in file}
        return _numeric(path, file, own) or _numeric(path, file, _links(path, file))


def _numeric(path: Path, file: h5py.File, links: Mapping[str, object]) -> dict[str, Variable]:
    """The numeric datasets among these links, by name; MATLAB keeps what its cells refer to in groups like #refs#."""
    variables = {}
    for key, link in links.items():
        if not isinstance(link, h5py.HardLink):
            raise _refers_elsewhere(path, key)
        item = file[key]
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "iufb" and not key.startswith("#"):
            attrs: Attributes = {"MATLAB_class": None} if "MATLAB_class" in item.attrs else {}
            variables[key] = _variable(path, key, item, attrs, {})
    return variables


def survey(path: Path) -> Hdf5:
    """List all datasets of a file; refused if anything in it leads to another file."""
    check_survivable(path)
    with h5py.File(path, "r") as file:
        warn_of_rest(path)
        links = _links(path, file)
        for name, link in links.items():
            # Soft links are resolved inside the file: any external link they could lead to is refused here too.
            if not isinstance(link, (h5py.HardLink, h5py.SoftLink)):
                raise _refers_elsewhere(path, name)
        datasets = {name: item for name in links if isinstance(item := file.get(name), h5py.Dataset)}
        attrs = {name: _attributes(path, dataset, _ATTRIBUTES) for name, dataset in datasets.items()}
        scales = {_address(dataset): name for name, dataset in datasets.items() if _is_scale(attrs[name])}
        variables = {
            name: _variable(path, name, dataset, attrs[name], scales)
            for name, dataset in datasets.items()
            if not (_is_scale(attrs[name]) and str(attrs[name].get("NAME")).startswith(_MERE_DIMENSION))
        }
        return Hdf5(path, variables, _attributes(path, file, set(file.attrs)))


def _links(path: Path, file: h5py.File) -> dict[str, object]:
    """All links of a file by their names, those of a group that has several names once."""
    links: dict[str, object] = {}
    seen = set()

    def visit(group: h5py.Group, prefix: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise SceneError(f"{path} has groups within groups more than {_MAX_DEPTH} deep: fewer are expected")
        seen.add(_address(group))
        for name in group:
            links[prefix + name] = link = group.get(name, getlink=True)
            if isinstance(link, h5py.HardLink) and group.get(name, getclass=True) is h5py.Group:
                inner = group[name]
                if _address(inner) not in seen:
                    visit(inner, f"{prefix}{name}/", depth + 1)

    visit(file, "", 0)
    return links


def _refers_elsewhere(path: Path, key: str) -> SceneError:
    return SceneError(f"{path} refers elsewhere by its entry {key!r}: only data inside the file is read")


def _variable(path: Path, key: str, dataset: h5py.Dataset, attrs: Attributes, scales: Mapping[int, str]) -> Variable:
    if dataset.external or dataset.is_virtual:
        raise SceneError(f"{path} keeps {key!r} in another file: only data inside the file is read")
    stored = dataset.id.get_type()
    if dataset.dtype.kind == "f" and not stored.equal(h5py.h5t.py_create(dataset.dtype)):
        raise SceneError(f"{path} has numbers of an unusual type in {key!r}: it is damaged, get it again")
    shape = tuple(int(length) for length in dataset.shape or ())
    # h5py's own dims are not used: they crash on some damaged files.
    dims, lists = ("",) * len(shape), attrs.get("DIMENSION_LIST")
    if isinstance(lists, np.ndarray) and len(lists) == len(shape):
        keys = [scales.get(_address(dataset.file[refs[0]]), "") if len(refs) else "" for refs in lists]
        dims = tuple(name.rpartition("/")[2] for name in keys)
    elif len(shape) == 1 and _is_scale(attrs):
        dims = (key.rpartition("/")[2],)
    dtype = dataset.dtype.newbyteorder("=")
    return _Hdf5Variable(path, key, dims, shape, dtype, attrs, dataset.chunks, path.stat().st_size)


def _attributes(path: Path, item: Any, names: Set[str]) -> dict[str, Attribute]:
    """Text as str, numbers as arrays; attributes of other types are left out."""
    attrs: dict[str, Attribute] = {}
    for name in sorted(names & set(item.attrs)):
        stored = item.attrs.get_id(name)
        if math.prod(stored.shape or ()) * stored.dtype.itemsize > _MAX_ATTRIBUTE_BYTES:
            raise SceneError(f"{path} has an attribute {name!r} of over {_MAX_ATTRIBUTE_BYTES >> 20} MB: get it again")
        if stored.dtype.kind == "S" or h5py.check_string_dtype(stored.dtype) is not None:
            attrs[name] = " ".join(map(_text, np.ravel(item.attrs[name])))
        elif stored.dtype.kind in "iufb" or name == "DIMENSION_LIST":
            attrs[name] = np.asarray(item.attrs[name])
    return attrs


def _text(value: object) -> str:
    return value.decode("utf-8", "replace").rstrip("\0") if isinstance(value, bytes) else str(value)


def _address(item: Any) -> int:
    return int(h5py.h5o.get_info(item.id).addr)


def _is_scale(attrs: Attributes) -> bool:
    return attrs.get("CLASS") == "DIMENSION_SCALE"


_survived: set[tuple[str, int, int, int]] = set()  # path, inode, size and modification time of files that passed


def _mark(path: Path) -> tuple[str, int, int, int]:
    about = path.stat()
    return str(path.absolute()), about.st_ino, about.st_size, about.st_mtime_ns


def check_survivable(path: Path) -> None:
    """Refuse a file that crashes the HDF5 library or makes it loop forever; each file is tried once."""
    if (mark := _mark(path)) in _survived:
        return
    if not _is_survived(path):
        raise SceneError(f"{path} ({mark[2]:,} bytes) is damaged: HDF5 itself breaks on it; get it again")
    _survived.add(mark)


def _is_survived(path: Path) -> bool:
    """Whether a process that reads the file's structure ends regularly and in time."""
    seconds = _SECONDS + path.stat().st_size // _BYTES_PER_SECOND
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import try_reading; try_reading(*sys.argv[1:])"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, os.fspath(path.absolute()), str(seconds)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    except OSError:  # Python can't be started: the file is then opened without this check
        return True
    return done.returncode == 0  # Python errors are caught in try_reading: else it crashed, or never ran


def try_reading(name: str, seconds: str) -> None:
    """Read everything of a file that will be read later, within some seconds of processor time.

    Python errors are ignored: they are raised again, and explained, when the file itself is opened.
    """
    with suppress(ImportError, ValueError, OSError):
        import resource  # missing on Windows

        end = int(time.process_time()) + int(seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (end, end))
    with suppress(Exception):
        path = Path(name)
        _survived.add(_mark(path))  # this process is the trial
        variables = survey(path).variables if is_described(path) else plain_arrays(path)
        for variable in variables.values():
            if variable.dtype.kind in "iufb" and min(variable.shape, default=0) > 0:
                with suppress(Exception):
                    _try_reading_variable(variable)


def _try_reading_variable(variable: Variable) -> None:
    if len(variable.shape) < 2:
        variable.read_all()
    else:
        variable.check()
        variable.take(tuple(slice(0, 1) for _ in variable.shape))
        variable.take(tuple(slice(length - 1, length) for length in variable.shape))
