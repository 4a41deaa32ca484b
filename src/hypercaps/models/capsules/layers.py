"""The four layers of 1D-ConvCapsNet, section IV of the paper.

Shapes: B pixels, D side of the patch, C bands (after whitening: components), K filters, f window size, a capsule
arrays, d dimension of a capsule, c positions along the spectrum, n classes. The capsules of PrimaryCaps are laid out
(B, a, d, c), positions last, as torch's convolutions need them; those that are routed (B, c, a, d), each contiguous.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Generator, Tensor, nn

from hypercaps.models.capsules.routing import class_capsules
from hypercaps.models.capsules.squash import squash

VIEWPOINT_STD = 0.1  # standard deviation of the initial viewpoint matrices; not given in the paper


class SpatialConv(nn.Module):
    """L(1): K filters over the whole D x D patch, shared by all bands, and ReLU (Eq. 2)."""

    def __init__(self, patch: int, filters: int, *, generator: Generator | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(filters, patch * patch))
        self.bias = nn.Parameter(torch.zeros(filters, 1))
        # Xavier-uniform of a 2-D convolution with one input channel: fan in D*D, fan out K*D*D. With half of that
        # range the network generalises slightly better and varies less (docs/open-choices.md).
        bound = 0.5 * math.sqrt(6.0 / (patch * patch * (1 + filters)))
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> O(1), channels first for the next convolution: (B, K, C)"""
        batch, _, _, bands = patches.shape
        filters, area = self.weight.shape
        pixels = patches.reshape(batch, area, bands)  # (B, D*D, C)
        bias = self.bias.expand(batch, filters, bands)
        return torch.baddbmm(bias, self.weight.expand(batch, filters, area), pixels).relu()


class SpectralConv(nn.Module):
    """A 1-D convolution along the spectrum without padding, Xavier-uniform weights and zero biases."""

    def __init__(self, channels_in: int, channels: int, window: int, stride: int, generator: Generator | None) -> None:
        super().__init__()
        self.stride = stride
        self.weight = nn.Parameter(torch.empty(channels, channels_in, window))
        self.bias = nn.Parameter(torch.zeros(channels))
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def forward(self, channels: Tensor) -> Tensor:
        """(B, channels in, length) -> (B, channels, positions)"""
        return F.conv1d(channels, self.weight, self.bias, self.stride)


class PrimaryCaps(nn.Module):
    """L(2): a 1-D convolution along the spectrum, ReLU (Eq. 2), its channels grouped into a arrays of d-D capsules."""

    def __init__(
        self, filters_in: int, arrays: int, size: int, window: int, stride: int, *, generator: Generator | None = None
    ) -> None:
        super().__init__()
        self.arrays, self.size = arrays, size
        self.conv = SpectralConv(filters_in, arrays * size, window, stride, generator)

    def forward(self, features: Tensor) -> Tensor:
        """(B, K, C) -> O(2): (B, a, d, c2)"""
        channels: Tensor = self.conv(features).relu()  # (B, a*d, c2)
        return channels.view(channels.shape[0], self.arrays, self.size, -1)


class ConvCaps1d(nn.Module):
    """L(3): K constraint windows of f positions slide along the capsule arrays (Eq. 4), and squash (Eq. 8).

    The product of a window's viewpoint tensor T(q) (d3 x f x a2 x d2, shared by all positions) and the child capsules
    under it is a 1-D convolution over the a2*d2 channels (Eq. 5), with one d3-D bias for each window.
    """

    def __init__(
        self,
        arrays_in: int,
        size_in: int,
        windows: int,
        size: int,
        window: int,
        stride: int,
        *,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        self.windows, self.size = windows, size
        self.conv = SpectralConv(arrays_in * size_in, windows * size, window, stride, generator)
        # Squashing makes short capsules much shorter. With twice the Xavier range the network generalises slightly
        # better (docs/open-choices.md).
        self.conv.weight.data.mul_(2.0)

    def forward(self, capsules: Tensor) -> Tensor:
        """(B, a2, d2, c2) -> O(3): (B, c3, K, d3)"""
        parents: Tensor = self.conv(capsules.flatten(1, 2))  # Eq. 5: (B, K*d3, c3)
        return squash(parents.transpose(1, 2).reshape(parents.shape[0], -1, self.windows, self.size))


class ClassCaps(nn.Module):
    """L(4): every capsule predicts every class by its own viewpoint matrix; routing (Eq. 6 to 8) combines them."""

    def __init__(
        self,
        arrays_in: int,
        size_in: int,
        positions: int,
        classes: int,
        size: int,
        routings: int,
        *,
        viewpoint_std: float = VIEWPOINT_STD,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        self.routings = routings
        # Entry [j, i, k] is W(i,j,k) transposed: (c3, a3, n, d3, d4), each matrix contiguous
        self.viewpoints = nn.Parameter(torch.empty(positions, arrays_in, classes, size_in, size))
        if self.viewpoints.device.type != "meta":  # a blueprint has no values to draw
            drawn = torch.empty(classes, arrays_in, size_in, positions, size)
            nn.init.normal_(drawn, 0.0, viewpoint_std, generator=generator)
            self.viewpoints.data.copy_(drawn.permute(3, 1, 0, 2, 4))

    def forward(self, capsules: Tensor) -> Tensor:
        """(B, c3, a3, d3) -> O(4): (B, n, d4)"""
        return class_capsules(capsules.flatten(1, 2), self.viewpoints.flatten(0, 1), self.routings)
