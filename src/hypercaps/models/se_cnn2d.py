"""Se-2D-CNN: a semi-supervised encoder-decoder with skip connections.

After Liu et al. (2017), Remote Sensing Letters 8(9), doi:10.1080/2150704X.2017.1331053: the encoder classifies, the
decoder reconstructs the centre pixel's spectrum, so that unlabelled pixels train the encoder as well.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Generator, Tensor, nn

from hypercaps.errors import ModelError
from hypercaps.models.parts import PatchNetwork, xavier


class Coded(NamedTuple):
    """Output of the encoder, and its intermediate maps for the decoder's skip connections."""

    convolved: Tensor  # (B, 80, D-2, D-2), normalised
    pooled: Tensor  # (B, 80, P, P), after ReLU
    logits: Tensor  # (B, n)


class SemiCNN(PatchNetwork):
    """3x3 convolution, batch norm, 2x2 max pooling, ReLU, dense to classes; and a mirrored decoder."""

    def __init__(
        self, bands: int, classes: int, *, patch: int = 9, maps: int = 80, generator: Generator | None = None
    ) -> None:
        super().__init__(bands, classes, patch, locals())
        if patch < 5:
            raise ModelError(f"se-2d-cnn convolves and pools, and patch is {patch}: at least 5 is needed")
        side, pooled = patch - 2, (patch - 2) // 2  # after the convolution, after the pooling
        self._convolved, self._pooled = (maps, side, side), (maps, pooled, pooled)
        self.conv = xavier(nn.Conv2d(bands, maps, 3), generator)
        self.norm = nn.BatchNorm2d(maps)
        self.dense = xavier(nn.Linear(maps * pooled * pooled, classes), generator)
        self.to_pooled = xavier(nn.Linear(classes, maps * pooled * pooled), generator)
        self.norm_pooled = nn.BatchNorm2d(maps)
        self.to_convolved = xavier(nn.Linear(maps * pooled * pooled, maps * side * side), generator)
        self.norm_convolved = nn.BatchNorm2d(maps)
        self.to_spectrum = xavier(nn.Linear(maps * side * side, bands), generator)

    def encode(self, patches: Tensor) -> Coded:
        convolved = self.norm(self.conv(patches.permute(0, 3, 1, 2)))  # (B, 80, D-2, D-2)
        pooled = F.max_pool2d(convolved, 2).relu()
        return Coded(convolved, pooled, self.dense(pooled.flatten(1)))

    def decode(self, coded: Coded) -> Tensor:
        """Reconstructed spectra of the centre pixels: (B, C)"""
        pooled = self.to_pooled(coded.logits).view(-1, *self._pooled)
        pooled = self.norm_pooled(pooled + coded.pooled).relu()
        convolved = self.to_convolved(pooled.flatten(1)).view(-1, *self._convolved)
        convolved = self.norm_convolved(convolved + coded.convolved).relu()
        spectra: Tensor = self.to_spectrum(convolved.flatten(1))
        return spectra

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> logits (B, n)"""
        return self.encode(patches).logits

    def reconstruction_error(self, patches: Tensor, coded: Coded | None = None) -> Tensor:
        """Mean squared error of the reconstructed centre spectra: a scalar; needs no labels."""
        centre = patches[:, self.patch // 2, self.patch // 2]  # (B, C)
        return F.mse_loss(self.decode(coded or self.encode(patches)), centre)


def semi_supervised_loss(network: nn.Module, patches: Tensor, targets: Tensor, unlabelled: Tensor) -> Tensor:
    """Cross-entropy of the labelled patches, and the reconstruction error of labelled and unlabelled ones together."""
    assert isinstance(network, SemiCNN)
    together = torch.cat([patches, unlabelled])
    coded = network.encode(together)
    return F.cross_entropy(coded.logits[: len(targets)], targets) + network.reconstruction_error(together, coded)
