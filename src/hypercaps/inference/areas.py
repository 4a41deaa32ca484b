"""Areas of classes, corrected for the errors of the map, with intervals.

The estimator is that of stratified samples of Olofsson et al. 2014, "Good practices for estimating area and assessing
accuracy of land change", doi:10.1016/j.rse.2014.02.015. The strata are the classes of the map. It assumes that the
labelled pixels of each mapped class are a random sample of it; of other labels, it is an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Legend

Numbers = npt.NDArray[np.integer[Any]] | npt.NDArray[np.floating[Any]]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ClassArea:
    """The area of one class in pixels."""

    label: int
    name: str
    mapped_pixels: int  # as mapped
    pixels: float  # corrected
    low: float  # interval of the corrected area
    high: float
    checked: bool  # False: no labelled pixel is mapped as this class, so that its mapped area is taken as it is


def class_areas(
    legend: Legend,
    confusion: Numbers,
    mapped: Numbers,
    *,
    units: Numbers | None = None,
    level: float = 0.95,
) -> tuple[ClassArea, ...]:
    """Estimate the area of each class on the ground.

    Parameters
    ----------
    legend : the n classes
    confusion : (n, n) test pixels: true class by row, mapped class by column
    mapped : (n,) pixels of each class in the map
    units : (n,) number of independent units (polygons, areas) among the test pixels of each mapped class; None: every
        pixel is independent
    level : probability of the intervals, 0 to 1
    """
    from scipy.special import ndtri

    pixels = np.asarray(mapped, dtype=np.float64)
    total = float(pixels.sum())
    if not total > 0:
        raise ValueError("the map has no pixel of any class")
    shares, errors = _estimate(np.asarray(confusion, dtype=np.float64).T, pixels / total, units)
    half = float(ndtri((1 + level) / 2)) * errors
    tested = np.asarray(confusion).sum(axis=0) > 0
    return tuple(
        ClassArea(
            entry.label,
            entry.name,
            int(pixels[j]),
            total * float(shares[j]),
            total * max(0.0, float(shares[j] - half[j])),
            total * min(1.0, float(shares[j] + half[j])),
            bool(tested[j] or pixels[j] == 0),
        )
        for j, entry in enumerate(legend)
    )


def _estimate(counts: Floats, weight: Floats, units: Numbers | None) -> tuple[Floats, Floats]:
    """(n,) share of each true class on the ground, and its standard error.

    counts : (n, n) test pixels n_ij of mapped class i and true class j
    weight : (n,) W_i, share of each class in the map
    """
    of_stratum = counts.sum(axis=1)  # n_i.
    rows = counts / np.maximum(of_stratum, 1.0)[:, None]  # n_ij / n_i.
    rows[of_stratum == 0] = np.eye(len(counts))[of_stratum == 0]  # nothing is known about errors there
    p = weight[:, None] * rows  # p_ij = W_i n_ij / n_i. (Olofsson et al., Eq. 4)
    sample, spread = of_stratum, p
    if units is not None:
        # A few units that are all right do not make an area certain: shares for the variance are smoothed by one unit.
        sample = np.minimum(np.asarray(units, dtype=np.float64), of_stratum)
        spread = weight[:, None] * (rows * sample[:, None] + 1 / len(counts)) / (sample[:, None] + 1)
    # S(p_.j)^2 is the sum over i of (W_i p_ij - p_ij^2) / (n_i. - 1) (Olofsson et al., Eq. 10).
    variance = (weight[:, None] * spread - spread**2) / np.maximum(sample - 1.0, 1.0)[:, None]
    return p.sum(axis=0), np.sqrt(np.maximum(variance, 0.0).sum(axis=0))
