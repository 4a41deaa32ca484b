"""Operations on volumes against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv3d, max_pool2d

from hypercaps.models.volumes import convolve, dropout, pool_everywhere


def volume(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize(("bands", "window"), [(12, 5), (13, 5), (7, 7), (6, 1)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_convolutions_and_their_gradients_are_torchs(bands: int, window: int, dilation: int) -> None:
    maps, weight, bias = volume(2, bands, 3, 9, 8), volume(4, 3, window, 2, 2), volume(4)
    ours = convolve(maps, weight, bias, dilation)
    theirs = conv3d(maps.transpose(1, 2), weight, bias, dilation=(1, dilation, dilation)).transpose(1, 2)
    torch.testing.assert_close(ours, theirs)
    passed_back = torch.randn_like(theirs)
    gradients = (torch.autograd.grad(out, (maps, weight, bias), passed_back) for out in (ours, theirs))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other)


def test_a_convolution_without_gradients_does_not_disturb_later_ones() -> None:
    maps, weight, bias = volume(1, 10, 1, 5, 5), volume(2, 1, 3, 2, 2), volume(2)
    with torch.inference_mode():
        convolve(maps, weight, bias)
    convolve(maps, weight, bias).sum().backward()


@pytest.mark.parametrize("dilation", [1, 2])
def test_pooling_everywhere_is_torchs_with_a_stride_of_one(dilation: int) -> None:
    maps = volume(2, 3, 7, 6)
    ours, theirs = pool_everywhere(maps, dilation), max_pool2d(maps, 2, stride=1, dilation=dilation)
    assert torch.equal(ours, theirs)
    passed_back = torch.randn_like(theirs)
    found, expected = (torch.autograd.grad(out, maps, passed_back)[0] for out in (ours, theirs))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_dropout_keeps_a_share_and_the_mean(share: float) -> None:
    torch.manual_seed(3)
    ones = torch.ones(300, 7, 11, requires_grad=True)
    dropped = dropout(ones, share)
    kept = dropped != 0
    assert abs(kept.double().mean().item() - (1 - share)) < 0.01
    torch.testing.assert_close(dropped[kept], torch.full_like(dropped[kept], 1 / (1 - share)), rtol=0.02, atol=0)
    assert torch.equal(torch.autograd.grad(dropped.sum(), ones)[0], dropped.detach())
    torch.manual_seed(3)
    assert torch.equal(dropout(ones, share), dropped) and not torch.equal(dropout(ones, share), dropped)


def test_a_dropout_of_nothing_or_nearly_all() -> None:
    ones = torch.ones(100)
    assert dropout(ones, 0.0) is ones
    assert dropout(ones, 0.999).isfinite().all()
