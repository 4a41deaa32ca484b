"""Differences from the paper's training: symmetries, noise, one-cycle learning rate, extra patches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from hypercaps.compute.devices import threads_in_use, use_threads
from hypercaps.data.scene import Scene
from hypercaps.models.history import History
from hypercaps.models.recipes import Augmentation, Stage
from hypercaps.models.registry import get_method
from hypercaps.training import patches
from hypercaps.training.examples import Examples
from hypercaps.training.loop import LoopSettings, Progress, TrainingLoop, one_cycle
from hypercaps.training.patches import PatchStore, symmetries
from hypercaps.training.preprocessing import PCAWhitening
from support.scenes import make_cube

ALL = Augmentation(symmetries=True, noise=0.7, one_cycle=True, keep_last=True)


def examples(n: int = 60, n_val: int = 20) -> Examples:
    cube, labels = make_cube()
    scene = Scene.from_array(cube)
    pixels = np.random.default_rng(0).choice(np.flatnonzero(labels), n + n_val, replace=False)
    targets = torch.from_numpy(labels.ravel()[pixels].astype(np.int64) - 1)
    store = PatchStore(scene, PCAWhitening.fit(scene).centred(), pixels, 7)
    return Examples(store, targets, torch.arange(n), torch.arange(n, n + n_val))


def run(
    augmentation: Augmentation | None, epochs: int = 2, seed: int = 3, **options: object
) -> tuple[dict[str, Tensor], History]:
    method = get_method("convcapsnet")
    network = method.network(26, 3, patch=7, seed=seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, fused=True)
    given = options.pop("examples", None) or examples()
    stage = Stage(epochs, seed, augmentation or Augmentation())
    history = TrainingLoop(network, optimizer, given, LoopSettings(method.loss, 16, **options), stage).run()
    return network.state_dict(), history


def equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[key], two[key]) for key in one)


class TestSymmetries:
    def test_they_are_the_turns_and_reflections_of_a_patch(self) -> None:
        patch = np.arange(9).reshape(3, 3)
        turns = [np.rot90(patch, k) for k in range(4)]
        expected = {tuple(way.ravel()) for turn in turns for way in (turn, np.fliplr(turn))}
        found = [tuple(row) for row in symmetries(3).tolist()]
        assert set(found) == expected and len(found) == 8 and found[0] == tuple(range(9))

    def test_a_gathered_patch_is_turned_in_the_given_order(self) -> None:
        store, which = examples().store, torch.arange(8)
        plain = store.gather(which)
        turned = store.gather(which, symmetries(7))  # each patch another way
        for number in range(8):
            square = plain[number].numpy()
            ways = [np.rot90(square, number // 2), np.flipud(np.rot90(square, number // 2))]
            np.testing.assert_array_equal(turned[number].numpy(), ways[number % 2])


def test_noise_is_added_to_training_patches_only_with_its_standard_deviation() -> None:
    store = examples().store
    which = torch.arange(5)
    noisy = store.with_noise(which, 0.7, np.random.default_rng(1))
    touched = torch.zeros(len(store.spectra), dtype=torch.bool)
    touched[store.places(which).flatten()] = True
    added = noisy.spectra - store.spectra
    assert (added[~touched] == 0).all() and (added[touched] != 0).any(dim=1).all()
    assert float(added[touched].std()) == pytest.approx(0.7, rel=0.05)
    again = store.with_noise(which, 0.7, np.random.default_rng(1))
    assert torch.equal(again.spectra, noisy.spectra)


def test_noise_is_one_stream_however_many_pixels_get_some_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store, which = examples().store, torch.arange(12)
    noisy = store.with_noise(which, 0.7, np.random.default_rng(1))
    for pixels in (1, 3, 100_000):
        monkeypatch.setattr(patches, "_NOISY_AT_ONCE", pixels)
        assert torch.equal(store.with_noise(which, 0.7, np.random.default_rng(1)).spectra, noisy.spectra)


def test_noise_of_the_next_epoch_takes_the_memory_of_the_last() -> None:
    store, rng = examples().store, np.random.default_rng(1)
    clean = store.spectra.clone()
    last = store.with_noise(torch.arange(5), 0.7, rng)
    alone = store.with_noise(torch.arange(3, 9), 0.7, np.random.default_rng(2))
    following = store.with_noise(torch.arange(3, 9), 0.7, np.random.default_rng(2), last)
    assert following.spectra.data_ptr() == last.spectra.data_ptr() != store.spectra.data_ptr()
    assert torch.equal(following.spectra, alone.spectra) and torch.equal(store.spectra, clean)


@pytest.mark.parametrize("steps", [2, 3, 4, 5, 17, 200])
def test_the_learning_rate_follows_torchs_one_cycle(steps: int) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.01)
    if steps == 4:  # where torch divides by nothing: the highest rate comes first
        assert one_cycle(0, 4) == 1.0
        return
    torchs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.01, total_steps=steps, pct_start=0.25, cycle_momentum=False
    )
    for step in range(steps):
        if steps > 4:  # below, torch's rise has a negative length
            assert 0.01 * one_cycle(step, steps) == pytest.approx(torchs.get_last_lr()[0], rel=1e-9, abs=1e-15)
        assert 0 < one_cycle(step, steps) <= 1
        optimizer.step()
        if step < steps - 1:
            torchs.step()


def test_the_default_augmentation_changes_no_bit() -> None:
    assert equal(run(None)[0], run(Augmentation())[0])


def test_the_papers_loop_equals_one_written_out_here() -> None:
    """Against a loop written out here: an order from the seed, Adam, the earliest best validation epoch."""
    given, method = examples(), get_method("convcapsnet")
    network = method.network(26, 3, patch=7, seed=3)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, fused=True)
    order = torch.Generator().manual_seed(3)
    best, kept = -1, {}
    for _ in range(3):
        for which in torch.split(given.train[torch.randperm(60, generator=order)], 16):
            loss = method.loss(
                network.forward_indexed(given.store.spectra, given.store.places(which)), given.targets[which]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.inference_mode():
            said = network.forward_indexed(given.store.spectra, given.store.places(given.val)).argmax(1)
        right = int((said == given.targets[given.val]).sum())
        if right > best:
            best, kept = right, {key: value.clone() for key, value in network.state_dict().items()}
    assert equal(run(None, epochs=3, examples=given)[0], kept)


def test_every_augmentation_changes_the_weights_and_follows_the_seed() -> None:
    plain = run(Augmentation(keep_last=True))[0]
    for augmentation in (
        Augmentation(symmetries=True, keep_last=True),
        Augmentation(noise=0.7, keep_last=True),
        Augmentation(one_cycle=True, keep_last=True),
    ):
        assert not equal(run(augmentation)[0], plain), augmentation
    assert equal(run(ALL)[0], run(ALL)[0])


def test_threads_change_no_bit() -> None:
    before = threads_in_use()
    try:
        found = []
        for threads in (1, 2, 3):
            use_threads(threads)
            found.append(run(ALL)[0])
    finally:
        use_threads(before)
    assert equal(found[0], found[1]) and equal(found[0], found[2])


def test_the_last_weights_are_kept_and_after_ctrl_c_the_best() -> None:
    weights, history = run(Augmentation(keep_last=True), epochs=6)
    assert history.best_epoch == 6
    measured = [record.val_oa for record in history.records]
    assert measured.index(max(measured)) < 5  # else this test shows nothing

    def stop(now: Progress) -> None:
        if now.epoch == 6:
            raise KeyboardInterrupt

    cut, told = run(Augmentation(keep_last=True), epochs=6, on_progress=stop)
    assert told.interrupted and told.best_epoch == 1 + measured.index(max(measured[:5])) and not equal(cut, weights)


def test_extra_patches_are_learned_from_in_their_epoch() -> None:
    asked: list[int] = []

    def extra(epoch: int) -> Tensor:
        asked.append(epoch)
        return torch.arange(60, 60 + 10)

    given = replace(examples(), extra=extra)
    _, history = run(ALL, examples=given)
    assert asked == [1, 2] and not equal(run(ALL, examples=given)[0], run(ALL)[0])
    assert len(history.records) == 2
