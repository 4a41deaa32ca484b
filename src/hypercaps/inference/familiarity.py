"""Familiarity: how similar a pixel is to the ground that was labelled.

Every scene has ground of no class, and a classifier assigns a class to it as well. Here a pixel's window is compared
with windows that were labelled (prototypes), by the squared distance of their mean spectra to the nearest one. The
distances of labelled pixels that were held out show how far known ground can be: familiarity is the share of them that
is at least as far away, so that pixels below a threshold P include a share P of known ground. Compare the area of
applicability (Meyer and Pebesma 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hypercaps.compute import linalg, native
from hypercaps.data.pixels import Pixels
from hypercaps.inference.patch_means import patch_means
from hypercaps.training.preprocessing import project

Array = npt.NDArray[np.float64]
Values = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

WINDOWS = (1, 3, 7, 11)  # sides from which a fit chooses
_AT_ONCE = 1024  # pixels


@dataclass(frozen=True, eq=False)
class Familiarity:
    """Prototypes of the labelled ground, and distances of known ground to them; float64, named as in model files."""

    window: int  # side in pixels
    mean: Array  # (bands,)
    matrix: Array  # (bands, k): components of a spectrum x are (x - mean) @ matrix
    prototypes: Array  # (P, k) components of the mean spectra of labelled windows
    known: Array  # (Q,) squared distances of held-out labelled pixels, ascending

    def __post_init__(self) -> None:
        """Refuse arrays of another shape or type, or with NaN: they may come from a file."""
        if self.window not in WINDOWS:
            raise ValueError(f"a window of {self.window} pixels is none of familiarity")
        k = self.matrix.shape[1] if self.matrix.ndim == 2 else 0
        shapes = {
            "mean": (self.mean.size,),
            "matrix": (self.mean.size, k),
            "prototypes": (len(self.prototypes), k),
            "known": (self.known.size,),
        }
        for name, shape in shapes.items():
            array = getattr(self, name)
            is_sound = array.shape == shape and array.size > 0 and array.dtype == np.float64
            if not (is_sound and np.isfinite(array).all()):
                raise ValueError(f"the {name} of its familiarity is not {' x '.join(map(str, shape))} finite numbers")
        if (self.known < 0).any() or (np.diff(self.known) < 0).any():
            raise ValueError("the distances of its familiarity do not ascend from 0")

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> Familiarity:
        """From what ``arrays`` gives."""
        parts = dict(arrays)
        window = parts.pop("window")
        if window.shape != (1,) or window.dtype != np.int64:
            raise ValueError("the window of its familiarity is not a whole number")
        return cls(int(window.item()), **parts)  # type: ignore[arg-type]  # checked above

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """For the model file."""
        floats = {name: getattr(self, name) for name in ("mean", "matrix", "prototypes", "known")}
        return {"window": np.array([self.window]), **floats}

    @property
    def bands(self) -> int:
        return int(self.mean.size)

    @property
    def halo(self) -> int:
        """Pixels around a window of a scene that its familiarity needs."""
        return self.window // 2

    def of_window(self, pixels: Pixels, mapped: Mask) -> Values:
        """Familiarity (h, w), 0 to 1, of the mapped pixels (h, w) of a window given with its halo; NaN elsewhere.

        A pixel's bits depend neither on the window nor on the number of threads.
        """
        familiarity = np.full(mapped.shape, np.nan, dtype=np.float32)
        components = _product(pixels.values, pixels.valid, self.mean, self.matrix)  # (h + D - 1, w + D - 1, k)
        strip = max(1, _AT_ONCE // mapped.shape[1])  # rows: the means are larger than the components
        for r0 in range(0, len(mapped), strip):
            chosen = mapped[r0 : r0 + strip]
            if chosen.any():
                around = slice(r0, r0 + len(chosen) + self.window - 1)
                means = patch_means(components[around], pixels.valid[around], self.window)[chosen]
                familiarity[r0 : r0 + strip][chosen] = self.shares(self.distances(means.astype(np.float32)))
        return familiarity

    def distances(self, components: Values) -> Array:
        """Squared distances (N,) of components (N, k) to the nearest prototype."""
        squared = np.empty(len(components))
        for start in range(0, len(components), _AT_ONCE):
            chunk = components[start : start + _AT_ONCE]
            # |x|^2 - 2 x.p + |p|^2 around the centre of the prototypes, where the three are small.
            products = _product(chunk, None, self._centre, self._directions)  # (n, P)
            squares = _product(np.square(chunk - self._centre.astype(np.float32)), None, *self._sum)[:, 0]
            nearest = (products - self._half_squares).max(axis=1)
            squared[start : start + _AT_ONCE] = squares - 2 * nearest
        return np.maximum(squared, 0.0)

    def shares(self, distances: Array) -> Values:
        """Share of known ground that is at least as far away, as a conformal p-value (N,); it goes on beyond them."""
        as_far = self.known.size - np.searchsorted(self.known, distances, side="left")
        farthest = max(self.known[-1], np.finfo(np.float64).tiny)
        beyond = farthest / np.maximum(distances, farthest)  # 1 for known distances
        shares: Values = ((as_far + beyond) / (self.known.size + 1)).astype(np.float32)
        return shares

    @cached_property
    def _centre(self) -> Array:
        return np.asarray(self.prototypes.mean(axis=0))

    @cached_property
    def _directions(self) -> Array:
        """(k, P) from the centre to each prototype"""
        return np.ascontiguousarray((self.prototypes - self._centre).T)

    @cached_property
    def _half_squares(self) -> Array:
        return np.asarray(np.square(self._directions).sum(axis=0) / 2)

    @cached_property
    def _sum(self) -> tuple[Array, Array]:
        """Mean and matrix of the product that sums all components."""
        return np.zeros(self.matrix.shape[1]), np.ones((self.matrix.shape[1], 1))


def _product(values: Values, valid: Mask | None, mean: Array, matrix: Array) -> Values:
    """(values - mean) @ matrix, (..., n) -> (..., m), zeros where not valid; by the same sums for every pixel."""
    if native.available():
        return project(values, valid, mean, matrix)
    flat = values.reshape(-1, mean.size)
    products = np.empty((len(flat), matrix.shape[1]), dtype=np.float32)
    for start in range(0, len(flat), _AT_ONCE):
        products[start : start + _AT_ONCE] = linalg.product(flat[start : start + _AT_ONCE] - mean, matrix)
    if valid is not None:
        products[~valid.ravel()] = 0
    return products.reshape(*values.shape[:-1], -1)
