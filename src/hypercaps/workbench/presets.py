"""Which bands are shown as red, green and blue."""

from __future__ import annotations

from typing import Any

import numpy as np

from hypercaps.data.resampling import usable_wavelengths
from hypercaps.data.scene import Scene

PCA = "pca"
_NEAR = 60.0  # nm: a band further away is not that light
_LIGHT = {  # nm, shown as red, green and blue
    "natural": ("Natural colour", (650.0, 550.0, 470.0)),
    "infrared": ("Infrared", (860.0, 650.0, 550.0)),
    "swir": ("Short-wave infrared", (2200.0, 1650.0, 860.0)),
}
_GAP = 2.5  # times the usual step between wavelengths: bands are missing between two


def presets(scene: Scene) -> list[dict[str, Any]]:
    """The band triples that this scene has, the first one to begin with, and principal components."""
    waves = usable_wavelengths(scene.wavelengths)
    triples: list[dict[str, Any]] = []
    for key, (name, light) in _LIGHT.items():
        if waves is not None:
            bands = [int(np.abs(waves - nm).argmin()) for nm in light]
            if all(abs(waves[band] - nm) <= _NEAR for band, nm in zip(bands, light, strict=True)):
                triples.append({"id": key, "name": name, "bands": bands})
    if not triples:
        last = scene.bands - 1
        triples.append({"id": "false", "name": "False colour", "bands": [last // 2, last // 4, last // 10]})
    return [*triples, {"id": PCA, "name": "Principal components"}]


def gaps(scene: Scene) -> list[int]:
    """Bands after which others are missing: there the line of a spectrum is broken."""
    waves = usable_wavelengths(scene.wavelengths)
    if waves is None or len(waves) < 3:
        return []
    steps = np.diff(waves)
    usual = np.array([np.median(steps[max(0, i - 5) : i + 6]) for i in range(len(steps))])
    return np.flatnonzero(steps > _GAP * usual).tolist()
