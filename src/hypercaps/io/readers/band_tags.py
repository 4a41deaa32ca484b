"""Wavelengths, band widths, good bands and scale factor in the tags of a GeoTIFF."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.errors import SceneError
from hypercaps.io.raster import Floats, nm_per_unit
from hypercaps.io.readers.envi import items
from hypercaps.io.wavelengths import BandInfo, merge_bands


class BandTags:
    """Metadata of bands from the IMAGERY domain, from the bands' own tags, or from the ENVI domain."""

    def __init__(self, path: Path, dataset: Any, indexes: list[int]) -> None:
        self.path, self.count = path, dataset.count
        self.indexes = indexes
        self.imagery = [_lower(dataset.tags(i, ns="IMAGERY")) for i in indexes]
        self.tags = [_lower(dataset.tags(i)) for i in indexes]
        self.envi = _lower(dataset.tags(ns="ENVI"))

    def wavelengths(self) -> BandInfo | None:
        """Wavelengths and band widths, from the first domain that has one for every band."""
        tagged, listed = self._of_bands(self.tags, "wavelength"), self._listed("wavelength")
        units = next((unit for tags in self.tags if (unit := _units(tags)) is not None), None)
        return merge_bands(
            self._in_nm(
                self._of_bands(self.imagery, "central_wavelength_um"), "um", self._of_bands(self.imagery, "fwhm_um")
            ),
            self._in_nm(tagged, units, self._of_bands(self.tags, "fwhm")),
            self._in_nm(listed, _units(self.envi), self._listed("fwhm")),
        )

    def _in_nm(self, waves: Floats | None, units: str | None, fwhm: Floats | None) -> BandInfo | None:
        unit = None if waves is None else nm_per_unit(units, waves, self.path)
        if waves is None or unit is None:
            return None
        return BandInfo(waves * unit, None if fwhm is None else fwhm * unit)

    def good(self) -> npt.NDArray[np.bool_] | None:
        """(bands,), False where marked bad; None if the file marks none."""
        words = [tags.get("bbl", tags.get("good")) for tags in self.tags]
        if any(word is not None for word in words):
            return np.array([word is None or word.strip().lower() not in ("0", "0.0", "false", "no") for word in words])
        listed = self._listed("bbl")
        return None if listed is None else listed != 0

    def reflectance_factor(self) -> float | None:
        text = self.envi.get("reflectance_scale_factor", self.envi.get("reflectance scale factor"))
        if text is None:
            return None
        factor = self._number(text, "reflectance scale factor")
        if factor <= 0:
            raise SceneError(f"{self.path} gives {factor:g} as reflectance scale factor: a number above 0 is expected")
        return factor

    def _of_bands(self, tags: list[Mapping[str, str]], key: str) -> Floats | None:
        if not all(key in of_band for of_band in tags):
            return None
        return np.array([self._number(of_band[key], key) for of_band in tags])

    def _listed(self, key: str) -> Floats | None:
        if key not in self.envi:
            return None
        numbers = np.array([self._number(item, key) for item in items(self.envi[key])])
        if numbers.size != self.count:
            raise SceneError(
                f"{self.path} gives {numbers.size} numbers as {key!r} for {self.count} bands: give one for each band"
            )
        ours: Floats = numbers[np.array(self.indexes) - 1]
        return ours

    def _number(self, text: str, key: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not np.isfinite(number):
            raise SceneError(f"{self.path} gives {text[:40]!r} as {key!r} of a band: a finite number is expected")
        return number


def _units(tags: Mapping[str, str]) -> str | None:
    return tags.get("wavelength_units", tags.get("wavelength units"))


def _lower(tags: Mapping[str, str]) -> Mapping[str, str]:
    return {key.lower(): value for key, value in tags.items()}
