"""c-CNN: the structure of 1D-ConvCapsNet with scalar neurons in place of capsules, and no routing."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.layers import SpatialConv, SpectralConv, positions_after_two
from hypercaps.models.parts import IndexedNetwork, xavier


class ConvCNN(IndexedNetwork):
    """The layers of 1D-ConvCapsNet's structure table, with a ReLU neuron for every element of a capsule.

    Where the capsule network takes the length of a class capsule, one dense layer maps the n x 16 neurons to n logits.
    """

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 7,
        spatial_filters: int = 16,
        primary_channels: int = 16,  # 2 arrays of 8-D capsules
        primary_window: int = 9,
        primary_stride: int = 2,
        conv_channels: int = 32,  # 4 arrays of 8-D capsules
        conv_window: int = 9,
        conv_stride: int = 2,
        class_size: int = 16,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(bands, classes, patch, locals())
        c3 = positions_after_two(bands, (primary_window, primary_stride), (conv_window, conv_stride))
        self.spatial = SpatialConv(patch, spatial_filters, generator=generator)
        self.primary = SpectralConv(spatial_filters, primary_channels, primary_window, primary_stride, generator)
        self.conv = SpectralConv(primary_channels, conv_channels, conv_window, conv_stride, generator)
        self.classneurons = xavier(nn.Linear(conv_channels * c3, classes * class_size), generator)
        self.output = xavier(nn.Linear(classes * class_size, classes), generator)

    def features(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> the neurons in place of 1D-ConvCaps: (B, 32, c3)"""
        convolved: Tensor = self.conv(self.primary(self.spatial(patches)).relu()).relu()
        return convolved

    def by_layers(self, patches: Tensor) -> Tensor:
        return self._logits(self.features(patches))

    def by_kernels(self, spectra: Tensor, places: Tensor) -> Tensor:
        stack = self.stack(self.primary, self.conv)
        return self._logits(kernels.layers(stack, spectra, places).transpose(1, 2))

    def _logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.output(self.classneurons(features.flatten(1)).relu())  # (B, n)
        return logits
