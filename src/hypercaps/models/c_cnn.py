"""c-CNN: the structure of 1D-ConvCapsNet with scalar neurons in place of capsules, and no routing."""

from __future__ import annotations

from torch import Generator, Tensor, nn

from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.layers import SpatialConv, check_spectrum, positions_after
from hypercaps.models.parts import (
    as_places,
    check_odd,
    check_patches,
    check_places,
    check_sizes,
    gather_patches,
    xavier,
)


class ConvCNN(nn.Module):
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
        super().__init__()
        check_sizes(locals())
        check_odd(patch)
        check_spectrum(bands, primary_window, primary_stride, conv_window)
        self.bands, self.classes, self.patch = bands, classes, patch
        c2 = positions_after(bands, primary_window, primary_stride)
        c3 = positions_after(c2, conv_window, conv_stride)
        self.spatial = SpatialConv(patch, spatial_filters, generator=generator)
        self.primary = xavier(nn.Conv1d(spatial_filters, primary_channels, primary_window, primary_stride), generator)
        self.conv = xavier(nn.Conv1d(primary_channels, conv_channels, conv_window, conv_stride), generator)
        self.classneurons = xavier(nn.Linear(conv_channels * c3, classes * class_size), generator)
        self.output = xavier(nn.Linear(classes * class_size, classes), generator)

    def features(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> the neurons in place of 1D-ConvCaps: (B, 32, c3)"""
        convolved: Tensor = self.conv(self.primary(self.spatial(patches)).relu()).relu()
        return convolved

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> logits (B, n)"""
        check_patches(patches, self.patch, self.bands)
        if kernels.usable(patches, self.spatial.weight) and not patches.requires_grad:
            return self.forward_indexed(*as_places(patches))
        return self._logits(self.features(patches))

    def forward_indexed(self, spectra: Tensor, places: Tensor) -> Tensor:
        """As ``forward``, from spectra (S, C) and the row of each patch's pixels in them, (B, D*D) int32."""
        check_places(spectra, places, self.patch, self.bands)
        if not kernels.usable(spectra, self.spatial.weight):
            return self._logits(self.features(gather_patches(spectra, places)))
        primary, conv = self.primary, self.conv
        assert isinstance(primary, nn.Conv1d) and isinstance(conv, nn.Conv1d)
        assert primary.bias is not None and conv.bias is not None
        stack = kernels.Stack(
            self.spatial.weight,
            self.spatial.bias,
            primary.weight,
            primary.bias,
            conv.weight,
            conv.bias,
            strides=(primary.stride[0], conv.stride[0]),
            capsule=0,
        )
        return self._logits(kernels.layers(stack, spectra, places).transpose(1, 2))

    def _logits(self, features: Tensor) -> Tensor:
        neurons = self.classneurons(features.flatten(1)).relu()  # (B, n*16)
        logits: Tensor = self.output(neurons)
        return logits
