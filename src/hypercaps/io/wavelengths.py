"""Wavelengths of a scene from several sources: the file's own take precedence over a sidecar's and the user's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.options import GivenWavelengths
from hypercaps.io.paths import text_lines
from hypercaps.io.raster import Floats, StoredRaster, nm_per_unit

_SAME = 0.05  # nm: a smaller difference comes from rounding
_NEAR = 1.0  # nm: bands closer than this share their widths


class BandInfo(NamedTuple):
    """Centre wavelengths and widths of bands, from one source."""

    wavelengths: Floats  # (bands,) nm
    fwhm: Floats | None = None  # (bands,) nm


def merge_bands(*sources: BandInfo | None) -> BandInfo | None:
    """The wavelengths of the first source that has any, with its widths or those of a later source for these bands."""
    usable = [source for source in sources if source is not None]
    if not usable:
        return None
    waves = usable[0].wavelengths
    widths = (source.fwhm for source in usable if np.abs(source.wavelengths - waves).max() < _NEAR)
    return BandInfo(waves, next((fwhm for fwhm in widths if fwhm is not None), None))


def with_bands(raster: StoredRaster, other: BandInfo) -> StoredRaster:
    """The raster, its missing wavelengths or widths filled in from ``other``."""
    own = None if raster.wavelengths is None else BandInfo(raster.wavelengths, raster.fwhm)
    info = merge_bands(own, other) or other
    return replace(raster, wavelengths=info.wavelengths, fwhm=info.fwhm)


def with_given(raster: StoredRaster, given: GivenWavelengths | None) -> StoredRaster:
    """The raster with the user's wavelengths; its own are kept, with a warning where they differ."""
    if given is None:
        return raster
    info, source = given_wavelengths(given), given if isinstance(given, str | Path) else "the array of wavelengths"
    bands = raster.shape[2]
    if info.wavelengths.size != bands:
        raise SceneError(
            f"{source} holds {info.wavelengths.size} wavelengths but {raster.path} has {bands} bands: give one for "
            "each band, bad ones included"
        )
    own = (raster.wavelengths, raster.fwhm)
    for what, stored, other in zip(("wavelengths", "band widths"), own, info, strict=True):
        if stored is not None and other is not None and (off := np.abs(stored - other).max()) >= _SAME:
            warn_data(
                f"{raster.path.name} has {what} that differ from those of {source} by up to {off:.4g} nm: "
                "its own are kept"
            )
    return with_bands(raster, info)


def given_wavelengths(given: GivenWavelengths) -> BandInfo:
    """Wavelengths, and band widths from a second column, from a file or an array, in nm or micrometres."""
    if isinstance(given, str | Path):
        path = Path(given).expanduser()
        table, source = _table(path), str(path)
    else:
        source = "the array of wavelengths"
        try:
            table = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise SceneError(f"{source} is not numeric: numbers in nm or micrometres are expected") from None
        table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[1] not in (1, 2) or not table.size:
        raise SceneError(
            f"{source} has shape {table.shape}: one wavelength for each band is expected, and in a second "
            "column its width if known"
        )
    if not (np.isfinite(table).all() and (table > 0).all()):
        line = int(np.flatnonzero(~(np.isfinite(table) & (table > 0)).all(axis=1))[0]) + 1
        raise SceneError(
            f"{source} gives {table[line - 1].tolist()} for band {line}: wavelengths and widths above 0 are expected, "
            "in nm or micrometres"
        )
    unit = nm_per_unit(None, table[:, 0], Path(source)) or 1.0
    return BandInfo(table[:, 0] * unit, table[:, 1] * unit if table.shape[1] == 2 else None)


def _table(path: Path) -> Floats:
    """The one or two columns of a text file; the first line may be a header."""
    lines = text_lines(path, "wavelength")
    rows = [(number, re.split(r"\s*[,;\t]\s*|\s+", line)) for number, line in lines.items()]
    if rows and not any(_is_number(word) for word in rows[0][1]):
        rows = rows[1:]  # a header
    if not rows:
        raise SceneError(f"{path} holds no wavelengths: one per line is expected")
    for number, words in rows:
        if len(words) != len(rows[0][1]) or len(words) > 2 or not all(_is_number(word) for word in words):
            raise SceneError(
                f"{path} has {' '.join(words)[:40]!r} in line {number}: a wavelength is expected, or a wavelength and "
                "the band's width in every line"
            )
    return np.array([[float(word) for word in words] for _, words in rows])


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
