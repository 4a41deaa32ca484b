"""Preprocessing of spectra, fitted in one streamed pass over a scene.

PCA-whitening, as in the paper, turns bands into uncorrelated components of unit variance, the largest first.
Standardising scales each band by itself, for methods that need the bands in the order of their wavelengths.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from hypercaps.compute import linalg, native
from hypercaps.data.scene import Scene
from hypercaps.data.window import tile_windows
from hypercaps.errors import DataWarning, SceneError

_READ_VALUES = 1 << 23  # values read at a time while fitting: 32 MB of float32, 64 MB of float64


@dataclass(frozen=True, eq=False)
class PCAWhitening:
    """y = (x - mean) @ matrix, learned from the valid pixels of a scene.

    Components with no variance (dead or repeated bands) have a zero column: they give zeros, never inf.
    """

    mean: npt.NDArray[np.float64]  # (bands,)
    matrix: npt.NDArray[np.float64]  # (bands, components): column i is eigenvector i / sqrt(eigenvalue i)
    variances: npt.NDArray[np.float64]  # (components,): eigenvalues of the covariance; ``fit`` gives them descending

    def __post_init__(self) -> None:
        bands = self.mean.size
        _check_arrays({"mean": (bands,), "matrix": (bands, bands), "variances": (bands,)}, self.arrays())

    @property
    def bands(self) -> int:
        return int(self.mean.size)

    @classmethod
    def fit(cls, scene: Scene) -> PCAWhitening:
        """One streamed pass over the valid pixels: exact mean and covariance in float64 at any scene size."""
        mean, covariance = _moments(scene)
        return cls.from_covariance(mean, covariance, name=scene.name)

    @classmethod
    def from_covariance(
        cls, mean: npt.NDArray[np.float64], covariance: npt.NDArray[np.float64], name: str = "scene"
    ) -> PCAWhitening:
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

    def transform(self, values: npt.NDArray[np.floating], valid: npt.NDArray[np.bool_] | None = None) -> Tensor:
        """(..., bands) in physical units to (..., components), float32; zeros where not ``valid`` (...).

        Computed in float64: small components are differences of large numbers. With the compiled kernel, a pixel's
        result does not depend on the other pixels, to the bit. Otherwise torch computes the product, not numpy, because
        two thread pools on the same cores cost more than the product itself.
        """
        if values.dtype == np.float32 and values.shape[-1] == self.bands and native.available():
            return self._transform_compiled(values, valid)
        white = torch.from_numpy(_subtract_mean(values, valid, self.mean)) @ torch.from_numpy(self.matrix)
        return white.float().view(values.shape)

    def _transform_compiled(self, values: npt.NDArray[np.floating], valid: npt.NDArray[np.bool_] | None) -> Tensor:
        pixels = values.reshape(-1, self.bands).shape[0]
        given = torch.from_numpy(np.require(values, requirements=["C", "W"]))
        good = np.ones(pixels, dtype=np.uint8) if valid is None else np.array(valid, dtype=bool).view(np.uint8)
        if good.size != pixels:
            raise ValueError(f"validity of {good.size} pixels came with {pixels}")
        matrix = pad(torch.from_numpy(self.matrix), (0, -self.bands % native.LANES)).contiguous()
        white = torch.empty(values.shape)
        native.run(
            "whiten",
            given,
            torch.from_numpy(good),
            pixels,
            self.bands,
            matrix.shape[1],
            torch.from_numpy(np.ascontiguousarray(self.mean)),
            matrix,
            white,
        )
        return white

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """The arrays that a model file stores."""
        return {"mean": self.mean, "matrix": self.matrix, "variances": self.variances}


@dataclass(frozen=True, eq=False)
class Standardising:
    """y = (x - mean) * scale, band by band, learned from the valid pixels of a scene. Dead bands give zeros."""

    mean: npt.NDArray[np.float64]  # (bands,)
    scale: npt.NDArray[np.float64]  # (bands,): 1 / standard deviation, 0 for a band without any

    def __post_init__(self) -> None:
        _check_arrays({"mean": (self.mean.size,), "scale": (self.mean.size,)}, self.arrays())

    @property
    def bands(self) -> int:
        return int(self.mean.size)

    @classmethod
    def fit(cls, scene: Scene) -> Standardising:
        """Fit to the valid pixels in one streamed pass."""
        mean, covariance = _moments(scene)
        variances = covariance.diagonal()
        alive = _alive(variances, mean, scene.name)
        return cls(mean, np.where(alive, 1.0 / np.sqrt(np.where(alive, variances, 1.0)), 0.0))

    def transform(self, values: npt.NDArray[np.floating], valid: npt.NDArray[np.bool_] | None = None) -> Tensor:
        """(..., bands) in physical units to (..., bands), float32; zeros where not ``valid`` (...)."""
        flat = _subtract_mean(values, valid, self.mean)
        flat *= self.scale
        return torch.from_numpy(flat.astype(np.float32)).view(values.shape)

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """The arrays that a model file stores."""
        return {"mean": self.mean, "scale": self.scale}


Preprocessing = PCAWhitening | Standardising

# By the names that methods use
PREPROCESSINGS: dict[str, Callable[[Scene], Preprocessing]] = {
    "whitening": PCAWhitening.fit,
    "centred whitening": lambda scene: PCAWhitening.fit(scene).centred(),
    "standardising": Standardising.fit,
}
# By the names that model files use
KINDS: dict[str, type[PCAWhitening] | type[Standardising]] = {"whitening": PCAWhitening, "standardising": Standardising}


def kind_of(preprocessing: Preprocessing) -> str:
    return next(name for name, kind in KINDS.items() if isinstance(preprocessing, kind))


def _check_arrays(shapes: dict[str, tuple[int, ...]], arrays: dict[str, npt.NDArray[np.float64]]) -> None:
    """Refuse arrays of another shape or type, or with NaN: they may come from a file."""
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"{name} is not {' x '.join(map(str, shapes[name]))} finite float64 numbers")


def _subtract_mean(
    values: npt.NDArray[np.floating], valid: npt.NDArray[np.bool_] | None, mean: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """(..., bands) -> (pixels, bands) minus the mean, in float64; zeros where not ``valid``"""
    flat = values.reshape(-1, mean.size).astype(np.float64)
    if valid is not None and not valid.all():
        flat[~valid.ravel()] = mean
    flat -= mean
    return flat


def _alive(variances: npt.NDArray[np.float64], mean: npt.NDArray[np.float64], name: str) -> npt.NDArray[np.bool_]:
    """Which variances exceed rounding errors; refuse a scene where none does."""
    # A constant band of large values has rounding errors too, so that the floor depends on the mean as well.
    scale = np.finfo(np.float64).eps * mean.size
    floor = scale * max(float(variances.max()), float(np.square(mean).max()) * scale)
    alive: npt.NDArray[np.bool_] = variances > floor
    if not alive.any():
        raise SceneError(
            f"scene {name!r} is constant: every band has the same value everywhere, so there is nothing to "
            "classify by; give a cube whose pixels differ"
        )
    return alive


def _moments(scene: Scene) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
            f"scene {scene.name!r} has {count} valid pixels among {invalid + count}: the others hold NaN, "
            "infinity or nodata; give a cube with finite values"
        )
    if invalid:
        warnings.warn(
            f"{invalid} of {invalid + count} pixels of scene {scene.name!r} hold NaN, infinity or nodata "
            "and are masked",
            DataWarning,
            stacklevel=3,
        )
    return mean, scatter / (count - 1)
