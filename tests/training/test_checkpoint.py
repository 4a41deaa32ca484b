"""Trainings that are stopped and continued: the same bits as without the interruption, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.errors import CheckpointError, CheckpointInUseError, DataWarning, Interrupted, Paused
from hypercaps.training import checkpoint_file
from hypercaps.training.checkpoint import Checkpoint, read_checkpoint
from hypercaps.training.checkpoint_file import CheckpointFile
from hypercaps.training.loop import Progress
from support.scenes import make_cube


class Killed(Exception):  # noqa: N818 - an event
    """Ends a training at once, as a kill does: nothing can be written any more."""


METHODS = {
    "both stages of best": {"epochs": 3},
    "paper": {"recipe": "paper", "epochs": 4},
    "dropout": {"method": "mlp", "epochs": 4, "structure": {"hidden": [16, 16]}},
    "unlabelled pixels and batch norm": {"method": "se-2d-cnn", "epochs": 4, "structure": {"maps": 4}},
    "SGD": {"method": "se-2d-cnn", "recipe": "paper", "epochs": 4, "structure": {"maps": 4}},
    "torch": {"method": "capsnet", "epochs": 3},
}


def data() -> tuple[Scene, Labels]:
    cube, labels = make_cube(rows=24, cols=24)
    return Scene.from_array(cube, name="made"), Labels.from_array(labels, name="made")


def classifier(**options: object) -> ConvCapsClassifier:
    return ConvCapsClassifier(**{"train": 0.3, "batch_size": 16, "epochs": 2} | options)


def fit(path: Path, *, stop_after: int | None = None, stop: type[BaseException] = Killed, **options: object) -> object:
    """Fit with a checkpoint; ``stop`` is raised after so many steps."""
    steps: list[float] = []

    def on_progress(now: Progress) -> None:
        steps.append(now.done)
        if stop_after is not None and len(steps) > stop_after:
            raise stop

    with CheckpointFile(path) as checkpoint:
        fitted = classifier(**options).fit(*data(), evaluate=False, on_progress=on_progress, checkpoint=checkpoint)
    return fitted, steps


def weights(fitted: ConvCapsClassifier) -> dict[str, torch.Tensor]:
    return fitted.model_.network.state_dict()


def assert_same(one: ConvCapsClassifier, two: ConvCapsClassifier) -> None:
    for key, value in weights(one).items():
        assert torch.equal(value, weights(two)[key]), key
    assert [record[:3] for record in one.history_] == [record[:3] for record in two.history_]
    assert (one.history_.best_epoch, one.model_.recipe) == (two.history_.best_epoch, two.model_.recipe)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.safetensors"


@pytest.fixture
def after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_file, "EVERY", 0.0)


@pytest.mark.usefixtures("after_every_step")
@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS)
def test_a_killed_training_ends_with_the_same_bits(options: dict[str, object], path: Path) -> None:
    whole = classifier(**options).fit(*data(), evaluate=False)
    kills, seen = 0, []
    while True:
        try:
            continued, _ = fit(path, stop_after=7 + kills, **options)
            break
        except Killed:
            kills += 1
            seen.append(read_checkpoint(path).state.numbers)
    assert kills >= 2 and len({(at.stage, at.epoch, at.batches) for at in seen}) == kills
    assert_same(whole, continued)
    assert not list(path.parent.glob("*.lock"))


def test_a_short_training_writes_nothing_unless_it_is_stopped(path: Path) -> None:
    fit(path)
    assert not list(path.parent.iterdir())
    with pytest.raises(Paused):
        fit(path, stop_after=3, stop=Paused)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    resumed, steps = fit(path)
    assert_same(classifier().fit(*data(), evaluate=False), resumed)
    assert steps[0] > 0.05


def test_ctrl_c_keeps_the_best_epoch_and_a_checkpoint_of_the_last_step(path: Path) -> None:
    whole, steps = fit(path)
    per_epoch = len(steps) // 4
    stopped, _ = fit(path, stop_after=2 * per_epoch + 3, stop=KeyboardInterrupt)
    assert stopped.history_.interrupted and len(stopped.history_) == 2
    assert_same(whole, fit(path)[0])
    path.unlink()
    with pytest.raises(Interrupted, match="before the first epoch"):
        fit(path, stop_after=2, stop=KeyboardInterrupt)
    assert_same(whole, fit(path)[0])


def test_time_is_counted_over_all_parts(path: Path) -> None:
    with pytest.raises(Paused):
        fit(path, stop_after=10, stop=Paused)
    before = read_checkpoint(path).state.numbers
    resumed, _ = fit(path)
    assert 0 < before.epoch_seconds < before.seconds < resumed.history_.seconds
    assert before.records[0] == resumed.history_[0]


CHANGES = {
    "another method (convcapsnet, and now c-cnn)": {"method": "c-cnn"},
    "another recipe": {"recipe": "paper"},
    "another seed (0, and now 1)": {"seed": 1},
    "another split": {"train": 0.35},
    "another batch size (16, and now 8)": {"batch_size": 8},
    "another number of epochs (2, and now 3)": {"epochs": 3},
    "another preprocessing": {"whitening": "damped"},
    "another structure": {"structure": {"routings": 2}},
}


@pytest.mark.parametrize("message", CHANGES)
def test_a_checkpoint_of_another_training_is_refused_and_kept(message: str, path: Path) -> None:
    with pytest.raises(Paused):
        fit(path, stop_after=2, stop=Paused)
    before = path.read_bytes()
    with pytest.raises(CheckpointError) as refused:
        fit(path, **CHANGES[message])
    assert message in str(refused.value) and "delete the checkpoint" in str(refused.value)
    assert path.read_bytes() == before


def test_other_data_and_versions_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Paused):
        fit(path, stop_after=2, stop=Paused)
    scene, labels = data()
    cube = scene.read().values.copy()
    cube[0, 0, 0] += 1  # one value of one pixel
    other = Labels.from_array(np.where(labels.array == 3, 2, labels.array))
    for changed, name in (((Scene.from_array(cube), labels), "scene"), ((scene, other), "set of labels")):
        with pytest.raises(CheckpointError, match=f"another {name}"), CheckpointFile(path) as checkpoint:
            classifier().fit(*changed, checkpoint=checkpoint)
    monkeypatch.setattr(
        "hypercaps.training.job.current_versions", lambda: dict.fromkeys(("hypercaps", "torch", "numpy"), "9")
    )
    with pytest.raises(CheckpointError, match=r"another version of hypercaps \(.*, and now 9\)"):
        fit(path)


def test_a_second_training_does_not_take_the_stages_of_the_first(path: Path) -> None:
    with CheckpointFile(path) as checkpoint:
        classifier(seed=0).fit(*data(), evaluate=False, checkpoint=checkpoint)
        second = classifier(seed=1).fit(*data(), evaluate=False, checkpoint=checkpoint)
    assert_same(classifier(seed=1).fit(*data(), evaluate=False), second)


def test_a_forced_training_removes_the_checkpoint_of_another(path: Path) -> None:
    with pytest.raises(Paused):
        fit(path, stop_after=2, stop=Paused)
    with CheckpointFile(path, resume=False) as checkpoint:
        assert checkpoint.found is None and not path.exists()


def wrong_moment(one: Checkpoint) -> Checkpoint:
    key = next(key for key in one.state.optimizer if key.endswith("exp_avg"))
    return replace(one, state=replace(one.state, optimizer={**one.state.optimizer, key: torch.zeros(3)}))


def with_numbers(**values: object) -> Callable[[Checkpoint], Checkpoint]:
    return lambda one: replace(one, state=replace(one.state, numbers=replace(one.state.numbers, **values)))


@pytest.mark.parametrize(
    "change",
    [wrong_moment, with_numbers(epoch=-5), with_numbers(epoch=99), with_numbers(batches=-3)],
    ids=["optimizer", "negative epoch", "epoch after the end", "negative steps"],
)
def test_a_checkpoint_that_contradicts_itself_is_refused(
    change: Callable[[Checkpoint], Checkpoint], path: Path
) -> None:
    with pytest.raises(Paused):
        fit(path, stop_after=2, stop=Paused)
    change(read_checkpoint(path)).write(path)
    with pytest.raises(CheckpointError, match="does not fit the training"):
        fit(path)


def test_damaged_and_foreign_files_are_refused(path: Path, trained: ConvCapsClassifier) -> None:
    with pytest.raises(Paused):
        fit(path, stop_after=2, stop=Paused)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    trained.save(path.parent / "model.safetensors")
    model = (path.parent / "model.safetensors").read_bytes()
    for content in (
        whole[:-10],
        bytes(flipped),
        model,
        b"",
        b"\x80\x04K\x01.",
        whole.replace(b"best_epoch", b"Best_epoch"),
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"is damaged or of another kind \(.*\): delete it"):
            fit(path)
        assert path.read_bytes() == content


def test_two_processes_cannot_continue_the_same_training(path: Path) -> None:
    with CheckpointFile(path), pytest.raises(CheckpointInUseError, match="by another hypercaps"):
        fit(path)
    fit(path)


@pytest.mark.usefixtures("after_every_step")
def test_a_full_disk_stops_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(DataWarning, match="no checkpoint was kept, and the training goes on.*disk is full") as said:
        fitted, _ = fit(path)
    assert len(said) == 1 and not list(path.parent.iterdir())
    assert_same(classifier().fit(*data(), evaluate=False), fitted)


@pytest.mark.usefixtures("after_every_step")
def test_what_a_kill_left_of_a_checkpoint_is_removed(path: Path) -> None:
    with pytest.raises(Killed):
        fit(path, stop_after=5)
    shutil.copy(path, path.parent / f".{path.name}.01234567.partial")
    fit(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_other_threads_are_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Paused):
        fit(path, stop_after=2, stop=Paused)
    monkeypatch.setattr("hypercaps.training.loop.threads_in_use", lambda: 7)
    with pytest.warns(
        DataWarning, match=r"begun with 1 threads.* and continues with 7 threads.*last digits can differ"
    ):
        fit(path)
