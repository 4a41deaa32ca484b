"""The paper's 1-D CapsNet: the capsule network of Sabour, Frosst and Hinton (2017) along the spectrum.

Its sizes follow from the paper's parameter counts: the patch is read as C positions of D*D channels, and there is
no decoder.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from hypercaps.models.capsules.layers import ClassCaps, check_spectrum, positions_after
from hypercaps.models.capsules.squash import squash
from hypercaps.models.parts import check_odd, check_sizes, xavier


class CapsNet(nn.Module):
    """Convolution -> primary capsules -> class capsules by dynamic routing from every primary capsule."""

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 7,
        filters: int = 256,
        window: int = 9,
        primary_arrays: int = 32,
        primary_size: int = 8,
        primary_window: int = 9,
        primary_stride: int = 2,
        class_size: int = 16,
        routings: int = 3,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(locals())
        check_odd(patch)
        check_spectrum(bands, window, 1, primary_window)
        self.bands, self.classes, self.patch = bands, classes, patch
        self.arrays, self.size = primary_arrays, primary_size
        # Number of components that one position of the primary capsules sees, and the step between positions
        self.view = (window + primary_window - 1, primary_stride)
        positions = positions_after(positions_after(bands, window, 1), primary_window, primary_stride)
        self.conv = xavier(nn.Conv1d(patch * patch, filters, window), generator)
        self.primary = xavier(
            nn.Conv1d(filters, primary_arrays * primary_size, primary_window, primary_stride), generator
        )
        self.classcaps = ClassCaps(
            primary_arrays, primary_size, positions, classes, class_size, routings, generator=generator
        )

    @property
    def viewpoints(self) -> Tensor:
        """Viewpoint matrices from each lower capsule to each class: (positions, arrays, n, e, d)"""
        return self.classcaps.viewpoints

    @property
    def routings(self) -> int:
        return self.classcaps.routings

    def lower_capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> the primary capsules, which are routed to the classes (B, p, 32, 8)"""
        features = self.conv(patches.flatten(1, 2)).relu()  # (B, 256, C - 8)
        channels = self.primary(features)  # (B, 32*8, p)
        return squash(channels.transpose(1, 2).reshape(len(channels), -1, self.arrays, self.size))

    def capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> class capsules (B, n, 16)"""
        capsules: Tensor = self.classcaps(self.lower_capsules(patches))
        return capsules

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> lengths of the class capsules (B, n), each in [0, 1)"""
        lengths: Tensor = torch.linalg.vector_norm(self.capsules(patches), dim=2)
        return lengths
