"""Operations of 3-D networks on volumes (B, bands, channels, rows, columns), fast on processors.

The bands come before the channels, so that a transform along them is one matrix product whose result is, as it is, the
input of torch's 2-D convolution.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv2d, pad

_BYTE = 256


def convolve(volume: Tensor, weight: Tensor, bias: Tensor, dilation: int = 1) -> Tensor:
    """Unpadded 3-D convolution: (B, C, I, H, W), (O, I, window, k, k), (O,) -> (B, bands left, O, h, w)

    The convolution of Eq. 1, before its activation; ``dilation`` is that of rows and columns. A discrete Fourier
    transform along the bands turns the convolution into one 2-D convolution of complex numbers for each of F = C // 2 +
    1 frequencies: for a window of 32 of 169 bands, a thirteenth of the multiply-adds. The transforms are matrix
    products: as fast as fast Fourier transforms for such lengths, and they need not reorder the numbers.
    """
    batch, bands, channels, height, width = volume.shape
    out, _, window, kernel, _ = weight.shape
    left, frequencies = bands - window + 1, bands // 2 + 1
    forward, inverse = _transforms(bands, volume.device, weight.dtype)  # (2F, C), (C, 2F)
    spectra = torch.matmul(forward, volume.reshape(batch, bands, -1))  # (B, 2F, I*H*W)
    products = conv2d(
        spectra.view(batch, 2 * frequencies * channels, height, width),
        _filters(weight, forward[:, :window]).view(2 * frequencies * out, 2 * channels, kernel, kernel),
        pad(bias * bands, (0, (2 * frequencies - 1) * out)),  # a constant is the real part of frequency zero
        dilation=dilation,
        groups=frequencies,
    )  # (B, 2F*O, h, w)
    # Results that wrap around the end of the spectrum are not computed.
    convolved = torch.matmul(inverse[:left], products.view(batch, 2 * frequencies, -1))
    return convolved.view(batch, left, out, *products.shape[2:])


def _filters(weight: Tensor, forward: Tensor) -> Tensor:
    """Weights (O, I, window, k, k), transform (2F, window) -> real filters for complex numbers (F, 2, O, 2*I, k, k)"""
    out, channels, window, kernel, _ = weight.shape
    flat = weight.permute(2, 0, 1, 3, 4).reshape(window, -1)
    spectra = torch.matmul(forward, flat).view(-1, 2, out, channels, kernel, kernel)
    # What networks call a convolution is a correlation: the product with the conjugate.
    real, imaginary = spectra[:, 0], -spectra[:, 1]  # (F, O, I, k, k)
    to_real, to_imaginary = torch.cat([real, -imaginary], dim=2), torch.cat([imaginary, real], dim=2)
    return torch.stack([to_real, to_imaginary], dim=1)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # what is kept may be used for gradients later
def _transforms(bands: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Fourier transform of real numbers and its inverse as matrices (2F, C) and (C, 2F): real, imaginary, real, ..."""
    frequencies = torch.arange(bands // 2 + 1, device=device)[:, None]
    turns = (frequencies * torch.arange(bands, device=device) % bands).double() / bands  # (F, C)
    cosines, sines = torch.cos(2 * math.pi * turns), torch.sin(2 * math.pi * turns)
    forward = torch.stack([cosines, -sines], dim=1).flatten(0, 1)  # (2F, C)
    # All frequencies stand for two, but zero and, for an even number of bands, the highest.
    single = (frequencies == 0) | (2 * frequencies == bands)  # (F, 1)
    share = torch.where(single, 1.0, 2.0).double() / bands
    inverse = torch.stack([share * cosines, -share * sines], dim=1).flatten(0, 1).T
    return forward.to(dtype), inverse.to(dtype).contiguous()


def pool_everywhere(volume: Tensor, dilation: int = 1) -> Tensor:
    """Maximum of two rows and two columns ``dilation`` apart, at every position: (..., H, W) -> (..., H - d, W - d)

    The max pooling of Eq. 3 with a stride of 1: as torch's max_pool2d, several times as fast.
    """
    pooled: Tensor = _Pool.apply(volume, dilation)  # type: ignore[no-untyped-call]
    return pooled


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, volume: Tensor, dilation: int) -> Tensor:
        across = torch.maximum(volume[..., :-dilation], volume[..., dilation:])  # (..., H, W - d)
        ctx.save_for_backward(volume, across)
        ctx.dilation = dilation
        return torch.maximum(across[..., :-dilation, :], across[..., dilation:, :])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        volume, across = ctx.saved_tensors
        across_back = _maximum_back(gradients[0], across, -2, ctx.dilation)
        return _maximum_back(across_back, volume, -1, ctx.dilation), None


def _maximum_back(gradient: Tensor, values: Tensor, dim: int, dilation: int) -> Tensor:
    """Gradient with respect to ``values``, given that of the maximum of those ``dilation`` apart along ``dim``."""
    count = values.shape[dim] - dilation
    to_later = torch.empty_like(gradient)  # float, because torch multiplies by booleans slowly
    torch.gt(values.narrow(dim, dilation, count), values.narrow(dim, 0, count), out=to_later)
    to_later.mul_(gradient)
    spread = torch.zeros_like(values)
    spread.narrow(dim, 0, count).copy_(gradient).sub_(to_later)
    spread.narrow(dim, dilation, count).add_(to_later)
    return spread


def dropout(volume: Tensor, share: float) -> Tensor:
    """Set about ``share`` of the values to zero, and scale the others up to the same mean.

    As torch's dropout, but with a share of whole 1/256: bytes are drawn eight at a time, six times as fast.
    """
    of_256 = max(round(_BYTE * (1 - share)), 1)
    if of_256 == _BYTE:
        return volume
    words = torch.empty(-(-volume.numel() // 8), dtype=torch.int64, device=volume.device)
    drawn = words.random_(-(2**63), None).view(torch.uint8)[: volume.numel()].view(volume.shape)
    mask = torch.empty_like(volume)
    torch.lt(drawn, of_256, out=mask)
    return volume * mask.mul_(_BYTE / of_256)
