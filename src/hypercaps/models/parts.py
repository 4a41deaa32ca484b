"""Base classes and helpers that several networks share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from hypercaps.compute import native
from hypercaps.errors import ModelError
from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.layers import ClassCaps, SpatialConv, SpectralConv
from hypercaps.models.capsules.sizes import check_centre, check_sizes


class PatchNetwork(nn.Module):
    """A network on patches (B, D, D, C); refuses sizes below 1 and patches without a centre."""

    single_pixel_method: ClassVar[str | None] = None  # name of a method whose only patch is 1 x 1

    def __init__(self, bands: int, classes: int, patch: int, sizes: Mapping[str, object]) -> None:
        """``sizes`` are all sizes by name (say, a constructor's ``locals()``); other values in it are ignored."""
        super().__init__()
        check_sizes(sizes)
        if self.single_pixel_method is not None and patch != 1:
            raise ModelError(
                f"{self.single_pixel_method} looks at single pixels and patch is {patch}: leave it out, or give 1"
            )
        check_centre(patch)
        self.bands, self.classes, self.patch = bands, classes, patch


class IndexedNetwork(PatchNetwork):
    """A network that starts with ``SpatialConv``; float32 on the processor is computed by the compiled kernels."""

    spatial: SpatialConv

    @property
    def is_batch_invariant(self) -> bool:
        return False

    def stack(self, primary: SpectralConv, conv: SpectralConv, *, capsule: int = 0) -> kernels.Stack:
        """The weights of the layers for the kernels; ``capsule`` is the dimension of the squashed capsules, if any."""
        weights = tuple(part for layer in (self.spatial, primary, conv) for part in (layer.weight, layer.bias))
        return kernels.Stack(weights, (primary.stride, conv.stride), capsule)

    def layer_numbers(self, stack: kernels.Stack, pixels: int) -> int:
        """Number of float32 numbers that a training step keeps or writes for the layers of the stack."""
        sizes = stack.sizes(self.bands)
        of_pixel = sizes.bands * sizes.filters + sizes.positions1 * sizes.channels1
        of_pixel += sizes.positions2 * (sizes.padded2 + 2 * sizes.channels2)  # and the gradient of the children
        packed = sizes.filters * (sizes.area + 1) + sizes.channels1 * (sizes.window1 * sizes.filters + 1)
        packed += sizes.padded2 * (sizes.window2 * sizes.channels1 + 1)
        return int(pixels * of_pixel + -(-pixels // native.TRAIN_CHUNK) * packed)

    @abstractmethod
    def by_layers(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> scores (B, n), layer by layer"""

    @abstractmethod
    def by_kernels(self, spectra: Tensor, places: Tensor) -> Tensor:
        """As ``forward_indexed``, by the compiled kernels."""

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> scores (B, n)"""
        size, bands = self.patch, self.bands
        if patches.ndim != 4 or patches.shape[1:] != (size, size, bands):  # the kernels would read beyond their end
            raise ModelError(
                f"patches have shape {tuple(patches.shape)}: (pixels, {size}, {size}, {bands}) is expected, for this "
                f"network looks at {size} x {size} pixels of {bands} bands"
            )
        if kernels.usable(patches, self.spatial.weight) and not patches.requires_grad:
            return self.forward_indexed(*as_places(patches))
        return self.by_layers(patches)

    def forward_indexed(self, spectra: Tensor, places: Tensor) -> Tensor:
        """As ``forward``, from spectra (S, C) and the row of each patch's pixels in them, (B, D*D) int32.

        Patches are not copied: neighbouring patches share their pixels.
        """
        self.check_places(spectra, places)
        if kernels.usable(spectra, self.spatial.weight):
            return self.by_kernels(spectra, places)
        return self.by_layers(
            spectra.index_select(0, places.flatten()).view(len(places), self.patch, self.patch, self.bands)
        )

    def check_places(self, spectra: Tensor, places: Tensor) -> None:
        """Refuse what the kernels would read beyond its end."""
        bands, area = self.bands, self.patch**2
        fits = spectra.ndim == places.ndim == 2 and spectra.shape[1] == bands and places.shape[1] == area
        if not fits or places.dtype != torch.int32:
            raise ModelError(
                f"spectra have shape {tuple(spectra.shape)} and places {tuple(places.shape)} of {places.dtype}: "
                f"(number, {bands}) and (pixels, {area}) of torch.int32 are expected"
            )
        # In numpy: the threads that torch uses for a minimum spin for a while, on the cores that the kernels use.
        checked = places.numpy() if places.device.type == "cpu" else places
        if places.numel() and not (int(checked.min()) >= 0 and int(checked.max()) < len(spectra)):
            raise ModelError(f"places go beyond the {len(spectra)} spectra: whole numbers from 0 are expected")


class CapsuleNetwork(PatchNetwork):
    """A network whose last layer routes lower capsules to class capsules (``protocols.Explainable``)."""

    classcaps: ClassCaps

    @property
    def viewpoints(self) -> Tensor:
        return self.classcaps.viewpoints

    @property
    def routings(self) -> int:
        return self.classcaps.routings

    @abstractmethod
    def lower_capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> the capsules that are routed to the classes (B, positions, arrays, e)"""

    def capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> class capsules (B, n, d), layer by layer as in the paper"""
        capsules: Tensor = self.classcaps(self.lower_capsules(patches))
        return capsules

    def lengths(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> lengths of the class capsules (B, n), each in [0, 1)"""
        lengths: Tensor = torch.linalg.vector_norm(self.capsules(patches), dim=2)
        return lengths


def as_places(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Patches (B, D, D, C) as spectra (B*D*D, C) and the row of each patch's pixels in them (B, D*D)."""
    pixels, area = len(patches), math.prod(patches.shape[1:3])
    return patches.flatten(0, 2), torch.arange(pixels * area, dtype=torch.int32).view(pixels, area)


def check_dropout(dropout: float) -> None:
    if not (isinstance(dropout, int | float) and 0 <= dropout < 1):
        raise ModelError(f"dropout is {dropout!r}: a share from 0 up to, but not, 1 is expected")


def xavier(layer: nn.Module, generator: Generator | None) -> nn.Module:
    """The layer with Xavier-uniform weights drawn from ``generator`` and zero biases."""
    nn.init.xavier_uniform_(layer.weight, generator=generator)  # type: ignore[arg-type]
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer
