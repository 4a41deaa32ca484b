"""ENVI: a text header and a file of raw numbers beside it.

The header is not read by GDAL, which ignores some fields (bad bands, a missing byte order) and reads a truncated file
as zeros.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hypercaps.data.colors import Rgb
from hypercaps.errors import SceneError, warn_data
from hypercaps.io.raster import Floats, StoredRaster, nm_per_unit
from hypercaps.io.readers.envi_map import georeference
from hypercaps.io.readers.flat_binary import window_taker
from hypercaps.io.wavelengths import BandInfo

Header = Mapping[str, str]

_TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = (6, 9)
# Axes of the file as positions in (rows, columns, bands), slowest first.
_LAYOUTS = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}
DATA_SUFFIXES = ("", ".img", ".dat", ".raw", ".bin", ".bsq", ".bil", ".bip", ".cube", ".envi")
_MAX_INT = 1 << 62
_MAX_HEADER_BYTES = 1 << 24  # the numbers of thousands of bands take less than one million


def is_header(path: Path) -> bool:
    """Whether the first line of a file is the word ENVI."""
    with path.open("rb") as file:
        return re.match(rb"(\xef\xbb\xbf)?ENVI[ \t]*[\r\n]", file.read(64)) is not None


def header_of(data: Path) -> Path | None:
    """The header of a data file: X.img.hdr or X.hdr for X.img."""
    for name in (data.name + ".hdr", data.name + ".HDR", data.stem + ".hdr", data.stem + ".HDR"):
        header = data.with_name(name)
        if header != data and header.is_file() and is_header(header):
            return header
    return None


def _data_of(header: Path) -> Path:
    """The data file of a header: X.img for X.img.hdr; for X.hdr the file X with a usual extension."""
    if header.suffix.lower() != ".hdr":
        raise SceneError(f"{header} is an ENVI header whose name does not end in .hdr: name its data file instead")
    stem = header.stem
    if "." in stem and header.with_name(stem).is_file():
        return header.with_name(stem)
    same_stem = [path for path in sorted(header.parent.iterdir()) if path.stem == stem and path.is_file()]
    candidates = [path for path in same_stem if path.suffix.lower() in DATA_SUFFIXES]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(path.name for path in candidates)
        raise SceneError(f"{header} could belong to {names}: name the data file instead of the header")
    raise SceneError(f"there is no data file beside the ENVI header {header}: {stem}.img, for example, is expected")


def envi_raster(path: Path) -> StoredRaster:
    """The raster of a header or a data file, which are checked against each other."""
    header_path = path if is_header(path) else header_of(path)
    if header_path is None:
        raise SceneError(f"{path} has no ENVI header beside it: {path.name}.hdr is expected")
    data = _data_of(path) if header_path == path else path
    header = read_header(header_path)
    samples, lines, bands = (_integer(header, key, header_path, least=1) for key in ("samples", "lines", "bands"))
    offset = _integer(header, "header offset", header_path, default=0)
    dtype, interleave = _number_type(header, header_path), header.get("interleave", "").strip().lower()
    if interleave not in _LAYOUTS:
        raise SceneError(f"{header_path} gives {interleave!r} as interleave: bsq, bil or bip is expected")
    if header.get("file compression", "0").strip() not in ("", "0"):
        raise SceneError(f"{data} is compressed, which is not supported: save it without compression")
    needed, size = offset + samples * lines * bands * dtype.itemsize, data.stat().st_size
    if size < needed:
        raise SceneError(
            f"{data} has {size:,} bytes but its header {header_path.name} describes {needed:,} ({lines} lines x "
            f"{samples} samples x {bands} bands of {dtype.itemsize} bytes after {offset:,}): get the whole file again"
        )
    if size > needed:  # perhaps the header of another file
        warn_data(f"{data.name} has {size - needed:,} bytes more than its header {header_path.name} describes")
    waves, fwhm = band_info(header, header_path, bands) or (None, None)
    crs, transform = georeference(header, header_path)
    names, colors = _classes(header, header_path)
    good = number_list(header, "bbl", header_path, bands)
    factor = reflectance_factor(header, header_path)
    return StoredRaster(
        data,
        (lines, samples, bands),
        dtype.newbyteorder("="),
        window_taker(data, dtype, offset, (lines, samples, bands), _LAYOUTS[interleave]),
        wavelengths=waves,
        fwhm=fwhm,
        good=None if good is None else good != 0,
        nodata=(_number(header, "data ignore value", header_path),) * bands,
        scale=None if factor is None or factor == 1 else np.full(bands, 1 / factor),
        crs=crs,
        transform=transform,
        names=names,
        colors=colors,
    )


def read_header(path: Path) -> Header:
    """The fields of a header: names in lower case, values as text with their braces."""
    if path.stat().st_size > _MAX_HEADER_BYTES:
        raise SceneError(f"{path} has {path.stat().st_size:,} bytes: that is too long for an ENVI header")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    fields = {}
    lines = iter(re.split(r"\r\n|\r|\n", text)[1:])
    for line in lines:
        key, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        if not equals:
            warn_data(f"{path.name} has a line without a field, which is ignored: {line.strip()[:40]!r}")
            continue
        parts = [value.strip()]
        if parts[0].startswith("{"):
            while "}" not in parts[-1]:
                following = next(lines, None)
                if following is None:
                    raise SceneError(f"{path} has no closing brace after {key.strip()!r}: get the whole header again")
                if not following.lstrip().startswith(";"):
                    parts.append(following.strip())
        fields[" ".join(key.lower().split())] = "\n".join(parts)
    return fields


def _items(value: str) -> list[str]:
    """{a, b, c} -> [a, b, c]"""
    inside = value.strip().removeprefix("{").partition("}")[0]
    return [item.strip() for item in inside.split(",") if item.strip()]


def _number_type(header: Header, path: Path) -> np.dtype[Any]:
    code = _integer(header, "data type", path)
    if code in _COMPLEX:
        raise SceneError(f"{path} describes complex numbers (data type {code}): a cube of real numbers is expected")
    if code not in _TYPES:
        raise SceneError(f"{path} gives {code} as data type: one of {', '.join(map(str, _TYPES))} is expected")
    dtype = np.dtype(_TYPES[code])
    if "byte order" not in header and dtype.itemsize > 1:
        warn_data(f"{path.name} does not give its byte order: little-endian is assumed")
    order = _integer(header, "byte order", path, default=0)
    if order not in (0, 1):
        raise SceneError(f"{path} gives {order} as byte order: 0 (little-endian) or 1 (big-endian) is expected")
    return dtype.newbyteorder(">" if order else "<")


def band_info(header: Header, path: Path, bands: int) -> BandInfo | None:
    """Wavelengths and band widths; widths without wavelengths are useless."""
    waves, fwhm = number_list(header, "wavelength", path, bands), number_list(header, "fwhm", path, bands)
    unit = None if waves is None else nm_per_unit(header.get("wavelength units"), waves, path)
    if waves is None or unit is None:
        return None
    return BandInfo(waves * unit, None if fwhm is None else fwhm * unit)


def reflectance_factor(header: Header, path: Path) -> float | None:
    factor = _number(header, "reflectance scale factor", path)
    if factor is not None and not 1e-30 < factor < 1e30:
        raise SceneError(f"{path} gives {factor:g} as reflectance scale factor: a number above 0 is expected")
    return factor


def _classes(header: Header, path: Path) -> tuple[dict[int, str], dict[int, Rgb]]:
    names = dict(enumerate(_items(header.get("class names", ""))))
    lookup = number_list(header, "class lookup", path, None)
    if lookup is None:
        return names, {}
    if lookup.size % 3 or not ((lookup >= 0) & (lookup <= 255)).all():
        raise SceneError(f"{path} has a class lookup that is not three numbers from 0 to 255 per class: correct it")
    return names, {label: (int(r), int(g), int(b)) for label, (r, g, b) in enumerate(lookup.reshape(-1, 3))}


def _integer(header: Header, key: str, path: Path, *, least: int = 0, default: int | None = None) -> int:
    text = header.get(key)
    if text is None and default is not None:
        return default
    if text is None:
        raise SceneError(f"{path} lacks {key!r}, which every ENVI header must have: add it or get the header again")
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not least <= number < _MAX_INT:
        raise SceneError(f"{path} gives {text[:40]!r} as {key!r}: an integer of at least {least} is expected")
    return number


def _number(header: Header, key: str, path: Path) -> float | None:
    """One number; integers stay integers, so that a 64-bit nodata is compared exactly."""
    text = header.get(key)
    if text is None:
        return None
    text = "".join(_items(text)) if text.startswith("{") else text
    try:
        return int(text) if re.fullmatch(r"\s*[+-]?\d{1,20}\s*", text) else float(text)
    except ValueError:
        raise SceneError(f"{path} gives {text[:40]!r} as {key!r}: a number is expected") from None


def number_list(header: Header, key: str, path: Path, length: int | None) -> Floats | None:
    """Numbers in braces; ``length`` of them, unless it is None."""
    if key not in header:
        return None
    try:
        numbers = np.array([float(item) for item in _items(header[key])])
    except ValueError:
        raise SceneError(f"{path} has a value in {key!r} that is no number: numbers in braces are expected") from None
    if not np.isfinite(numbers).all():
        raise SceneError(f"{path} has NaN or infinity in {key!r}: finite numbers are expected")
    if length is not None and numbers.size != length:
        raise SceneError(f"{path} gives {numbers.size} numbers as {key!r} for {length} bands: give one for each band")
    return numbers
