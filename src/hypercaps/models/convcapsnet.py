"""1D-ConvCapsNet, the paper's network."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from hypercaps.capsules.layers import ClassCaps, ConvCaps1d, PrimaryCaps, SpatialConv, check_spectrum, positions_after
from hypercaps.models.parts import check_odd, check_sizes


class ConvCapsNet(nn.Module):
    """SpatialConv -> PrimaryCaps -> 1D-ConvCaps -> ClassCaps; defaults are the paper's structure table.

    ``generator`` makes the initial weights repeatable without touching torch's global one.
    """

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 7,
        spatial_filters: int = 16,
        primary_arrays: int = 2,
        primary_size: int = 8,
        primary_window: int = 9,
        primary_stride: int = 2,
        conv_arrays: int = 4,
        conv_size: int = 8,
        conv_window: int = 9,
        conv_stride: int = 2,
        class_size: int = 16,
        routings: int = 3,
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
        self.primary = PrimaryCaps(
            spatial_filters, primary_arrays, primary_size, primary_window, primary_stride, generator=generator
        )
        self.conv = ConvCaps1d(
            primary_arrays,
            primary_size,
            conv_arrays,
            conv_size,
            conv_window,
            conv_stride,
            generator=generator,
        )
        self.classcaps = ClassCaps(conv_arrays, conv_size, c3, classes, class_size, routings, generator=generator)

    def capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) whitened patches -> class capsules (B, n, d)"""
        features = self.spatial(patches)  # (B, K, C)
        children = self.conv(self.primary(features))  # (B, a3, d3, c3)
        capsules: Tensor = self.classcaps(children)
        return capsules

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) whitened patches -> lengths of the class capsules (B, n), each in [0, 1)"""
        lengths: Tensor = torch.linalg.vector_norm(self.capsules(patches), dim=2)
        return lengths
