"""Folds for cross-validation inside a method's ``solve``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def unit_folds(targets: Integers, units: Integers | None, most: int = 3, seed: int = 0) -> tuple[Integers, int]:
    """Fold (N,) of each pixel, and the number of folds; fewer than 2: there are too few units.

    Pixels of a spatial unit share a fold, because neighbouring pixels are alike: a pixel that is held out alone is
    hardly a test. Every fold has at least two units. The units of a class are dealt out in turn, so that most folds
    contain every class. Without ``units``, each pixel is one.
    """
    names, of_pixel = np.unique(np.arange(targets.size) if units is None else units, return_inverse=True)
    folds = min(most, names.size // 2)
    if folds < 2:
        return np.zeros(targets.size, dtype=np.int64), folds
    first = np.unique(of_pixel, return_index=True)[1]  # a pixel of each unit
    order = np.random.default_rng(seed).permutation(names.size)
    order = order[np.argsort(targets[first][order], kind="stable")]  # by class, in random order inside
    fold_of_unit = np.empty(names.size, dtype=np.int64)
    fold_of_unit[order] = np.arange(names.size) % folds
    return fold_of_unit[of_pixel], folds
