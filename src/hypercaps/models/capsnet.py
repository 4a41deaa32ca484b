"""The paper's 1-D CapsNet: the capsule network of Sabour, Frosst and Hinton (2017) along the spectrum.

Its sizes follow from the paper's parameter counts: the patch is read as C positions of D*D channels, and there is
no decoder.
"""

from __future__ import annotations

from torch import Generator, Tensor, nn

from hypercaps.models.capsules.layers import VIEWPOINT_STD, ClassCaps
from hypercaps.models.capsules.sizes import positions_after_two
from hypercaps.models.capsules.squash import squash
from hypercaps.models.parts import CapsuleNetwork, xavier


class CapsNet(CapsuleNetwork):
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
        viewpoint_std: float = VIEWPOINT_STD,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(bands, classes, patch, locals())
        self.arrays, self.size = primary_arrays, primary_size
        # Number of components that one position of the primary capsules sees, and the step between positions
        self.view = (window + primary_window - 1, primary_stride)
        positions = positions_after_two(bands, (window, 1), (primary_window, primary_stride))
        self.conv = xavier(nn.Conv1d(patch * patch, filters, window), generator)
        self.primary = xavier(
            nn.Conv1d(filters, primary_arrays * primary_size, primary_window, primary_stride), generator
        )
        self.classcaps = ClassCaps(
            primary_arrays,
            primary_size,
            positions,
            classes,
            class_size,
            routings,
            viewpoint_std=viewpoint_std,
            generator=generator,
        )

    def lower_capsules(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> the primary capsules, which are routed to the classes (B, p, 32, 8)"""
        features = self.conv(patches.flatten(1, 2)).relu()  # (B, 256, C - 8)
        channels = self.primary(features)  # (B, 32*8, p)
        # Copied, because torch takes the norm of strided capsules ten times as slowly
        channels = channels.transpose(1, 2).contiguous()  # (B, p, 32*8)
        return squash(channels.view(channels.shape[0], -1, self.arrays, self.size))

    def forward(self, patches: Tensor) -> Tensor:
        return self.lengths(patches)
