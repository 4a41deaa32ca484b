"""3D-CNN after Chen et al. (2016), IEEE TGRS 54(10), with 32 filters per layer as in the paper."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import max_pool2d

from hypercaps.errors import ModelError
from hypercaps.models.capsules.sizes import check_bands
from hypercaps.models.parts import PatchNetwork, check_dropout
from hypercaps.models.volumes import convolve, dropout, pool_everywhere

_WEIGHT_STD = 0.001  # Chen et al.'s
_OUTPUT_START = 0.1
_LAYERS = 3


class CNN3D(PatchNetwork):
    """Three 3-D convolutions with ReLU, 2x2 spatial max pooling after the first two, dropout after each, dense."""

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 27,
        filters: int = 32,
        kernel: int = 4,  # along rows and columns
        window: int = 32,  # along the bands
        dropout: float = 0.5,  # share, in whole 1/256
        weight_std: float | None = _WEIGHT_STD,  # None: convolutions after He et al. (2015), output near zero
        generator: Generator | None = None,
    ) -> None:
        sizes = {"bands": bands, "classes": classes, "filters": filters, "kernel": kernel, "window": window}
        super().__init__(bands, classes, patch, sizes | {"patch": patch})
        check_dropout(dropout)
        if _side(patch, kernel) != 1:
            fitting = [str(size) for size in range(1, 4 * patch, 2) if _side(size, kernel) == 1]
            raise ModelError(
                f"3d-cnn with kernels of {kernel} takes patches of {' or '.join(fitting) or 'no size'}, and patch is "
                f"{patch}: after its convolutions and poolings one position has to be left"
            )
        left = bands - _LAYERS * (window - 1)
        check_bands(bands, _LAYERS * (window - 1) + 1, f"three windows of {window}")
        size = (window, kernel, kernel)
        self.convs = nn.ModuleList([nn.Conv3d(1 if i == 0 else filters, filters, size) for i in range(_LAYERS)])
        self.kernel, self.dropout = kernel, dropout
        self.output = nn.Linear(filters * left, classes)
        for layer in (*self.convs, self.output):
            if weight_std is None:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
            else:
                nn.init.normal_(layer.weight, 0.0, weight_std, generator=generator)
            nn.init.zeros_(layer.bias)
        if weight_std is None:  # neighbouring bands are similar and sums grow large: without this training diverges
            self.output.weight.data.mul_(_OUTPUT_START)

    def maps(self, patches: Tensor) -> list[Tensor]:
        """(B, D, D, C) -> the output of each layer, (B, bands left, filters, side, side)"""
        outputs = [patches.permute(0, 3, 1, 2).unsqueeze(2)]  # (B, C, 1, D, D)
        for layer in range(_LAYERS):
            maps = self._convolve(layer, outputs[-1])
            if layer < _LAYERS - 1:
                pooled = max_pool2d(maps.flatten(1, 2), 2)
                maps = pooled.view(*maps.shape[:3], *pooled.shape[2:])
            outputs.append(self._activate(maps))
        return outputs[1:]

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> logits (B, n)"""
        return self._logits(self.maps(patches)[-1].flatten(2))

    def over_window(self, window: Tensor) -> Tensor:
        """Logits (h, w, n) of every pixel of a window (h + D - 1, w + D - 1, C) given with its halo."""
        height, width = (size - self.patch + 1 for size in window.shape[:2])
        maps = self._activate(self._convolve(_LAYERS - 1, self._shared(window), dilation=4))
        return self._logits(maps[0].permute(2, 3, 0, 1).flatten(0, 1)).view(height, width, -1)

    def at_pixels(self, window: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """Logits (B, n) of the pixels (rows, cols) of a window (h + D - 1, w + D - 1, C) given with its halo."""
        maps = self._shared(window)[0]  # (bands left, filters, h', w')
        at = 4 * torch.arange(self.kernel, device=window.device)
        places = (rows[:, None, None] + at[:, None]) * maps.shape[3] + cols[:, None, None] + at  # (B, k, k)
        patches_seen = maps.flatten(2).index_select(2, places.flatten())  # (bands left, filters, B*k*k)
        patches_seen = patches_seen.view(*maps.shape[:2], *places.shape).permute(
            2, 0, 1, 3, 4
        )  # (B, bands left, filters, k, k)
        return self._logits(self._activate(self._convolve(_LAYERS - 1, patches_seen)).flatten(2))

    def _shared(self, window: Tensor) -> Tensor:
        """The second layer's output for all pixels of a window: (1, bands left, filters, h', w')

        Neighbouring patches share most of their convolutions, and here each is computed once. A pooling halves the
        grid of a patch, and the pixels of a window need all its offsets: instead, it is computed at every position,
        and what follows takes positions twice as far apart. A patch looks at rows and columns 0, 4, 8 ... of the
        result, from its own place in the window on.
        """
        unused = self.patch - (4 + 7 * (self.kernel - 1))  # the poolings leave out the last rows and columns
        height, width = (size - unused for size in window.shape[:2])
        maps = window[:height, :width].permute(2, 0, 1)[None, :, None]  # (1, C, 1, h + D - 1, w + D - 1)
        for layer in range(_LAYERS - 1):
            maps = self._convolve(layer, maps, dilation=2**layer)
            maps = self._activate(pool_everywhere(maps, dilation=2**layer))
        return maps

    def _convolve(self, layer: int, maps: Tensor, dilation: int = 1) -> Tensor:
        conv = self.convs[layer]
        assert isinstance(conv, nn.Conv3d) and conv.bias is not None
        return convolve(maps, conv.weight, conv.bias, dilation)

    def _activate(self, maps: Tensor) -> Tensor:
        return dropout(maps.relu_(), self.dropout) if self.training else maps.relu_()

    def _logits(self, features: Tensor) -> Tensor:
        """(B, bands left, filters) -> (B, n)"""
        logits: Tensor = self.output(features.transpose(1, 2).flatten(1))
        return logits


def _side(patch: int, kernel: int) -> int:
    """Side of the last layer's maps for a patch (may be < 1)."""
    side = patch
    for i in range(_LAYERS):
        side -= kernel - 1
        if i < _LAYERS - 1:
            side = max(side, 0) // 2
    return side
