"""3D-CNN after Chen et al. (2016), IEEE TGRS 54(10), with 32 filters per layer as in the paper."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import max_pool3d, pad

from hypercaps.errors import ModelError
from hypercaps.models.parts import PatchNetwork, check_dropout

_WEIGHT_STD = 0.001  # Chen et al.'s
_OUTPUT_START = 0.1
_LAYERS = 3
_OFFSETS = ((0, 0), (0, 1), (1, 0), (1, 1))


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
        dropout: float = 0.5,
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
        if left < 1:
            raise ModelError(
                f"{bands} bands are too few for three windows of {window}: at least {_LAYERS * (window - 1) + 1} are "
                "needed; use smaller windows or a scene with more bands"
            )
        size = (window, kernel, kernel)
        self.convs = nn.ModuleList([nn.Conv3d(1 if i == 0 else filters, filters, size) for i in range(_LAYERS)])
        self.dropout = nn.Dropout(dropout)
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
        """(B, D, D, C) -> the output of each layer, (B, filters, side, side, bands left)"""
        maps: Tensor = patches.unsqueeze(1)  # (B, 1, D, D, C)
        outputs = []
        for i, conv in enumerate(self.convs):
            assert isinstance(conv, nn.Conv3d) and conv.bias is not None
            maps = _convolve(maps, conv.weight, conv.bias).relu()
            if i < _LAYERS - 1:
                maps = max_pool3d(maps, (2, 2, 1))
            maps = self.dropout(maps)
            outputs.append(maps)
        return outputs

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> logits (B, n)"""
        logits: Tensor = self.output(self.maps(patches)[-1].flatten(1))
        return logits

    def over_window(self, window: Tensor) -> Tensor:
        """Logits (h, w, n) of every pixel of a window (h + D - 1, w + D - 1, C) given with its halo.

        Neighbouring patches share most of their convolutions, so that each is computed once. A pooling halves the
        grid, and the pixels of a window need all four offsets of it: each offset becomes an image of its own, 4 after
        the first pooling and 16 after the second, and the images are interleaved at the end. This is about 20 times
        less work than patch by patch.
        """
        height, width = (size - self.patch + 1 for size in window.shape[:2])
        maps = window.permute(2, 0, 1)[None, None]  # (1, 1, C, h + D - 1, w + D - 1)
        # All 16 images need the same size: up to three rows and columns of zeros are added.
        maps = pad(maps, (0, -width % 4, 0, -height % 4))
        for i, conv in enumerate(self.convs):
            maps = conv(maps).relu_()
            if i < _LAYERS - 1:
                rows, cols = ((size - 1) // 2 for size in maps.shape[-2:])
                shifted = [maps[..., r : r + 2 * rows, c : c + 2 * cols] for r, c in _OFFSETS]
                maps = torch.cat([max_pool3d(part, (1, 2, 2)) for part in shifted])  # 4 times as many images
        rows, cols = -(-height // 4), -(-width // 4)
        maps = maps[..., :rows, :cols]  # (16, filters, left, rows, cols): image 4 * second + first
        logits: Tensor = self.output(maps.flatten(1, 2).permute(0, 2, 3, 1))  # (16, rows, cols, n)
        # Pixel (4 i + 2 r2 + r1, 4 j + 2 c2 + c1) is position (i, j) of image (r2, c2, r1, c1).
        logits = logits.view(2, 2, 2, 2, rows, cols, -1).permute(4, 0, 2, 5, 1, 3, 6)
        return logits.reshape(4 * rows, 4 * cols, -1)[:height, :width]


def _convolve(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A 3-D convolution (B, I, H, W, C), (O, I, window, k, k) -> (B, O, h, w, bands left) by Fourier along the bands.

    With windows of 32 of about 200 bands, products of Fourier spectra need a tenth of the multiply-adds; training is
    four times as fast as with torch's convolution.
    """
    batch, _, height, width, bands = maps.shape
    out, _, window, kernel, _ = weight.shape
    height, width = height - kernel + 1, width - kernel + 1
    spectra = torch.fft.rfft(maps).permute(4, 0, 2, 3, 1)  # (F, B, H, W, I)
    under = spectra.unfold(2, kernel, 1).unfold(3, kernel, 1)  # (F, B, h, w, I, k, k), a view
    filters = torch.fft.rfft(weight.permute(2, 1, 3, 4, 0), n=bands, dim=0).conj()  # (F, I, k, k, O)
    products = torch.bmm(under.flatten(1, 3).flatten(2), filters.flatten(1, 3))  # (F, B*h*w, O)
    products = products.view(-1, batch, height, width, out).permute(1, 4, 2, 3, 0)  # (B, O, h, w, F)
    # The results that wrap around the end of the spectrum are cut off.
    convolved: Tensor = torch.fft.irfft(products, n=bands)[..., : bands - window + 1]
    return convolved + bias[:, None, None, None]


def _side(patch: int, kernel: int) -> int:
    """Side of the last layer's maps for a patch (may be < 1)."""
    side = patch
    for i in range(_LAYERS):
        side -= kernel - 1
        if i < _LAYERS - 1:
            side = max(side, 0) // 2
    return side
