"""1D-ConvCapsNet, the paper's network."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.compiled import CompiledConvCapsNet
from hypercaps.models.capsules.layers import ClassCaps, ConvCaps1d, PrimaryCaps, SpatialConv
from hypercaps.models.capsules.loss import margin_loss_and_gradient
from hypercaps.models.capsules.packing import class_padding
from hypercaps.models.capsules.sizes import ConvCapsSizes
from hypercaps.models.parts import CapsuleNetwork, IndexedNetwork


class ConvCapsNet(IndexedNetwork, CapsuleNetwork):
    """SpatialConv -> PrimaryCaps -> 1D-ConvCaps -> ClassCaps, with the sizes of :class:`ConvCapsSizes`.

    The initial weights are drawn from ``generator``, not from torch's global generator.
    """

    def __init__(
        self, bands: int, classes: int, *, patch: int = 7, generator: Generator | None = None, **structure: int
    ) -> None:
        """``structure`` are fields of :class:`ConvCapsSizes`."""
        sizes = ConvCapsSizes(bands, classes, patch, **structure)
        super().__init__(bands, classes, patch, vars(sizes))
        filters, arrays, size = sizes.spatial_filters, sizes.primary_arrays, sizes.primary_size
        c3 = sizes.positions
        self.sizes = sizes
        self.spatial = SpatialConv(patch, filters, generator=generator)
        self.primary = PrimaryCaps(filters, arrays, size, *sizes.primary, generator=generator)
        self.conv = ConvCaps1d(arrays, size, sizes.conv_arrays, sizes.conv_size, *sizes.conv, generator=generator)
        self.classcaps = ClassCaps(
            sizes.conv_arrays, sizes.conv_size, c3, classes, sizes.class_size, sizes.routings, generator=generator
        )

    @property
    def is_batch_invariant(self) -> bool:
        return kernels.usable(self.classcaps.viewpoints)

    def compiled(self) -> CompiledConvCapsNet | None:
        """The same weights for the kernels alone; None where ``is_batch_invariant`` is False."""
        if not self.is_batch_invariant:
            return None
        weights = {name: weight.detach().numpy() for name, weight in self.state_dict().items()}
        return CompiledConvCapsNet(self.sizes, weights)

    @property
    def view(self) -> tuple[int, int]:
        primary, conv = self.primary.conv, self.conv.conv
        width = primary.weight.shape[2] + (conv.weight.shape[2] - 1) * primary.stride
        return width, primary.stride * conv.stride

    @property
    def _stack(self) -> kernels.Stack:
        return self.stack(self.primary.conv, self.conv.conv, capsule=self.conv.size)

    def step_numbers(self, pixels: int) -> int:
        positions, arrays, classes, size, class_size = self.viewpoints.shape
        capsules = positions * arrays
        class_capsules = 4 * classes * (class_size + class_padding(class_size))  # sums, capsules, and both gradients
        couplings = capsules * classes
        return self.layer_numbers(self._stack, pixels) + pixels * (class_capsules + couplings + capsules * size)

    def lower_capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) whitened patches -> the capsules that are routed to the classes (B, c3, a3, d3)"""
        children: Tensor = self.conv(self.primary(self.spatial(patches)))
        return children

    def by_layers(self, patches: Tensor) -> Tensor:
        return self.lengths(patches)

    def by_kernels(self, spectra: Tensor, places: Tensor) -> Tensor:
        return kernels.lengths(self._stack, self.viewpoints.flatten(0, 1), self.routings, spectra, places)

    @torch.no_grad()
    def set_gradients(self, spectra: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        self.check_places(spectra, places)
        stack, viewpoints = self._stack, self.viewpoints
        lengths, back = kernels.lengths_with_back(stack, viewpoints.flatten(0, 1), self.routings, spectra, places)
        loss, gradient = margin_loss_and_gradient(lengths, targets)
        for weight, of_weight in zip((viewpoints, *stack.weights), back(gradient), strict=True):
            if weight.requires_grad:
                weight.grad = of_weight.contiguous().view_as(weight)
        return loss
