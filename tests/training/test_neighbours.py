"""Neighbouring patches: batches of them, and scores with shared work."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hypercaps import Scene
from hypercaps.models.cnn3d import CNN3D
from hypercaps.models.recipes import Augmentation, Stage
from hypercaps.training.examples import Examples, count_correct
from hypercaps.training.loop import LoopSettings, TrainingLoop
from hypercaps.training.neighbours import neighbour_batches, neighbour_scores, tiles
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PREPROCESSINGS
from support.scenes import make_cube

PATCH = 11  # of kernels of two
pytestmark = pytest.mark.filterwarnings("ignore:6 of 1296 pixels:hypercaps.errors.DataWarning")


def store(pixels: np.ndarray, *, with_hole: bool = False) -> PatchStore:
    cube, _ = make_cube()
    if with_hole:
        cube[10:13, 14:16] = np.nan
    scene = Scene.from_array(cube)
    return PatchStore(scene, PREPROCESSINGS["standardising"](scene), pixels, PATCH)


def some_pixels(count: int, *, rows: int = 36) -> np.ndarray:
    free = [pixel for pixel in range(rows * 36) if not (10 <= pixel // 36 < 13 and 14 <= pixel % 36 < 16)]
    return np.random.default_rng(1).choice(free, count, replace=False)


def network(**changes: object) -> CNN3D:
    sizes = {"patch": PATCH, "filters": 3, "kernel": 2, "window": 6, "weight_std": None, "dropout": 0} | changes
    return CNN3D(26, 3, **sizes, generator=torch.Generator().manual_seed(0))


class TestScores:
    @pytest.mark.parametrize("with_hole", [False, True])
    @pytest.mark.parametrize("count", [1, 9, 500])  # from one by one to whole windows, the scene's border included
    def test_loss_and_gradients_are_those_of_single_patches(self, count: int, with_hole: bool) -> None:
        patches, net = store(some_pixels(count), with_hole=with_hole), network()
        which = torch.arange(count).flip(0)
        targets = torch.arange(count) % 3
        shared, single = neighbour_scores(net, patches, which), net(patches.gather(which))
        torch.testing.assert_close(shared, single, rtol=1e-4, atol=1e-5)
        weights = list(net.parameters())
        losses = cross_entropy(shared, targets), cross_entropy(single, targets)
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)
        for ours, theirs in zip(*(torch.autograd.grad(loss, weights) for loss in losses), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))

    def test_dense_patches_share_and_scattered_ones_do_not(self) -> None:
        dense = list(tiles(store(some_pixels(500)), torch.arange(500)))
        assert [tile.is_dense for tile in dense] == [True]
        assert not any(tile.is_dense for tile in tiles(store(some_pixels(4)), torch.arange(4)))

    def test_tiles_have_every_patch_once_and_its_pixels(self) -> None:
        patches = store(some_pixels(300), with_hole=True)
        which = torch.randperm(300, generator=torch.Generator().manual_seed(2))
        divided = list(tiles(patches, which, side=16))
        assert len(divided) > 9  # 3 x 3, and patches at the hole that agree with no window
        assert sorted(torch.cat([tile.which for tile in divided]).tolist()) == list(range(300))
        for tile in divided:
            for i, row, col in zip(tile.which, tile.rows, tile.cols, strict=True):
                window = tile.places[row : row + PATCH, col : col + PATCH]
                assert torch.equal(window.flatten(), patches.places(which[i : i + 1])[0])


class TestBatches:
    def test_they_are_compact_of_equal_size_and_other_ones_each_time(self) -> None:
        pixels = torch.cartesian_prod(torch.arange(30), torch.arange(50))
        generator = torch.Generator().manual_seed(0)
        batches = neighbour_batches(pixels, 100, generator)
        assert len(batches) == 15 and {len(batch) for batch in batches} <= set(range(98, 103))
        assert torch.equal(torch.cat(batches).sort().values, torch.arange(1500))
        for batch in batches:
            height, width = (pixels[batch].amax(dim=0) - pixels[batch].amin(dim=0) + 1).tolist()
            assert height * width < 250 and max(height, width) < 4 * min(height, width)
        again = neighbour_batches(pixels, 100, generator)
        assert {tuple(batch.tolist()) for batch in batches} != {tuple(batch.tolist()) for batch in again}
        repeated = neighbour_batches(pixels, 100, torch.Generator().manual_seed(0))
        assert all(torch.equal(*pair) for pair in zip(batches, repeated, strict=True))

    def test_few_pixels_are_one_batch(self) -> None:
        assert [len(some) for some in neighbour_batches(torch.zeros(3, 2), 100, torch.Generator())] == [3]


class Counting(nn.Module):
    """Remembers the pixels of each step."""

    def __init__(self, patches: PatchStore) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.patches, self.steps = patches, []

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.steps.append(patches[:, PATCH // 2, PATCH // 2, 0])
        return self.weight.expand(len(patches), 3)


def test_an_epoch_of_neighbours_has_every_pixel_once() -> None:
    patches = store(some_pixels(80))
    net = Counting(patches)
    examples = Examples(patches, torch.arange(80) % 3, torch.arange(60), torch.arange(60, 80))
    stage = Stage(2, 5, Augmentation(neighbours=True, one_cycle=True))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    TrainingLoop(net, optimizer, examples, LoopSettings(cross_entropy, 20), stage).run()
    assert [len(step) for step in net.steps] == [20] * 6
    expected = patches.gather(torch.arange(60))[:, PATCH // 2, PATCH // 2, 0].sort().values
    for epoch in (net.steps[:3], net.steps[3:]):
        assert torch.equal(torch.cat(epoch).sort().values, expected)


def test_validation_counts_what_single_patches_count() -> None:
    patches, net = store(some_pixels(400)), network().eval()
    examples = Examples(patches, torch.arange(400) % 3, torch.arange(0), torch.arange(400))
    expected = int((net(patches.gather(torch.arange(400))).argmax(dim=1) == examples.targets).sum())
    assert count_correct(net, examples, 16) == expected
