"""The layers of section IV, against their sums written out."""

from __future__ import annotations

import numpy as np
import torch

from hypercaps.models.capsules.layers import ClassCaps, ConvCaps1d, PrimaryCaps, SpatialConv
from hypercaps.models.capsules.sizes import positions_after
from hypercaps.models.capsules.squash import squash


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_spatial_conv_applies_the_same_filters_to_every_band() -> None:
    layer = SpatialConv(3, 5, generator=seeded())
    with torch.no_grad():
        layer.bias += 0.1
    patches = torch.randn(2, 3, 3, 7, generator=seeded(1))
    found = layer(patches)
    assert found.shape == (2, 5, 7)
    filters = layer.weight.view(5, 3, 3)
    for band in range(7):
        expected = torch.einsum("byx,kyx->bk", patches[..., band], filters) + 0.1
        torch.testing.assert_close(found[:, :, band], expected.relu())


def test_primary_caps_regroups_channels_into_arrays() -> None:
    layer = PrimaryCaps(3, arrays=2, size=4, window=5, stride=2, generator=seeded())
    features = torch.randn(2, 3, 12, generator=seeded(1))
    found = layer(features)
    assert found.shape == (2, 2, 4, positions_after(12, 5, 2))
    channels = layer.conv(features).relu()
    assert torch.equal(found[:, 1, 2], channels[:, 6])  # array 1, number 2 of the capsule


def test_constraint_window_is_the_papers_sum() -> None:
    """u(q,k) = sum over arrays i and window places j of W(q,i,j) c(i,(k-1)s+j) + b(q), then squash."""
    a2, d2, windows, d3, f, s, c2 = 2, 3, 4, 5, 3, 2, 9
    layer = ConvCaps1d(a2, d2, windows, d3, f, s, generator=seeded())
    with torch.no_grad():
        layer.conv.bias += torch.randn(windows * d3, generator=seeded(2))
    capsules = torch.randn(1, a2, d2, c2, generator=seeded(1))
    found = layer(capsules).detach()
    c3 = positions_after(c2, f, s)
    assert found.shape == (1, c3, windows, d3)
    tensor = layer.conv.weight.detach().view(windows, d3, a2, d2, f)
    bias = layer.conv.bias.detach().view(windows, d3)
    for q in range(windows):
        for k in range(c3):
            parent = bias[q].clone()
            for i in range(a2):
                for j in range(f):
                    parent += tensor[q, :, i, :, j] @ capsules[0, i, :, k * s + j]
            torch.testing.assert_close(found[0, k, q], squash(parent))


def test_constraint_windows_have_their_own_bias_each_and_share_the_rest() -> None:
    layer = ConvCaps1d(2, 8, 4, 8, 9, 2)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 8 * 9 * 2 * 8 + 4 * 8


def test_class_caps_have_one_viewpoint_matrix_for_each_capsule_and_class_and_no_bias() -> None:
    layer = ClassCaps(4, 8, 44, 16, 16, routings=3)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 44 * 16 * 16 * 8
    assert layer(torch.zeros(2, 44, 4, 8)).abs().max() == 0


def test_the_same_generator_gives_the_same_weights_and_leaves_torchs_own_alone() -> None:
    before = torch.get_rng_state()
    first, second = (ClassCaps(1, 2, 3, 4, 5, 1, generator=seeded(7)) for _ in range(2))
    assert torch.equal(first.viewpoints, second.viewpoints)
    assert torch.equal(torch.get_rng_state(), before)


def test_positions_after() -> None:
    for length, window, stride in ((200, 9, 2), (96, 9, 2), (10, 3, 1), (9, 9, 2)):
        starts = np.arange(0, length - window + 1, stride)
        assert positions_after(length, window, stride) == len(starts)
