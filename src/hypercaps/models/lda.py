"""Linear discriminant analysis with a shrunk covariance."""

from __future__ import annotations

import numpy as np

from hypercaps.compute import linalg
from hypercaps.models.linear import Array, LinearClassifier
from hypercaps.models.protocols import Samples

_ROUNDING = 1e-7  # of a float32, relative to the largest value
_LEAST_SHRINKAGE = 1e-4  # keeps the covariance invertible where the estimate is zero


class LDA(LinearClassifier):
    """Gaussian classes with their own means and one covariance, that within the classes.

    The covariance is shrunk towards independent bands by Ledoit and Wolf's estimate, so that fewer pixels than bands
    suffice. Prior probabilities are the classes' shares of the training pixels, as in scikit-learn. Those describe
    how pixels were labelled, not how much of the scene a class covers.
    """

    def solve(self, training: Samples, validation: Samples | None = None) -> None:
        """Fit to spectra; validation pixels and units are not used."""
        spectra = training.features.numpy()  # (N, C)
        present, of_pixel, counts = np.unique(training.targets.numpy(), return_inverse=True, return_counts=True)
        with linalg.one_thread():
            means = np.zeros((present.size, self.bands))  # (m, C)
            np.add.at(means, of_pixel, spectra)
            means /= counts[:, None]
            floor = _ROUNDING * np.abs(spectra).max()
            covariance, deviations = within_covariance(spectra - means[of_pixel], present.size, floor)
            # Relative to the overall mean: the weights stay the same, and the constants are smaller.
            middle = spectra.mean(axis=0)
            scaled = (means - middle) / deviations  # (m, C)
            solved = np.linalg.solve(covariance, scaled.T).T  # (m, C)
            weight = solved / deviations
            bias = np.log(counts / counts.sum()) - (scaled * solved).sum(axis=1) / 2 - weight @ middle
        self._set(weight, bias, present)


def within_covariance(residuals: Array, classes: int, floor: float) -> tuple[Array, Array]:
    """Shrunk covariance (C, C) of the scaled bands, and the deviations (C,) that scale them.

    ``residuals`` (N, C) are spectra minus the means of their classes. Bands whose deviation inside the classes is not
    above ``floor`` are not scaled; if none is, the covariance is that of independent bands.
    """
    pixels, bands = residuals.shape
    deviations = np.sqrt(np.square(residuals).mean(axis=0))
    alive = deviations > floor
    deviations[~alive] = 1.0
    if not alive.any():  # every class consists of one pixel, or of equal ones
        return np.eye(bands), deviations
    scaled = residuals / deviations
    covariance = linalg.gram(scaled) / pixels
    variance = float(covariance.trace()) / bands
    shrinkage = max(ledoit_wolf(scaled, covariance), _LEAST_SHRINKAGE)
    shrunk = (1 - shrinkage) * covariance + shrinkage * variance * np.eye(bands)
    # The class means were estimated from the same pixels, which makes the residuals too small.
    return shrunk * (pixels / max(pixels - classes, 1)), deviations


def ledoit_wolf(centred: Array, covariance: Array) -> float:
    """Weight of the mean variance in the covariance (C, C) of centred rows (N, C), from 0 to 1.

    Ledoit and Wolf 2004: the weight that is expected to minimise the squared error of all entries.
    """
    pixels, bands = centred.shape
    variance = covariance.trace() / bands
    distance = np.square(covariance).sum() - bands * variance**2  # of the covariance from its target
    # Sum over all entries of their squared deviations between pixels: |x x'|^2 is |x|^4.
    spread = np.square(np.square(centred).sum(axis=1)).sum() / pixels - np.square(covariance).sum()
    return 1.0 if distance <= 0 else float(np.clip(spread / pixels / distance, 0.0, 1.0))
