"""Preprocessing of spectra, fitted in one streamed pass over a scene.

PCA-whitening, as in the paper, turns bands into uncorrelated components of unit variance, the largest first.
Standardising scales each band by itself, for methods that need the bands in the order of their wavelengths.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.compute import linalg, native
from hypercaps.data.invalid import warn_of_invalid
from hypercaps.data.scene import Scene
from hypercaps.data.window import tile_windows
from hypercaps.errors import SceneError, warn_data
from hypercaps.training.nuisance import nuisance_covariance

Array = npt.NDArray[np.float64]
Values = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

DAMPING = 0.1  # of damped whitening: share of each band's standard deviation
_COARSE = 4  # roundings of float32: a standard deviation below is mostly rounding
_READ_VALUES = 1 << 23  # values read at a time while fitting: 32 MB of float32, 64 MB of float64


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Arrays in float64, learned from the valid pixels of a scene; their names are those of the model file."""

    mean: Array  # (bands,)

    def __post_init__(self) -> None:
        """Refuse arrays of another shape or type, or with NaN: they may come from a file."""
        for name, array in self.arrays().items():
            shape = (self.bands,) * (2 if name == "matrix" else 1)
            if array.shape != shape or array.dtype != np.float64 or not np.isfinite(array).all():
                raise ValueError(f"{name} is not {' x '.join(map(str, shape))} finite float64 numbers")

    @property
    def bands(self) -> int:
        return int(self.mean.size)

    def arrays(self) -> dict[str, Array]:
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class PCAWhitening(_Fitted):
    """y = (x - mean) @ matrix.

    Components with no variance (dead or repeated bands) have a zero column: they give zeros, never inf.
    """

    matrix: Array  # (bands, components): column i is eigenvector i / sqrt(eigenvalue i)
    variances: Array  # (components,): eigenvalues of the covariance; ``fit`` gives them descending

    @classmethod
    def fit(cls, scene: Scene) -> PCAWhitening:
        """One streamed pass over the valid pixels: exact mean and covariance in float64 at any scene size."""
        return cls.from_covariance(*_moments(scene), name=scene.name)

    @classmethod
    def from_covariance(cls, mean: Array, covariance: Array, name: str = "scene") -> PCAWhitening:
        """Whitening for a known mean (bands,) and covariance (bands, bands)."""
        variances, vectors = linalg.eigh(covariance)  # ascending; vectors in columns
        variances, vectors = variances[::-1].copy(), vectors[:, ::-1].copy()
        alive = _alive(variances, mean, name)
        # The sign of an eigenvector is arbitrary: its largest entry is made positive, so two fits agree.
        largest = np.abs(vectors).argmax(axis=0)
        vectors *= np.sign(vectors[largest, np.arange(mean.size)])
        matrix = np.where(alive, vectors / np.sqrt(np.where(alive, variances, 1.0)), 0.0)
        return cls(mean, matrix, np.where(alive, variances, 0.0))

    def centred(self) -> PCAWhitening:
        """The same components in another order: the largest in the middle, the smaller the further outwards.

        An unpadded convolution covers the ends of its input with the fewest windows. With the largest component
        first, the most informative one would be used least.
        """
        component = np.arange(self.variances.size)
        order = np.concatenate([component[1::2][::-1], component[0::2]])  # ... 5 3 1 0 2 4 ...
        return PCAWhitening(self.mean, self.matrix[:, order], self.variances[order])

    def transform(self, values: npt.NDArray[np.floating], valid: Mask | None = None) -> Values:
        """(..., bands) in physical units to (..., components), float32; zeros where not ``valid`` (...).

        Computed in float64: small components are differences of large numbers. With the compiled kernel, a pixel's
        result does not depend on the other pixels, to the bit. Otherwise torch computes the product, not numpy, because
        two thread pools on the same cores cost more than the product itself.
        """
        if values.dtype == np.float32 and values.shape[-1] == self.bands and native.available():
            return project(values, valid, self.mean, self.matrix)
        import torch

        white = torch.from_numpy(_subtract_mean(values, valid, self.mean)) @ torch.from_numpy(self.matrix)
        return white.float().numpy().reshape(values.shape)

    def combined(self, weights: Array) -> Array:
        """The matrix that whitens and then multiplies with ``weights``: (components, n) -> (bands, n)"""
        return linalg.product(self.matrix, weights)


@dataclass(frozen=True, eq=False)
class Standardising(_Fitted):
    """y = (x - mean) * scale, band by band. Dead bands give zeros."""

    scale: Array  # (bands,): 1 / standard deviation, 0 for a band without any

    @classmethod
    def fit(cls, scene: Scene) -> Standardising:
        """Fit to the valid pixels in one streamed pass."""
        mean, covariance = _moments(scene)
        variances = covariance.diagonal()
        alive = _alive(variances, mean, scene.name)
        return cls(mean, np.where(alive, 1.0 / np.sqrt(np.where(alive, variances, 1.0)), 0.0))

    def transform(self, values: npt.NDArray[np.floating], valid: Mask | None = None) -> Values:
        """(..., bands) in physical units to (..., bands), float32; zeros where not ``valid`` (...)."""
        flat = _subtract_mean(values, valid, self.mean)
        flat *= self.scale
        return flat.astype(np.float32).reshape(values.shape)

    def combined(self, weights: Array) -> Array:
        """The matrix that scales and then multiplies with ``weights``: (bands, n) -> (bands, n)"""
        return self.scale[:, None] * weights


Preprocessing = PCAWhitening | Standardising

# By the names that methods use
PREPROCESSINGS: dict[str, Callable[[Scene], Preprocessing]] = {
    "whitening": PCAWhitening.fit,
    "centred whitening": lambda scene: PCAWhitening.fit(scene).centred(),
    "damped whitening": lambda scene: damped_whitening(scene).centred(),
    "robust whitening": lambda scene: robust_whitening(scene).centred(),
    "standardising": Standardising.fit,
}
# By the names that model files use
KINDS: dict[str, type[PCAWhitening] | type[Standardising]] = {"whitening": PCAWhitening, "standardising": Standardising}


def kind_of(preprocessing: Preprocessing) -> str:
    return next(name for name, kind in KINDS.items() if isinstance(preprocessing, kind))


def damped_whitening(scene: Scene) -> PCAWhitening:
    """Whitening of the covariance with a part of its diagonal added to it.

    Plain whitening scales the smallest components, which are mostly noise, to unit variance. Here a hundredth of each
    band's variance is added first, so that components below it stay small.
    """
    mean, covariance = _moments(scene)
    return PCAWhitening.from_covariance(mean, covariance + DAMPING**2 * np.diag(covariance.diagonal()), name=scene.name)


def robust_whitening(scene: Scene) -> PCAWhitening:
    """Whitening in which a change of light, of calibration or of wavelengths moves no component far (``nuisance``)."""
    mean, covariance = _moments(scene)
    return PCAWhitening.from_covariance(mean, covariance + nuisance_covariance(mean, covariance), name=scene.name)


def project(values: npt.NDArray[np.floating], valid: Mask | None, mean: Array, matrix: Array) -> Values:
    """(values - mean) @ matrix by the compiled kernel: (..., bands) float32 -> (..., n) float32, zeros where not valid.

    Computed in float64, by the same sums for every pixel: its bits depend neither on the other pixels nor on the number
    of threads.
    """
    bands, outputs = matrix.shape
    pixels = values.reshape(-1, bands).shape[0]
    inputs = np.ascontiguousarray(values, dtype=np.float32)
    flags = np.ones(pixels, dtype=np.uint8) if valid is None else np.array(valid, dtype=bool).view(np.uint8)
    if flags.size != pixels:
        raise ValueError(f"validity of {flags.size} pixels came with {pixels}")
    padded = native.empty((bands, outputs + -outputs % native.LANES), np.float64)
    padded[:, :outputs], padded[:, outputs:] = matrix, 0.0
    products: Values = native.empty((*values.shape[:-1], outputs))
    middle = np.ascontiguousarray(mean)
    native.run("whiten", inputs, flags, pixels, bands, padded.shape[1], outputs, middle, padded, products)
    return products


def _subtract_mean(values: npt.NDArray[np.floating], valid: Mask | None, mean: Array) -> Array:
    """(..., bands) -> (pixels, bands) minus the mean, in float64; zeros where not ``valid``"""
    flat = values.reshape(-1, mean.size).astype(np.float64)
    if valid is not None and not valid.all():
        flat[~valid.ravel()] = mean
    flat -= mean
    return flat


def _alive(variances: Array, mean: Array, name: str) -> Mask:
    """Which variances exceed rounding errors; refuse a scene where none does."""
    # A constant band of large values has rounding errors too, so that the floor depends on the mean as well.
    scale = np.finfo(np.float64).eps * mean.size
    floor = scale * max(float(variances.max()), float(np.square(mean).max()) * scale)
    alive: Mask = variances > floor
    if not alive.any():
        raise SceneError(
            f"scene {name!r} is constant as it is read, in single precision (float32): every band has the same value "
            "everywhere; give a cube whose pixels differ or, if its values are large and differ by little, subtract a "
            "constant from each band first"
        )
    return alive


_last: tuple[weakref.ref[Scene], tuple[Array, Array]] | None = None  # a comparison fits several kinds to one scene


def _moments(scene: Scene) -> tuple[Array, Array]:
    """Mean (bands,) and covariance (bands, bands) of the valid pixels; those of the last scene are kept."""
    global _last
    if _last is None or _last[0]() is not scene:
        _last = weakref.ref(scene), _read_moments(scene)
    mean, covariance = _last[1]
    return mean.copy(), covariance.copy()


def _read_moments(scene: Scene) -> tuple[Array, Array]:
    """Mean (bands,) and covariance (bands, bands) of the valid pixels, block by block.

    Blocks are centred on their own mean before they are merged (Chan, Golub and LeVeque 1983), which avoids
    cancellation for any number of pixels.
    """
    count = 0
    mean = np.zeros(scene.bands)
    scatter = np.zeros((scene.bands, scene.bands))
    side = max(1, int((_READ_VALUES / scene.bands) ** 0.5))
    for window in tile_windows(scene.whole, side):
        pixels = scene.read(window.rows, window.cols)
        block = pixels.values[pixels.valid].astype(np.float64)  # (n, bands)
        n = block.shape[0]
        if n == 0:
            continue
        block_mean = block.mean(axis=0)
        block -= block_mean
        step = block_mean - mean
        scatter += linalg.gram(block)
        scatter += np.outer(step, step) * (count * n / (count + n))
        mean += step * (n / (count + n))
        count += n
    invalid = scene.rows * scene.cols - count
    if count < 2:
        raise SceneError(
            f"scene {scene.name!r} has {count} valid pixels among {invalid + count}: the others hold "
            f"{scene.why_invalid()}; give a cube with finite values"
        )
    warn_of_invalid(scene, invalid, invalid + count)
    covariance = scatter / (count - 1)
    _warn_of_rounding(scene, mean, np.sqrt(covariance.diagonal()))
    return mean, covariance


def _warn_of_rounding(scene: Scene, mean: Array, deviation: Array) -> None:
    """Warn of bands (bands,) that were stored more exactly than they are read, and differ by a few roundings only."""
    if np.can_cast(scene.dtype, np.float32):
        return
    rounding = float(np.finfo(np.float32).eps) * np.abs(mean)
    # A constant band has a deviation too, by the rounding of its mean in float64.
    coarse = int(((deviation > 1e-3 * rounding) & (deviation < _COARSE * rounding)).sum())
    if coarse:
        warn_data(
            f"{coarse} of {scene.bands} bands of scene {scene.name!r} hold large values that differ by little, and "
            "single precision (float32), in which they are read, rounds most of the differences away: subtract a "
            "constant from each band first"
        )
