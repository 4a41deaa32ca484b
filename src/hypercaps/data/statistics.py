"""Statistics of a scene's bands, from a sample of its pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window, tile_windows

Array = npt.NDArray[np.float64]

_SIDE = 32  # of the windows of a sample, in pixels
_AT_ONCE = 4096  # pixels
_ACROSS = 8  # windows of a sample, in either direction; a smaller scene is read completely


@dataclass(frozen=True, eq=False)
class SceneStatistics:
    """Mean, covariance and range of the bands; arrays in float64, whose names are those of the model file."""

    mean: Array  # (bands,)
    covariance: Array  # (bands, bands)
    lowest: Array  # (bands,)
    highest: Array  # (bands,)

    def __post_init__(self) -> None:
        """Refuse arrays of another shape or type, or with NaN: they may come from a file."""
        for name, array in self.arrays().items():
            shape = (self.bands,) * (2 if name == "covariance" else 1)
            if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError(f"the {name} of the bands is not {' x '.join(map(str, shape))} finite float64 numbers")
        if (self.covariance.diagonal() < 0).any():
            raise ValueError("the variance of a band is negative")

    @property
    def bands(self) -> int:
        return int(self.mean.size)

    @property
    def deviation(self) -> Array:
        """(bands,) standard deviations."""
        return np.asarray(np.sqrt(self.covariance.diagonal()))

    def arrays(self) -> dict[str, Array]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class BandSample:
    """Spectra of valid pixels of a scene, and their statistics on demand: the covariance takes by far the most time."""

    values: npt.NDArray[np.float32]  # (N, bands)

    @cached_property
    def mean(self) -> Array:
        return np.asarray(self.values.mean(axis=0, dtype=np.float64))

    @cached_property
    def lowest(self) -> Array:
        return np.asarray(self.values.min(axis=0).astype(float))

    @cached_property
    def highest(self) -> Array:
        return np.asarray(self.values.max(axis=0).astype(float))

    @cached_property
    def covariance(self) -> Array:
        scatter = np.zeros((self.mean.size, self.mean.size))
        for start in range(0, len(self.values), _AT_ONCE):
            centred = self.values[start : start + _AT_ONCE] - self.mean
            scatter += centred.T @ centred
        return scatter / len(self.values)

    @property
    def deviation(self) -> Array:
        """(bands,) standard deviations."""
        return np.asarray(np.sqrt(self.covariance.diagonal()))

    @property
    def is_constant(self) -> npt.NDArray[np.bool_]:
        """(bands,) those with the same value everywhere, a dead band for example."""
        return np.asarray(self.highest == self.lowest)


def sample_bands(scene: Scene, *, least: int = 2) -> BandSample | None:
    """A scene's spectra, or those of windows evenly distributed over a large one; None with fewer valid pixels."""
    windows = list(_sample(scene))
    counts = [int(np.count_nonzero(window.valid)) for window in windows]
    if sum(counts) < least:
        return None
    values = np.empty((sum(counts), scene.bands), dtype=np.float32)
    for (values_of, valid), part in zip(windows, np.split(values, np.cumsum(counts)[:-1]), strict=True):
        if valid.all():  # far faster than a selection
            part.reshape(values_of.shape)[...] = values_of
        else:
            part[...] = values_of[valid]
    return BandSample(values)


def sample_statistics(scene: Scene, *, least: int = 2) -> SceneStatistics | None:
    """Statistics of a scene, or of windows evenly distributed over a large one; None with fewer valid pixels."""
    sample = sample_bands(scene, least=least)
    return None if sample is None else SceneStatistics(sample.mean, sample.covariance, sample.lowest, sample.highest)


def statistics_bytes(bands: int) -> int:
    """Size of the statistics in a model file."""
    return 8 * bands * (bands + 3)


def _sample(scene: Scene) -> Iterator[Pixels]:
    """The windows of a sample; a small scene is read in strips, and divided into windows in memory."""
    if scene.rows * scene.cols <= (_SIDE * _ACROSS) ** 2:
        for strip in tile_windows(scene.whole, _SIDE, scene.cols):
            values, valid = scene.read(strip.rows, strip.cols)
            for at in tile_windows(strip, _SIDE):
                yield Pixels(values[:, at.cols], valid[:, at.cols])
        return
    yield from scene.read_windows(
        [
            Window(r0, min(r0 + _SIDE, scene.rows), c0, min(c0 + _SIDE, scene.cols))
            for r0 in _starts(scene.rows)
            for c0 in _starts(scene.cols)
        ]
    )


def _starts(size: int) -> list[int]:
    """First rows or columns of the windows, from the first to the last that fits."""
    last = max(size - _SIDE, 0)
    return sorted({round(i * last / (_ACROSS - 1)) for i in range(_ACROSS)})
