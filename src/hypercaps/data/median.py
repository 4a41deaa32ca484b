"""The median of an array; numpy's own imports ``numpy.ma`` first, for arrays that are masked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def median(values: npt.NDArray[np.floating[Any]]) -> float:
    """Median of at least one number, none of them NaN, as ``np.median`` computes it."""
    ordered = np.sort(values, axis=None)
    half = ordered.size // 2
    return float(ordered[half] if ordered.size % 2 else (ordered[half - 1] + ordered[half]) / 2)
