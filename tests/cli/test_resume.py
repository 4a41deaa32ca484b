"""``hypercaps train --resume``: trainings that were killed, paused or stopped, and what is refused."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from hypercaps.errors import OutputError
from hypercaps.io.writers.lock import lock_file
from hypercaps.io.writers.run_folder import CHECKPOINT
from hypercaps.training import checkpoint_file
from hypercaps.training.checkpoint import Checkpoint, read_checkpoint
from hypercaps.training.loop import Progress
from support.command import hypercaps
from support.killed import run_killed
from support.scenes import make_cube

OPTIONS = ["--train", 0.4, "--epochs", 3, "--batch-size", 32, "--seed", 2]
PAUSE = ["--budget", 1e-9]


def refused(*args: object) -> str:
    result = hypercaps(*args)
    assert result.exit_code == 2 and "Traceback" not in result.output, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    return " ".join(result.stderr.split())


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a cube and its labels."""
    cube, labels = make_cube(rows=24, cols=24)
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "gt.npy", labels)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_same_run(one: Path, two: Path) -> None:
    """The same files, the model's tensors equal to the bit, and the same figures but times."""
    assert names(one) == names(two)
    first, second = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (one, two))
    assert first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
    assert (one / "map.tif").read_bytes() == (two / "map.tif").read_bytes()
    figures = []
    for folder in (one, two):
        metrics = json.loads((folder / "metrics.json").read_text())
        metrics["baseline"].pop("seconds")
        figures.append({key: value for key, value in metrics.items() if key not in ("train_seconds", "command")})
    assert figures[0] == figures[1]
    lines = ((folder / "history.csv").read_text().splitlines() for folder in (one, two))
    histories = [[line.split(",")[:3] for line in each] for each in lines]
    assert histories[0] == histories[1]


def test_a_training_that_is_killed_several_times_gives_the_same_run(files: Path) -> None:
    """In the first stage, while a checkpoint is written, and in the second stage of recipe best."""
    command = ["train", "cube.npy", "gt.npy", *OPTIONS]
    checkpoint, stages = files / "run" / CHECKPOINT, []
    run_killed(0.05, *command, "--out", "run")
    for share in ("writing", 0.5):
        stages.append(read_checkpoint(checkpoint).state.numbers.stage)
        run_killed(share, "train", "--resume", "run")
    assert [*stages, read_checkpoint(checkpoint).state.numbers.stage] == [1, 1, 2]
    assert len(names(files / "run")) > 1  # what was left of the killed processes
    assert hypercaps("train", "--resume", "run").exit_code == 0
    assert hypercaps(*command, "--out", "whole").exit_code == 0
    assert_same_run(files / "run", files / "whole")


@pytest.mark.parametrize(
    "options",
    [
        ["--split", "none", "--method", "c-cnn", "--epochs", 2],
        ["--split", "blocks", "--block", 8, "--recipe", "augmented", "--epochs", 2],
        ["--recipe", "paper", "--val", 0, "--train", 0.4, "--epochs", 2, "--no-map"],
    ],
)
def test_a_budget_pauses_after_every_epoch_and_resume_continues(
    files: Path, monkeypatch: pytest.MonkeyPatch, options: list[object]
) -> None:
    paused = hypercaps("train", "cube.npy", "gt.npy", "--out", "run", *options, *PAUSE)
    assert paused.exit_code == 0, paused.output
    said = " ".join(paused.output.split())
    assert "Paused: the budget ended after epoch 1 of 2: 'hypercaps train --resume run' continues the training." in said
    assert names(files / "run") == {CHECKPOINT}
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")  # file names are relative to the folder of the first command
    resumed = hypercaps("train", "--resume", files / "run", *PAUSE)  # no budget stops the last epoch
    assert resumed.exit_code == 0 and Path.cwd() == files / "elsewhere", resumed.output
    monkeypatch.chdir(files)
    assert hypercaps("train", "cube.npy", "gt.npy", "--out", "whole", *options).exit_code == 0
    assert names(files / "run") == names(files / "whole")
    first, second = (safetensors.torch.load_file(files / out / "model.safetensors") for out in ("run", "whole"))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_public_scene_is_continued_without_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--epochs", 2, "--recipe", "paper", "--train", 0.05, "--no-map"]
    assert "Paused" in hypercaps("train", "indian-pines", "--out", tmp_path / "run", *options, *PAUSE).output
    assert hypercaps("train", "--resume", tmp_path / "run").exit_code == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["scene"], metrics["split"], metrics["epochs"]) == ("indian-pines", "random", 2)


def test_the_run_folder_is_relative_to_the_users_own_folder(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "work").mkdir()
    monkeypatch.chdir(files / "work")
    assert "Paused" in hypercaps("train", "../cube.npy", "../gt.npy", "--out", "run", *OPTIONS, *PAUSE).output
    monkeypatch.chdir(files)
    resumed = hypercaps("train", "--resume", "work/run")
    assert resumed.exit_code == 0, resumed.output
    assert "metrics.json" in names(files / "work" / "run") and not (files / "work" / "work").exists()


@pytest.fixture
def paused(files: Path) -> Path:
    result = hypercaps("train", "cube.npy", "gt.npy", "--out", "run", *OPTIONS, *PAUSE)
    assert "Paused" in result.output, result.output
    return files / "run"


def test_options_that_agree_are_accepted_and_others_refused(files: Path, paused: Path) -> None:
    before = (paused / CHECKPOINT).read_bytes()
    message = refused("train", "--resume", "run", "--seed", 3)
    assert "--seed does not agree with the training in run, which was begun by 'hypercaps" in message
    assert "SCENE does not agree" in refused("train", "gt.npy", "gt.npy", "--resume", "run")
    assert "--out does not agree" in refused("train", "--resume", "run", "--out", "other")
    assert "--reject does not agree" in refused("train", "--resume", "run", "--reject", 0.5)
    assert (paused / CHECKPOINT).read_bytes() == before and names(paused) == {CHECKPOINT}
    same = ["cube.npy", "gt.npy", "--out", "run", "--seed", 2, "--threads", 1, "--device", "cpu"]
    assert hypercaps("train", "--resume", "run", *same).exit_code == 0
    assert "the run in run is finished: there is nothing to continue" in refused("train", "--resume", "run")


def test_folders_without_a_training_are_refused(files: Path) -> None:
    (files / "empty").mkdir()
    for folder in ("empty", "nowhere"):
        assert f"there is no checkpoint in {folder}" in refused("train", "--resume", folder)
    assert "no scene was given" in refused("train", "--out", "run")
    assert "no folder for the results was given" in refused("train", "cube.npy", "gt.npy")
    assert not (files / "nowhere").exists() and not (files / "run").exists()


def test_damaged_and_foreign_checkpoints_are_refused(files: Path, paused: Path) -> None:
    checkpoint = paused / CHECKPOINT
    whole = checkpoint.read_bytes()
    safetensors.torch.save_file({"a": torch.zeros(2)}, files / "foreign.safetensors")
    for content in (whole[:-3], b"nothing", (files / "foreign.safetensors").read_bytes()):
        checkpoint.write_bytes(content)
        assert "is damaged or of another kind" in refused("train", "--resume", "run")
        assert checkpoint.read_bytes() == content
    checkpoint.write_bytes(whole)
    replace(read_checkpoint(checkpoint), request={}).write(checkpoint)  # as Python's own fit writes it
    assert "was not written by 'hypercaps train'" in refused("train", "--resume", "run")
    checkpoint.write_bytes(whole)
    np.save(files / "gt.npy", np.roll(np.load(files / "gt.npy"), 1, axis=0))
    said = refused("train", "--resume", "run")
    assert "is of a training with another set of labels" in said and "docs/run-folder.md" in said
    assert checkpoint.read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epochs", value) for value in ("many", 2.5, float("inf"), [3])),
        *(("seed", None), ("seed", -1), ("scene", 5), ("labels", 7), ("labels", "gt.npy")),
        *(("train", {"a": 1}), ("with_map", "perhaps"), ("memory", [1])),
    ],
)
def test_options_of_another_type_are_refused(name: str, value: object, files: Path, paused: Path) -> None:
    checkpoint = read_checkpoint(paused / CHECKPOINT)
    options = {**checkpoint.request["options"], name: value}
    replace(checkpoint, request={**checkpoint.request, "options": options}).write(paused / CHECKPOINT)
    assert "which is no value of it: delete the checkpoint" in refused("train", "--resume", "run")
    assert names(paused) == {CHECKPOINT}


def test_a_training_that_is_not_finished_is_not_replaced_without_force(files: Path, paused: Path) -> None:
    command = ["train", "cube.npy", "gt.npy", "--out", "run", "--method", "lda", "--split", "random"]
    assert "continue it with 'hypercaps train --resume run', replace it with --force" in refused(*command)
    assert hypercaps(*command, "--force").exit_code == 0
    assert CHECKPOINT not in names(paused) and (paused / "metrics.json").exists()


def test_a_forced_training_that_is_killed_leaves_the_older_run_until_it_is_finished(files: Path) -> None:
    older = ["train", "cube.npy", "gt.npy", "--out", "run", "--method", "lda", "--split", "random", "--no-map"]
    assert hypercaps(*older).exit_code == 0
    assert "Paused" in hypercaps("train", "cube.npy", "gt.npy", "--out", "run", *OPTIONS, *PAUSE, "--force").output
    assert json.loads((files / "run" / "metrics.json").read_text())["method"] == "lda"
    assert hypercaps("train", "--resume", "run").exit_code == 0
    assert json.loads((files / "run" / "metrics.json").read_text())["method"] == "convcapsnet"
    assert CHECKPOINT not in names(files / "run")


def test_two_processes_cannot_use_the_same_folder(files: Path, paused: Path) -> None:
    with lock_file(paused / ".lock") as is_held:
        assert is_held
        assert "run is being written by another hypercaps" in refused("train", "--resume", "run")
    shutil.rmtree(paused)
    paused.mkdir()
    with lock_file(paused / ".lock"):
        assert "run is being written by another" in refused("train", "cube.npy", "gt.npy", "--out", "run", *OPTIONS)


@pytest.mark.parametrize("every", [0.0, 60.0])
def test_ctrl_c_before_the_first_epoch_keeps_the_checkpoint_of_a_long_training(
    files: Path, monkeypatch: pytest.MonkeyPatch, every: float
) -> None:
    def stop(shown: object, now: Progress) -> None:
        if now.done > 0.02:
            raise KeyboardInterrupt

    with monkeypatch.context() as patching:
        patching.setattr(checkpoint_file, "EVERY", every)
        patching.setattr("hypercaps.cli.progress.RunProgress.training", stop)
        stopped = hypercaps("train", "cube.npy", "gt.npy", "--out", "run", *OPTIONS)
    assert stopped.exit_code == 130
    if every:
        assert not (files / "run").exists()
    else:
        assert "'hypercaps train --resume run' continues" in " ".join(stopped.stderr.split())
        assert hypercaps("train", "--resume", "run").exit_code == 0


def test_a_full_disk_delays_a_pause(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(checkpoint: Checkpoint, path: Path) -> None:
        raise OutputError(f"{path} can't be written: the disk is full")

    monkeypatch.setattr(Checkpoint, "write", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = hypercaps("train", "cube.npy", "gt.npy", "--out", "run", *OPTIONS, *PAUSE, "--no-map")
    message = "Warning: no checkpoint was kept, and the training goes on without one: run/checkpoint.safetensors can't"
    assert " ".join(result.stderr.split()).count(message) == 1
    assert result.exit_code == 0 and (files / "run" / "metrics.json").exists(), result.output


def test_a_budget_has_no_meaning_without_epochs(files: Path) -> None:
    folded = ["--split", "folds", "--method", "mlp"]
    for options, message in (
        ([*folded, "--budget", 1], "--budget has no meaning with --split folds and a named method"),
        (["--method", "lda", "--split", "random", "--budget", 1], "lda is solved at once: it has no budget"),
        (["--method", "mlp", "--split", "random", "--budget", 0], "a number of minutes above 0 is expected"),
        (["--method", "mlp", "--split", "random", "--budget", "inf"], "a number of minutes above 0 is expected"),
    ):
        assert message in refused("train", "cube.npy", "gt.npy", "--out", "run", *options)
        assert not (files / "run").exists()
