"""The structure of a file, names and sizes without pixels, to find out why it is not read as expected."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from hypercaps.data.text import printable
from hypercaps.io.detect import DetectedFile, Kind
from hypercaps.io.readers.envi import header_of, is_header
from hypercaps.io.readers.variables import Variable

_LIBRARIES = ("hypercaps", "numpy", "rasterio", "h5py", "zarr", "pyogrio", "xarray", "torch")
_LONGEST = 160  # characters of a value that are shown
_MOST_LINES = 2000
_MADE_BY_GDAL = ("DERIVED_SUBDATASETS",)  # tags that are not in the file; they name its folder
_HEADER_BYTES = 1 << 16  # of a text header that are shown


def structure_lines(file: DetectedFile) -> list[str]:
    """Groups, arrays, attributes and tags of a file, one per line."""
    lines = []
    try:
        for line in _STRUCTURES.get(file.kind, _array_lines)(file):
            lines.append(printable(line))
            if len(lines) == _MOST_LINES:
                lines.append(f"... more than {_MOST_LINES} lines")
                break
    except Exception as error:  # a file that can't be read is what this is for
        lines.append(f"the rest can't be read: {in_words(error)}")
    return lines


def file_facts(path: Path, kind: str) -> dict[str, object]:
    """Size, first bytes and neighbours of a file."""
    facts: dict[str, object] = {"name": path.name, "detected": kind}
    if path.is_file():
        with path.open("rb") as file:
            facts |= {"bytes": path.stat().st_size, "first_bytes": file.read(16).hex(" ")}
    with suppress(OSError):  # a folder that may not be listed
        neighbours = [
            other.name for other in path.parent.iterdir() if other.stem.startswith(path.stem) and other != path
        ]
        facts["beside_it"] = sorted(neighbours)[:20]
    return facts


def library_versions() -> dict[str, str]:
    """Versions of Python, the system, and the libraries that read files."""
    versions = {"python": platform.python_version(), "system": platform.platform()}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    import rasterio

    versions["GDAL"] = rasterio.__gdal_version__
    try:
        import h5py
    except ImportError:
        return versions
    return versions | {"HDF5": h5py.version.hdf5_version}


def in_words(error: BaseException) -> str:
    """An error and its causes, with the line of each that raised it."""
    lines: list[str] = []
    now: BaseException | None = error
    while now is not None and len(lines) < 6:
        trace = now.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "" if trace is None else f" [{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}]"
        lines.append(f"{type(now).__name__}: {now}{where}")
        now = now.__cause__ or now.__context__
    return " <- ".join(lines)


def _short(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray) and value.size > 6:
        ends = ", ".join(str(number) for number in (*value.ravel()[:3], "...", value.ravel()[-1]))
        return f"{value.size} values: {ends}"
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."  # also of one long word, such as WKT


# ---- formats ---------------------------------------------------------------------------------------------------------


def _array_lines(file: DetectedFile) -> Iterator[str]:
    for array in file.arrays:
        yield f"array {array.key or '(unnamed)'} {' x '.join(map(str, array.shape))}"


def _netcdf_lines(file: DetectedFile) -> Iterator[str]:
    from hypercaps.io.readers.netcdf import classic_variables

    yield from _variable_lines(classic_variables(file.path))


def _zarr_lines(file: DetectedFile) -> Iterator[str]:
    from hypercaps.io.readers.zarr import zarr_variables

    yield from _variable_lines(zarr_variables(file.path))


def _variable_lines(variables: Mapping[str, Variable]) -> Iterator[str]:
    for key, variable in variables.items():
        sizes = ", ".join(f"{dim or '?'} {length}" for dim, length in zip(variable.dims, variable.shape, strict=True))
        stored = f", chunks {variable.chunks}" if variable.chunks else ""
        yield f"/{key}  ({sizes}) {variable.dtype}{stored}"
        yield from (f"/{key}  @{name} = {_short(value)}" for name, value in sorted(variable.attrs.items()))


def _hdf5_lines(file: DetectedFile) -> Iterator[str]:
    import h5py

    from hypercaps.io.readers.hdf5 import check_survivable

    check_survivable(file.path)
    with h5py.File(file.path, "r") as opened:
        yield from _hdf5_attributes("/", opened)
        yield from _hdf5_group(opened, "")


def _hdf5_group(group: Any, prefix: str) -> Iterator[str]:
    for name in group:
        key, link = f"{prefix}/{name}", group.get(name, getlink=True)
        if type(link).__name__ != "HardLink":
            yield f"{key}: {type(link).__name__} to {_short(getattr(link, 'path', ''))}"
            continue
        item = group[name]
        if hasattr(item, "keys"):
            yield f"{key}/"
            yield from _hdf5_attributes(key, item)
            if key.count("/") <= 16:
                yield from _hdf5_group(item, key)
            continue
        if hasattr(item, "shape"):
            stored = f"chunks {item.chunks}, {item.compression or 'not compressed'}" if item.chunks else "contiguous"
            yield f"{key}  {item.shape} {item.dtype}, {stored}, fill value {_short(item.fillvalue)}"
        yield from _hdf5_attributes(key, item)


def _hdf5_attributes(key: str, item: Any) -> Iterator[str]:
    for name in sorted(item.attrs):
        stored = item.attrs.get_id(name)
        is_reference = name in ("DIMENSION_LIST", "REFERENCE_LIST")
        is_large = stored.get_storage_size() > 1 << 20
        value = "(references)" if is_reference else "(large)" if is_large else _short(item.attrs[name])
        yield f"{key}  @{name} = {value}"


def _tiff_lines(file: DetectedFile) -> Iterator[str]:
    from hypercaps.io.readers.geotiff import checked_sidecars, opened_geotiff
    from hypercaps.io.readers.tiff_check import check_tiff

    check_tiff(file.path)
    checked_sidecars(file.path)
    with opened_geotiff(file.path) as raster:
        yield f"{raster.height} rows x {raster.width} columns x {raster.count} bands"
        yield f"types {', '.join(sorted(set(raster.dtypes)))}; nodata {sorted(set(map(str, raster.nodatavals)))}"
        yield f"scales {_few(raster.scales)}; offsets {_few(raster.offsets)}"
        yield f"coordinate system {_short(raster.crs)}; transform {tuple(raster.transform)[:6]}"
        yield f"blocks {raster.block_shapes[0]}"
        yield f"interleaved by {raster.profile.get('interleave')}, {raster.profile.get('compress') or 'not compressed'}"
        for domain in ("", *(name for name in raster.tag_namespaces() if name not in _MADE_BY_GDAL)):
            for name, value in raster.tags(ns=domain or None).items():
                yield f"@{domain}{':' if domain else ''}{name} = {_short(value)}"
        for band in sorted({1, 2, raster.count}):
            if band <= raster.count:
                yield f"band {band}: {_short(raster.descriptions[band - 1])}"
                yield from (f"band {band} @{name} = {_short(value)}" for name, value in raster.tags(band).items())


def _few(values: tuple[float, ...]) -> str:
    return ", ".join(map(str, sorted(set(values))[:6]))


def _envi_lines(file: DetectedFile) -> Iterator[str]:
    header = file.path if is_header(file.path) else header_of(file.path)
    if header is not None:
        yield f"header {Path(header).name}:"
        text = Path(header).read_bytes()[:_HEADER_BYTES].decode("utf-8", "replace")
        yield from (f"  {_short(line)}" for line in text.splitlines())
    yield from _array_lines(file)


def _product_lines(file: DetectedFile) -> Iterator[str]:
    text = file.path.read_bytes()[:_HEADER_BYTES].decode("utf-8", "replace")
    yield from (f"  {_short(line)}" for line in text.splitlines())
    yield from _array_lines(file)


def _matlab_lines(file: DetectedFile) -> Iterator[str]:
    with file.path.open("rb") as opened:
        head = opened.read(520)
    yield f"header {_short(head[:116])}"
    is_hdf5 = head.startswith(b"MATLAB 7.3") or head[512:520] == b"\x89HDF\r\n\x1a\n"
    yield from _hdf5_lines(file) if is_hdf5 else _array_lines(file)


def _described_lines(file: DetectedFile) -> Iterator[str]:
    """None: all that is known of vectors and models is in the description."""
    return iter(())


_STRUCTURES: dict[Kind, Callable[[DetectedFile], Iterator[str]]] = {
    "hdf5": _hdf5_lines,
    "matlab": _matlab_lines,
    "netcdf": _netcdf_lines,
    "zarr": _zarr_lines,
    "tiff": _tiff_lines,
    "envi": _envi_lines,
    "product": _product_lines,
    "vector": _described_lines,
    "safetensors": _described_lines,
}
