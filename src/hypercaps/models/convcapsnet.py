"""1D-ConvCapsNet, the paper's network."""

from __future__ import annotations

from torch import Generator, Tensor

from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.layers import ClassCaps, ConvCaps1d, PrimaryCaps, SpatialConv, positions_after_two
from hypercaps.models.parts import CapsuleNetwork, IndexedNetwork


class ConvCapsNet(IndexedNetwork, CapsuleNetwork):
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
        super().__init__(bands, classes, patch, locals())
        c3 = positions_after_two(bands, (primary_window, primary_stride), (conv_window, conv_stride))
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
        return kernels.usable(self.classcaps.viewpoints)

    @property
    def view(self) -> tuple[int, int]:
        primary, conv = self.primary.conv, self.conv.conv
        width = primary.weight.shape[2] + (conv.weight.shape[2] - 1) * primary.stride
        return width, primary.stride * conv.stride

    def lower_capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) whitened patches -> the capsules that are routed to the classes (B, c3, a3, d3)"""
        children: Tensor = self.conv(self.primary(self.spatial(patches)))
        return children

    def by_layers(self, patches: Tensor) -> Tensor:
        return self.lengths(patches)

    def by_kernels(self, spectra: Tensor, places: Tensor) -> Tensor:
        stack = self.stack(self.primary.conv, self.conv.conv, capsule=self.conv.size)
        return kernels.lengths(stack, self.viewpoints.flatten(0, 1), self.routings, spectra, places)
