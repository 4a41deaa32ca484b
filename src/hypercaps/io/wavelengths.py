"""Which wavelengths a scene has where several places speak of them: the file's own come first, the user's last."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError, warn_data
from hypercaps.io.raster import Floats, StoredRaster, nm_per_unit

_LONGEST = 1 << 22  # bytes of a file of wavelengths
_SAME = 0.05  # nm: wavelengths that differ by less are the same, written with other digits
_NEAR = 1.0  # nm: and of bands whose wavelengths differ by less, the widths are the same


Given = str | Path | npt.ArrayLike  # a file with one wavelength a line, or the numbers


class BandInfo(NamedTuple):
    """What one place says of bands."""

    wavelengths: Floats  # (bands,) nm
    fwhm: Floats | None = None  # (bands,) nm


def merged(*places: BandInfo | None) -> BandInfo | None:
    """The wavelengths of the first place that has any; the widths too, or those of a later place for the same bands."""
    found = [place for place in places if place is not None]
    if not found:
        return None
    waves = found[0].wavelengths
    widths = (place.fwhm for place in found if np.abs(place.wavelengths - waves).max() < _NEAR)
    return BandInfo(waves, next((fwhm for fwhm in widths if fwhm is not None), None))


def with_bands(raster: StoredRaster, other: BandInfo) -> StoredRaster:
    """The raster with what it does not say of its bands itself."""
    own = None if raster.wavelengths is None else BandInfo(raster.wavelengths, raster.fwhm)
    info = merged(own, other) or other
    return replace(raster, wavelengths=info.wavelengths, fwhm=info.fwhm)


def with_given(raster: StoredRaster, given: Given) -> StoredRaster:
    """The raster with the user's wavelengths; what it says itself is kept, and the user is told where they differ."""
    info, source = given_wavelengths(given), given if isinstance(given, str | Path) else "the array of wavelengths"
    bands = raster.shape[2]
    if info.wavelengths.size != bands:
        raise SceneError(
            f"{source} holds {info.wavelengths.size} wavelengths but {raster.path} has {bands} bands: give one for "
            "each band, bad ones included"
        )
    own = (raster.wavelengths, raster.fwhm)
    for what, mine, theirs in zip(("wavelengths", "band widths"), own, info, strict=True):
        if mine is not None and theirs is not None and (off := np.abs(mine - theirs).max()) >= _SAME:
            warn_data(
                f"{raster.path.name} has {what} of its own, which differ from those of {source} by up to {off:.4g} nm: "
                "its own are kept"
            )
    return with_bands(raster, info)


def given_wavelengths(given: Given) -> BandInfo:
    """Wavelengths, and band widths if there is a second column, from a file or an array, in nm or micrometres."""
    if isinstance(given, str | Path):
        path = Path(given).expanduser()
        table, source = _table(path), str(path)
    else:
        source = "the array of wavelengths"
        try:
            table = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise SceneError(f"{source} holds something else: numbers in nm or micrometres are expected") from None
        table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[1] not in (1, 2) or not table.size:
        raise SceneError(
            f"{source} has shape {table.shape}: one wavelength for each band is expected, with its width beside it if "
            "known"
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
    """The one or two columns of a text file, whose first line may be their names."""
    try:
        size = path.stat().st_size
        if size > _LONGEST:
            raise SceneError(f"{path} has {size:,} bytes: a text file with one wavelength a line is expected")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SceneError(f"{path} is not text: a text file with one wavelength a line is expected") from None
    except OSError as cause:
        raise SceneError(f"the wavelengths in {path} can't be read: {(cause.strerror or str(cause)).lower()}") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    rows = [
        (number, re.split(r"\s*[,;\t]\s*|\s+", line)) for number, line in lines if line and not line.startswith("#")
    ]
    if rows and not any(_is_number(word) for word in rows[0][1]):
        rows = rows[1:]  # the columns' names
    if not rows:
        raise SceneError(f"{path} holds no wavelengths: one a line is expected")
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
