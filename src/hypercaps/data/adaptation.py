"""Adaptation: what is changed in the spectra of a scene before a model sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hypercaps.data.pixels import PixelReader, Pixels
from hypercaps.data.scene import Scene
from hypercaps.errors import SceneError

MODES = ("auto", "none", "mean", "standardise")


def check_mode(how: str) -> None:
    """Refuse a name that is not one of ``MODES``."""
    if how not in MODES:
        raise SceneError(f"there is no adaptation {how!r}: {', '.join(MODES)} are known")


@dataclass(frozen=True)
class FilledBand:
    """A band that is replaced by a constant and a weighted sum of other bands."""

    band: int  # counted from 0
    sources: tuple[int, ...]
    weights: tuple[float, ...]
    constant: float = 0.0


@dataclass(frozen=True)
class Adaptation:
    """A factor and a summand for each band, then bands that are filled. Pixels are changed one by one."""

    scale: tuple[float, ...] = ()  # (bands,), or empty: 1
    summand: tuple[float, ...] = ()  # (bands,), or empty: 0
    filled: tuple[FilledBand, ...] = ()
    wavelengths: tuple[float, ...] = ()  # nm, that the bands are taken for; empty: their own

    def __bool__(self) -> bool:
        return bool(self.filled or self.scale or self.wavelengths)

    def apply(self, scene: Scene) -> Scene:
        """The scene with changed spectra; it is still read by windows."""
        if self.wavelengths:
            scene = replace(scene, wavelengths=np.asarray(self.wavelengths))
        if not (self.scale or self.filled):
            return scene
        return replace(scene, dtype=np.dtype(np.float32), reader=self._reader(scene))

    def _reader(self, scene: Scene) -> PixelReader:
        scale, summand = (np.asarray(values, dtype=np.float32) for values in (self.scale, self.summand))

        def read(rows: slice, cols: slice) -> Pixels:
            pixels = scene.read(rows, cols)
            with np.errstate(over="ignore", invalid="ignore"):  # of invalid pixels
                values = pixels.values * scale + summand if self.scale else pixels.values.copy()
                for filled in self.filled:
                    values[..., filled.band] = _weighted(values, filled)
            return Pixels(values, pixels.valid)

        return read


def _weighted(values: npt.NDArray[np.float32], filled: FilledBand) -> npt.NDArray[np.float32]:
    """(h, w, bands) -> (h, w), in float64; source by source, so that a pixel's bits do not depend on the others"""
    total = np.full(values.shape[:-1], filled.constant)
    for source, weight in zip(filled.sources, filled.weights, strict=True):
        total += weight * values[..., source]
    return total.astype(np.float32)
