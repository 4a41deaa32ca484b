"""Wavelengths, band widths, good bands and scale factor in the tags of a GeoTIFF."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hypercaps.errors import SceneError
from hypercaps.io.raster import Bools, Floats, nm_per_unit
from hypercaps.io.readers.envi import band_info, number_list
from hypercaps.io.wavelengths import BandInfo, merge_bands


class BandTags:
    """Metadata of bands from the IMAGERY domain, from the bands' own tags, or from the ENVI domain."""

    def __init__(self, path: Path, dataset: Any, indexes: list[int]) -> None:
        self.path, self.count, self.positions = path, dataset.count, np.array(indexes) - 1
        self.imagery = [_lower(dataset.tags(i, ns="IMAGERY")) for i in indexes]
        self.tags = [_lower(dataset.tags(i)) for i in indexes]
        # The fields of an ENVI header, for all bands of the file.
        self.envi = {key.replace("_", " "): value for key, value in _lower(dataset.tags(ns="ENVI")).items()}

    def wavelengths(self) -> BandInfo | None:
        """Wavelengths and band widths, from the first domain that has one for every band."""
        listed, at = band_info(self.envi, self.path, self.count), self.positions
        if listed is not None:
            listed = BandInfo(listed.wavelengths[at], None if listed.fwhm is None else listed.fwhm[at])
        units = (tags.get("wavelength_units", tags.get("wavelength units")) for tags in self.tags)
        return merge_bands(
            self._tagged(self.imagery, "central_wavelength_um", "um", "fwhm_um"),
            self._tagged(self.tags, "wavelength", next((unit for unit in units if unit is not None), None), "fwhm"),
            listed,
        )

    def good(self) -> Bools | None:
        """(bands,), False where marked bad; None if the file marks none."""
        words = [tags.get("bbl", tags.get("good")) for tags in self.tags]
        if any(word is not None for word in words):
            return np.array([word is None or word.strip().lower() not in ("0", "0.0", "false", "no") for word in words])
        listed = number_list(self.envi, "bbl", self.path, self.count)
        return None if listed is None else listed[self.positions] != 0

    def _tagged(self, tags: list[Mapping[str, str]], key: str, units: str | None, width_key: str) -> BandInfo | None:
        waves, widths = self._numbers(tags, key), self._numbers(tags, width_key)
        unit = None if waves is None else nm_per_unit(units, waves, self.path)
        if waves is None or unit is None:
            return None
        return BandInfo(waves * unit, None if widths is None else widths * unit)

    def _numbers(self, tags: list[Mapping[str, str]], key: str) -> Floats | None:
        if not all(key in of_band for of_band in tags):
            return None
        return np.array([finite_number(of_band[key], f"{key!r} of a band", self.path) for of_band in tags])


def finite_number(text: str | None, what: str, path: Path) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = float("nan")
    if not np.isfinite(number):
        raise SceneError(f"{path} gives {(text or '')[:40]!r} as {what}: a finite number is expected")
    return number


def _lower(tags: Mapping[str, str]) -> Mapping[str, str]:
    return {key.lower(): value for key, value in tags.items()}
