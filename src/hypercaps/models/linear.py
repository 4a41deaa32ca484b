"""Base of linear classifiers on one pixel's spectrum, or on the mean spectrum of a window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor, nn

from hypercaps.models.parts import PatchNetwork

Array = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]

_NEVER = -1e6  # score of a class without training pixels: finite, and below that of any other class


class LinearClassifier(PatchNetwork):
    """scores = weight @ (mean spectrum of the patch) + bias; the softmax of the scores is the confidence.

    Subclasses have ``solve``, which sets weight and bias. As the mean of a patch's scores is the score of its mean,
    ``inference.linear_map`` maps these methods without patches (``protocols.Linear``).
    """

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 1,
        generator: Generator | None = None,  # not used; every method takes one
    ) -> None:
        super().__init__(bands, classes, patch, {"bands": bands, "classes": classes, "patch": patch})
        self.weight = nn.Parameter(torch.zeros(classes, bands), requires_grad=False)  # (n, C)
        self.bias = nn.Parameter(torch.zeros(classes), requires_grad=False)  # (n,)

    @property
    def found(self) -> dict[str, int | float]:
        """The part of the structure that ``solve`` determined."""
        return {}

    def weight_and_bias(self) -> tuple[Tensor, Tensor]:
        return self.weight, self.bias

    def features(self, patches: Tensor) -> Tensor:
        """The mean spectra: (B, D, D, C) -> (B, C) float64"""
        return mean_spectra(patches)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> scores (B, n), which may be any numbers"""
        # In float64: neighbouring bands are alike, and large weights of different signs cancel.
        scores = self.features(patches) @ self.weight.double().T + self.bias.double()
        return scores.float()

    def _set(self, weight: Array, bias: Array, present: Classes) -> None:
        """Set weights (m, C) and biases (m,) of the classes ``present`` (m,)."""
        self.weight.zero_()
        self.bias.fill_(_NEVER)
        at = torch.from_numpy(present)
        self.weight[at] = torch.from_numpy(weight).float()
        self.bias[at] = torch.from_numpy(bias).float()


def mean_spectra(patches: Tensor) -> Tensor:
    """The mean of each band over a patch, or the spectrum of a single pixel: (B, D, D, C) -> (B, C) float64"""
    return patches.double().mean(dim=(1, 2))


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension (..., n), added class after class.

    The sum of a pixel then has the same order, and the same bits, whatever else is in the batch.
    """
    likely = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    total = torch.zeros_like(likely[..., 0])
    for of_class in likely.unbind(dim=-1):
        total += of_class
    return likely / total.unsqueeze(-1)
