"""1D-ConvCapsNet, the paper's network."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.layers import (
    ClassCaps,
    ConvCaps1d,
    PrimaryCaps,
    SpatialConv,
    check_spectrum,
    positions_after,
)
from hypercaps.models.parts import as_places, check_odd, check_patches, check_places, check_sizes, gather_patches


class ConvCapsNet(nn.Module):
    """SpatialConv -> PrimaryCaps -> 1D-ConvCaps -> ClassCaps; defaults are the paper's structure table.

    The initial weights are drawn from ``generator``, not from torch's global generator.
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
            primary_arrays, primary_size, conv_arrays, conv_size, conv_window, conv_stride, generator=generator
        )
        self.classcaps = ClassCaps(conv_arrays, conv_size, c3, classes, class_size, routings, generator=generator)

    @property
    def is_batch_invariant(self) -> bool:
        """Whether, without gradients, a pixel's scores are the same to the bit whatever else is in its batch."""
        return kernels.usable(self.classcaps.viewpoints)

    @property
    def view(self) -> tuple[int, int]:
        """Number of components that one position of the lower capsules sees, and the step between positions."""
        primary, conv = self.primary.conv, self.conv.conv
        width = primary.weight.shape[2] + (conv.weight.shape[2] - 1) * primary.stride
        return width, primary.stride * conv.stride

    @property
    def viewpoints(self) -> Tensor:
        """Viewpoint matrices from each lower capsule to each class: (positions, arrays, n, e, d)"""
        return self.classcaps.viewpoints

    @property
    def routings(self) -> int:
        return self.classcaps.routings

    def lower_capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) whitened patches -> the capsules that are routed to the classes (B, c3, a3, d3)"""
        features = self.spatial(patches)  # (B, K, C)
        children: Tensor = self.conv(self.primary(features))
        return children

    def capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) whitened patches -> class capsules (B, n, d), layer by layer as in the paper"""
        capsules: Tensor = self.classcaps(self.lower_capsules(patches))
        return capsules

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) whitened patches -> lengths of the class capsules (B, n), each in [0, 1)"""
        check_patches(patches, self.patch, self.bands)
        if kernels.usable(patches, self.classcaps.viewpoints) and not patches.requires_grad:
            return self.forward_indexed(*as_places(patches))
        return self._lengths(self.capsules(patches))

    def forward_indexed(self, spectra: Tensor, places: Tensor) -> Tensor:
        """As ``forward``, from spectra (S, C) and the row of each patch's pixels in them, (B, D*D) int32.

        Patches are not copied: neighbouring patches share their pixels.
        """
        check_places(spectra, places, self.patch, self.bands)
        if not kernels.usable(spectra, self.classcaps.viewpoints):
            return self._lengths(self.capsules(gather_patches(spectra, places)))
        viewpoints = self.classcaps.viewpoints.flatten(0, 1)
        return kernels.lengths(self._stack(), viewpoints, self.classcaps.routings, spectra, places)

    def _stack(self) -> kernels.Stack:
        primary, conv = self.primary.conv, self.conv.conv
        return kernels.Stack(
            self.spatial.weight,
            self.spatial.bias,
            primary.weight,
            primary.bias,
            conv.weight,
            conv.bias,
            strides=(primary.stride, conv.stride),
            capsule=self.conv.size,
        )

    @staticmethod
    def _lengths(capsules: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(capsules, dim=2)
        return lengths
