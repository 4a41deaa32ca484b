from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hypercaps import Scene
from hypercaps.compute import native
from hypercaps.errors import Interrupted, TrainingError
from hypercaps.models.capsules.loss import margin_loss
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.models.recipes import Augmentation, Stage
from hypercaps.models.registry import get_method
from hypercaps.training.examples import Examples
from hypercaps.training.loop import LoopSettings, Loss, Progress, TrainingLoop
from hypercaps.training.memory import bytes_to_train
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PCAWhitening


class FakeStore:
    """Patches that are their own number: (B, 1, 1, 1)."""

    def gather(self, which: Tensor, order: Tensor | None = None) -> Tensor:
        return which.float().view(-1, 1, 1, 1)

    def to(self, device: str) -> FakeStore:
        return self


class Scripted(nn.Module):
    """Gets as many validation pixels right in each epoch as it is told, whatever it learns."""

    def __init__(self, right: list[int], n_val: int) -> None:
        super().__init__()
        self.epoch = nn.Parameter(torch.zeros(()), requires_grad=False)  # remembered with the weights
        self.slope = nn.Parameter(torch.ones(()))
        self.right, self.n_val = right, n_val
        self.seen: list[list[int]] = []

    def forward(self, patches: Tensor) -> Tensor:
        numbers = patches.view(-1)
        if self.training:
            self.seen.append(numbers.int().tolist())
            return torch.stack([self.slope * numbers, numbers], dim=1)
        correct = numbers - 10 < self.right[int(self.epoch) - 1]  # validation patches are numbered from 10
        return torch.stack([correct.float(), 1 - correct.float()], dim=1)


def run(
    right: list[int], *, epochs: int | None = None, n_val: int = 4, batch_size: int = 3, **options: object
) -> tuple[Scripted, object]:
    network = Scripted(right, n_val)
    examples = Examples(FakeStore(), torch.zeros(20, dtype=torch.int64), torch.arange(10), torch.arange(10, 10 + n_val))

    def loss(scores: Tensor, targets: Tensor) -> Tensor:
        if network.seen[-1] is not None and sum(len(s) for s in network.seen) % 10 == 0:
            network.epoch.data += 1  # the last batch of an epoch
        return scores[:, 0].mean()

    optimizer = torch.optim.Adam(network.parameters(), lr=options.pop("learning_rate", 0.1))
    stage = Stage(epochs or len(right), options.pop("seed", 0))
    history = TrainingLoop(network, optimizer, examples, LoopSettings(loss, batch_size, **options), stage).run()
    return network, history


def test_the_earliest_best_validation_epoch_is_kept() -> None:
    network, history = run([1, 3, 2, 3, 0])
    assert history.best_epoch == 2 and int(network.epoch) == 2
    assert [record.val_oa for record in history.records] == [25, 75, 50, 75, 0]
    assert [record.epoch for record in history.records] == [1, 2, 3, 4, 5]
    assert all(record.seconds > 0 for record in history.records) and not history.interrupted


def test_without_validation_pixels_the_last_epoch_is_kept() -> None:
    network, history = run([0, 0, 0], n_val=0)
    assert history.best_epoch == 3 and int(network.epoch) == 3
    assert history.records[0].val_oa is None


def test_every_epoch_sees_every_pixel_once_in_an_order_that_follows_the_seed() -> None:
    orders = [run([0, 0], seed=seed)[0].seen for seed in (1, 1, 2)]
    assert [len(batch) for batch in orders[0]] == [3, 3, 3, 1] * 2
    first, second = ([n for batch in epoch for n in batch] for epoch in (orders[0][:4], orders[0][4:]))
    assert sorted(first) == sorted(second) == list(range(10)) and first != second
    assert orders[0] == orders[1] != orders[2]


def test_loss_is_the_mean_over_pixels() -> None:
    _, history = run([0], learning_rate=0.0)
    assert history.records[0].loss == pytest.approx(np.mean(range(10)))


def test_ctrl_c_keeps_the_best_so_far() -> None:
    def stop(now: Progress) -> None:
        if now.epoch == 3:
            raise KeyboardInterrupt

    network, history = run([1, 3, 4, 4], on_progress=stop)
    assert history.interrupted and history.best_epoch == 2 and len(history.records) == 2
    assert int(network.epoch) == 2


def test_ctrl_c_in_the_first_epoch_leaves_nothing_to_keep() -> None:
    def stop(now: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="before the first epoch"):
        run([1, 1], on_progress=stop)


def test_progress_goes_from_nothing_to_all() -> None:
    steps: list[Progress] = []
    run([1, 2, 3], on_progress=steps.append)
    assert len(steps) == 3 * (4 + 1)
    shares = [step.done for step in steps]
    assert shares == sorted(shares) and shares[-1] == 1
    assert steps[-1].last is not None and steps[-1].last.epoch == 3 == steps[-1].epochs


def test_divergence_is_an_error() -> None:
    with pytest.raises(TrainingError, match=r"diverged in epoch 1: the loss is .*another recipe or seed"):
        run([1, 1], learning_rate=float("inf"))


@pytest.mark.parametrize("method", ["convcapsnet", "c-cnn"])
@pytest.mark.parametrize("pixels", [1, 13, 64])
def test_networks_of_the_kernels_know_the_memory_of_a_step(
    method: str, pixels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, written = get_method(method), 0
    network = chosen.network(30, 3, patch=5)
    empty, empty_like = torch.empty, torch.empty_like

    def counted(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal written
        written += tensor.numel()
        return tensor

    monkeypatch.setattr(torch, "empty", lambda *sizes, **options: counted(empty(*sizes, **options)))
    monkeypatch.setattr(torch, "empty_like", lambda *given, **options: counted(empty_like(*given, **options)))
    chosen.loss(network(torch.randn(pixels, 5, 5, 30)), torch.zeros(pixels, dtype=torch.int64)).backward()
    weights = sum(weight.numel() for weight in network.parameters())
    assert written - weights <= network.step_numbers(pixels) <= 2 * written


def test_memory_for_a_step_counts_weights_and_what_the_backward_pass_needs() -> None:
    def needed(batch_size: int) -> int:
        network = nn.Sequential(
            nn.Flatten(), nn.Linear(6, 100, device="meta"), nn.ReLU(), nn.Linear(100, 3, device="meta")
        )
        return bytes_to_train(network, nn.functional.cross_entropy, (1, 1, 6), batch_size)

    weights = 6 * 100 + 100 + 100 * 3 + 3
    for_one, for_two = needed(1), needed(2)
    assert for_one > 4 * 5 * weights  # weights, gradients, Adam's two, the best so far
    # What a sample adds: at least the hidden layer and the input, and not much more than both a few times over.
    assert 4 * 106 <= for_two - for_one <= 4 * 106 * 5


@pytest.mark.skipif(not native.available(), reason="hypercaps was installed without compiled kernels")
@pytest.mark.parametrize("class_size", [5, 16])  # with and without padding
def test_gradients_that_need_no_autograd_are_those_of_autograd_to_the_bit(
    class_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene.from_array(np.random.default_rng(0).normal(size=(12, 12, 40)))
    store = PatchStore(scene, PCAWhitening.fit(scene), np.arange(144), 3)
    examples = Examples(store, torch.arange(144) % 3, train=torch.arange(100), val=torch.arange(100, 144))

    def train(loss: Loss) -> dict[str, Tensor]:
        network = ConvCapsNet(40, 3, patch=3, class_size=class_size, generator=torch.Generator().manual_seed(1))
        optimizer = get_method("convcapsnet").recipe("best").make_optimizer(network)
        stage = Stage(epochs=3, seed=4, augmentation=Augmentation(symmetries=True, noise=0.5, one_cycle=True))
        TrainingLoop(network, optimizer, examples, LoopSettings(loss, 37), stage).run()
        return network.state_dict()

    by_autograd = train(lambda lengths, targets: margin_loss(lengths, targets))  # not known to have a gradient
    monkeypatch.delattr(Tensor, "backward")
    for name, weights in train(margin_loss).items():
        assert torch.equal(weights, by_autograd[name]), name
