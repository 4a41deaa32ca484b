"""c-CNN: the structure of 1D-ConvCapsNet with scalar neurons in place of capsules, and no routing."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.layers import SpatialConv, SpectralConv
from hypercaps.models.capsules.sizes import positions_after_two, window_and_stride
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
        primary_window: int | None = None,  # None: 9 and stride 2, or less for few bands
        primary_stride: int | None = None,
        conv_channels: int = 32,  # 4 arrays of 8-D capsules
        conv_window: int | None = None,
        conv_stride: int | None = None,
        class_size: int = 16,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(bands, classes, patch, locals())
        first = window_and_stride(bands, primary_window, primary_stride)
        second = window_and_stride(bands, conv_window, conv_stride)
        c3 = positions_after_two(bands, first, second)
        self.spatial = SpatialConv(patch, spatial_filters, generator=generator)
        self.primary = SpectralConv(spatial_filters, primary_channels, *first, generator)
        self.conv = SpectralConv(primary_channels, conv_channels, *second, generator)
        self.classneurons = xavier(nn.Linear(conv_channels * c3, classes * class_size), generator)
        self.output = xavier(nn.Linear(classes * class_size, classes), generator)

    def features(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> the neurons in place of 1D-ConvCaps: (B, 32, c3)"""
        convolved: Tensor = self.conv(self.primary(self.spatial(patches)).relu()).relu()
        return convolved

    def by_layers(self, patches: Tensor) -> Tensor:
        return self._logits(self.features(patches))

    def by_kernels(self, spectra: Tensor, places: Tensor) -> Tensor:
        return self._logits(kernels.layers(self._stack, spectra, places).transpose(1, 2))

    @property
    def _stack(self) -> kernels.Stack:
        return self.stack(self.primary, self.conv)

    def step_numbers(self, pixels: int) -> int:
        # What goes into and comes out of the two dense layers, and the gradients of that
        dense = sum(sum(layer.weight.shape) for layer in (self.classneurons, self.output))  # type: ignore[misc, arg-type]
        return self.layer_numbers(self._stack, pixels) + 2 * pixels * dense

    def _logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.output(self.classneurons(features.flatten(1)).relu())  # (B, n)
        return logits
