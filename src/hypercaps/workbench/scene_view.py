"""SceneView: the scene as pictures, in tiles of 256 x 256 pixels at levels of detail."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.compute.blas import one_blas_thread
from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.workbench.overviews import FIRST, Overviews
from hypercaps.workbench.pixel_reader import SIDE, PixelReader
from hypercaps.workbench.png import encode_png
from hypercaps.workbench.presets import PCA, gaps, presets
from hypercaps.workbench.refusals import RefusedError, not_found
from hypercaps.workbench.shared_cache import SharedCache
from hypercaps.workbench.thinned import ThinnedReader

_CACHE_BYTES = 64_000_000  # of pictures
_KNOWN_LIMITS = 256
_SAMPLE_ROWS = 48  # from which principal components are computed
_SAMPLE_BLOCKS = 6  # from which contrast is measured where a file is stored in blocks
_SAMPLE_PIXELS = 20_000
_PCA_PIXELS = 4_000
_AUTO = (2.0, 98.0)
_TRANSPARENT = encode_png(np.zeros((SIDE, SIDE, 4), dtype=np.uint8))

Rgb = tuple[int, int, int]  # bands shown as red, green and blue
Shown = tuple[Rgb | None, tuple[float, float]]  # bands, or None for principal components; percentiles
Floats = npt.NDArray[np.float32]


class SceneView:
    """Pictures of a scene; ``folder`` keeps its overviews."""

    def __init__(self, scene: Scene, folder: Path, on_overviews: Callable[[float], None]) -> None:
        self.scene, self.reader = scene, PixelReader(scene)
        self.levels = max(1, math.ceil(math.log2(max(scene.rows, scene.cols, SIDE) / SIDE)) + 1)
        self.overviews = Overviews(scene, folder, self.levels, on_overviews)
        self.presets = presets(scene)
        self._thinned = ThinnedReader(scene)
        self._known_limits = SharedCache[Shown, tuple[Floats, Floats]](_KNOWN_LIMITS, lambda _: 1)
        self._pictures = SharedCache[tuple[object, ...], bytes](_CACHE_BYTES, len)

    def describe(self) -> dict[str, Any]:
        """The part ``scene`` of the page's state."""
        scene = self.scene
        waves = None if scene.wavelengths is None else np.asarray(scene.wavelengths).tolist()
        return {
            "name": scene.name,
            "rows": scene.rows,
            "cols": scene.cols,
            "bands": scene.bands,
            "wavelengths": waves,
            "wavelength_unit": None if waves is None else "nm",
            "good": [True] * scene.bands,  # a scene has only its good bands
            "gaps": gaps(scene),
            "transform": None if scene.transform is None else list(scene.transform),
            "crs": scene.crs,
            "value_unit": None,
            "tile_size": SIDE,
            "levels": self.levels,
            "overviews": self.overviews.done,
            "preview": self.has_preview,
            "presets": self.presets,
        }

    def picture(self, bands: str, stretch: str, level: int, x: int, y: int) -> bytes:
        """A tile as PNG; transparent where the scene has no data."""
        shown, limits = self._bands(bands), _percentiles(stretch)
        if not 0 <= level < self.levels:
            raise not_found(f"level {level}")
        side = SIDE << level
        if x < 0 or y < 0 or y * side >= self.scene.rows or x * side >= self.scene.cols:
            return _TRANSPARENT
        key = (shown, limits, level, x, y, self.is_final(level))  # what overviews improve is drawn again
        return self._pictures.get(key, lambda: self._draw(shown, limits, self._read(shown, level, x, y)))

    @property
    def has_preview(self) -> bool:
        """Whether the coarsest picture is there soon: not where all blocks of a large file must be decoded for it."""
        return self.levels > FIRST and (self.scene.block is None or self.overviews.done == 1.0)

    def is_final(self, level: int) -> bool:
        """Whether pictures of a level stay as they are."""
        return level < FIRST or self.overviews.done == 1.0

    # ---- which bands -------------------------------------------------------------------------------------------------

    def _bands(self, text: str) -> Rgb | None:
        """The bands shown; None: principal components."""
        if text == PCA:
            return None
        for preset in self.presets:
            if preset["id"] == text:
                red, green, blue = preset["bands"]
                return red, green, blue
        if not re.fullmatch(r"\d{1,5}-\d{1,5}-\d{1,5}", text):
            raise not_found(f"picture {text[:20]!r}")
        red, green, blue = map(int, text.split("-"))
        if max(red, green, blue) >= self.scene.bands:
            raise not_found(f"band {max(red, green, blue)}")
        return red, green, blue

    @cached_property
    def _sample(self) -> Floats:
        """(N, bands) spectra spread over the scene."""
        return self._spectra(range(self.scene.bands), _SAMPLE_PIXELS)

    def _spectra(self, bands: Sequence[int], most: int) -> Floats:
        """(N, bands) some bands of about ``most`` pixels spread over the scene."""
        samples = [read.values[read.valid] for read in self._sampled_windows(bands)]
        spectra = np.concatenate(samples)
        step = max(1, len(spectra) // most)
        return spectra[::step] if len(spectra) else np.zeros((1, len(bands)), dtype=np.float32)

    def _sampled_windows(self, bands: Sequence[int]) -> list[Pixels]:
        scene = self.scene
        is_picture = len(bands) < scene.bands
        if self.levels == 1 or (scene.block is None and is_picture):  # the pixels of the coarsest picture
            return [self._thinned.tile(bands, self.levels - 1, 0, 0)]
        if scene.block is None:
            rows = np.linspace(0, scene.rows - 1, _SAMPLE_ROWS).astype(int).tolist()
            return [scene.read_bands(bands, slice(r, r + 1), slice(0, scene.cols)) for r in rows]
        down, across = -(-scene.rows // SIDE), -(-scene.cols // SIDE)
        places = sorted({(i * down // _SAMPLE_BLOCKS, int(i * 0.618 % 1 * across)) for i in range(_SAMPLE_BLOCKS)})
        return [self._thinned.tile(bands, 0, x, y) for y, x in places]

    @cached_property
    def _components(self) -> tuple[Floats, Floats]:
        """Mean spectrum (bands,) and the first three principal components (bands, 3)."""
        sample = self._sample[:: max(1, len(self._sample) // _PCA_PIXELS)].astype(np.float64)
        mean = sample.mean(axis=0)
        with one_blas_thread():
            _, vectors = np.linalg.eigh((sample - mean).T @ (sample - mean))
        first = vectors[:, ::-1][:, :3]
        first = np.pad(first, ((0, 0), (0, 3 - first.shape[1])))
        signs = np.where(first[np.abs(first).argmax(axis=0), np.arange(3)] < 0, -1.0, 1.0)
        return mean.astype(np.float32), (first * signs).astype(np.float32)

    # ---- pictures ----------------------------------------------------------------------------------------------------

    def _read(self, bands: Rgb | None, level: int, x: int, y: int) -> Pixels:
        """The pixels of a tile, thinned where there is no overview: of three bands, or all for components."""
        rows, cols = slice(y * SIDE, (y + 1) * SIDE), slice(x * SIDE, (x + 1) * SIDE)
        overview = self.overviews.read(level, rows, cols, bands)
        if overview is not None:
            return overview
        if bands is None:
            return self.reader.tile(y, x) if level == 0 else self._thinned.tile(range(self.scene.bands), level, x, y)
        return self._thinned.tile(bands, level, x, y)

    def _draw(self, bands: Rgb | None, limits: tuple[float, float], pixels: Pixels) -> bytes:
        shown = pixels.values if bands is not None else self._projected(pixels.values)
        low, high = self._limits(bands, limits)
        with np.errstate(invalid="ignore", over="ignore"):
            stretched = np.clip((shown - low) * (255.0 / np.where(high > low, high - low, 1.0)), 0, 255)
        height, width = pixels.valid.shape
        rgba = np.zeros((SIDE, SIDE, 4), dtype=np.uint8)
        rgba[:height, :width, :3] = np.where(pixels.valid[:, :, None], np.nan_to_num(stretched), 0)
        rgba[:height, :width, 3] = np.where(pixels.valid, 255, 0)
        return encode_png(rgba)

    def _projected(self, values: Floats) -> Floats:
        mean, components = self._components
        with np.errstate(invalid="ignore", over="ignore"), one_blas_thread():
            return np.asarray((values - mean) @ components, dtype=np.float32)

    def _limits(self, bands: Rgb | None, limits: tuple[float, float]) -> tuple[Floats, Floats]:
        """(3,) each: the values shown as black and as full colour."""
        return self._known_limits.get((bands, limits), lambda: self._find_limits(bands, limits))

    def _find_limits(self, bands: Rgb | None, limits: tuple[float, float]) -> tuple[Floats, Floats]:
        sample = self._projected(self._sample) if bands is None else self._spectra(bands, _SAMPLE_PIXELS)
        low, high = np.percentile(sample, limits, axis=0)
        return low.astype(np.float32), high.astype(np.float32)


def _percentiles(text: str) -> tuple[float, float]:
    if text == "auto":
        return _AUTO
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?-\d{1,3}(\.\d{1,3})?", text):
        raise RefusedError(f"{text[:20]!r} is no stretch: 'auto' or percentiles such as 2-98 are expected")
    low, high = map(float, text.split("-"))
    if not 0 <= low < high <= 100:
        raise RefusedError(f"{text!r} is no stretch: two percentiles from 0 to 100 are expected, the lower first")
    return low, high
