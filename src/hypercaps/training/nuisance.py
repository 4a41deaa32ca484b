"""How spectra change from one scene to the next without a change of the ground: by light, calibration and wavelength.

Another day is brighter or darker (a gain), haze or another calibration adds an offset, and the bands of a second sensor
lie a fraction of a band beside those of the first. Whitening scales the smallest components of a scene up to unit
variance, so that such a change, common to all pixels, moves them by many standard deviations. Added to the covariance
before whitening, these changes count as variation of the scene: their directions are scaled down, all others stay.
In chemometrics this is called generalised least squares weighting (Martens et al. 2003) and, where the directions are
removed altogether, as external parameter orthogonalisation (Roger et al. 2003).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hypercaps.compute import linalg

Array = npt.NDArray[np.float64]

GAIN = 0.2  # standard deviation of a factor on all bands
OFFSET = 0.05  # standard deviation of a number added to all bands, as a share of the mean of all values
SHIFT = 0.5  # bands: values move towards those of the next or of the previous band


def nuisance_covariance(mean: Array, covariance: Array) -> Array:
    """Covariance (bands, bands) of the changes of spectra with this mean (bands,) and covariance (bands, bands)."""
    second_moment = covariance + np.outer(mean, mean)  # E[x x^T]
    offset = (OFFSET * float(np.abs(mean).mean())) ** 2
    return GAIN**2 * second_moment + offset + _shift_covariance(second_moment)


def _shift_covariance(second_moment: Array) -> Array:
    """E[d d^T] of the change d = (S - 1) x, where S moves the bands by SHIFT upwards or downwards, equally likely."""
    bands = len(second_moment)
    total = np.zeros_like(second_moment)
    for neighbour in (np.minimum(np.arange(bands) + 1, bands - 1), np.maximum(np.arange(bands) - 1, 0)):
        change = np.zeros((bands, bands))
        change[np.arange(bands), neighbour] += SHIFT
        change[np.arange(bands), np.arange(bands)] -= SHIFT
        total += 0.5 * linalg.product(linalg.product(change, second_moment), change.T)
    return total
