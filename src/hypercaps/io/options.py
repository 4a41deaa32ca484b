"""How files are opened: one object that open_scene, open_labels and the workers of a cluster pass on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy.typing as npt

from hypercaps.io.catalog import ProgressMaker

GivenWavelengths = str | Path | npt.ArrayLike  # a text file with one wavelength per line, or the numbers


@dataclass(frozen=True)
class OpenOptions:
    """Options for opening scenes and labels, for example ``OpenOptions(wavelengths="bands.txt")``."""

    wavelengths: GivenWavelengths | None = None  # for a scene that has none, in nm or micrometres
    class_field: str | None = None  # of vector labels
    allow_remote: bool = False  # read a GeoTIFF from an http(s) address
    progress: ProgressMaker | None = None  # of downloads of public scenes
