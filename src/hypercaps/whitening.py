"""PCA-whitening: bands become uncorrelated components of unit variance, the largest first."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hypercaps.errors import DataWarning, SceneError
from hypercaps.scene import Scene, tile_windows

_READ_VALUES = 1 << 23  # values read at a time while fitting: 32 MB of float32, 64 MB of float64


@dataclass(frozen=True, eq=False)
class PCAWhitening:
    """y = (x - mean) @ matrix, learned from the valid pixels of a scene.

    Components with no variance (dead or repeated bands) have a zero column: they give zeros, never inf.
    """

    mean: npt.NDArray[np.float64]  # (bands,)
    matrix: npt.NDArray[np.float64]  # (bands, components): column i is eigenvector i / sqrt(eigenvalue i)
    variances: npt.NDArray[np.float64]  # (components,): eigenvalues of the covariance, descending

    @property
    def bands(self) -> int:
        return int(self.mean.size)

    @classmethod
    def fit(cls, scene: Scene) -> PCAWhitening:
        """One streamed pass over the valid pixels: exact mean and covariance in float64 at any scene size."""
        count, mean, scatter = _moments(scene)
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
                stacklevel=2,
            )
        return cls.from_covariance(mean, scatter / (count - 1), name=scene.name)

    @classmethod
    def from_covariance(
        cls, mean: npt.NDArray[np.float64], covariance: npt.NDArray[np.float64], name: str = "scene"
    ) -> PCAWhitening:
        """Whitening for a known mean (bands,) and covariance (bands, bands)."""
        variances, vectors = np.linalg.eigh(covariance)  # ascending; vectors in columns
        variances, vectors = variances[::-1].copy(), vectors[:, ::-1].copy()
        # A constant band of large values leaves rounding noise, so the floor follows the mean as well.
        scale = np.finfo(np.float64).eps * mean.size
        floor = scale * max(float(variances[0]), float(np.square(mean).max()) * scale)
        alive = variances > floor
        if not alive.any():
            raise SceneError(
                f"scene {name!r} is constant: every band has the same value everywhere, so there is nothing to "
                "classify by; give a cube whose pixels differ"
            )
        # The sign of an eigenvector is arbitrary: its largest entry is made positive, so two fits agree.
        largest = np.abs(vectors).argmax(axis=0)
        vectors *= np.sign(vectors[largest, np.arange(mean.size)])
        matrix = np.where(alive, vectors / np.sqrt(np.where(alive, variances, 1.0)), 0.0)
        return cls(mean, matrix, np.where(alive, variances, 0.0))

    def transform(self, values: npt.NDArray[np.floating], valid: npt.NDArray[np.bool_] | None = None) -> Tensor:
        """(..., bands) in physical units to (..., components), float32; zeros where not ``valid`` (...).

        Computed in float64: small components are differences of large numbers. torch's product is used, not
        numpy's, because two pools of threads on the same cores cost more than the product.
        """
        flat = values.reshape(-1, self.bands).astype(np.float64)
        if valid is not None and not valid.all():
            flat[~valid.ravel()] = self.mean
        flat -= self.mean
        white = torch.from_numpy(flat) @ torch.from_numpy(self.matrix)
        return white.float().view(values.shape)


def _moments(scene: Scene) -> tuple[int, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Count, mean (bands,) and scatter (bands, bands) of the valid pixels, block by block.

    Blocks are centred on their own mean before they are merged (Chan, Golub and LeVeque 1983), so nothing
    is lost to cancellation however many pixels there are.
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
        centred = torch.from_numpy(block)
        scatter += (centred.T @ centred).numpy()
        scatter += np.outer(step, step) * (count * n / (count + n))
        mean += step * (n / (count + n))
        count += n
    return count, mean, scatter
