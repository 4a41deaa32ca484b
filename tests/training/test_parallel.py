"""Two processes share a training through gloo on loopback. Starting them takes seconds, so few are started."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.cli import app
from hypercaps.compute.devices import Device
from hypercaps.errors import Interrupted, ModelError, TrainingError
from hypercaps.models.registry import METHODS
from hypercaps.training.loop import Examples, Progress
from hypercaps.training.parallel import processes
from hypercaps.training.parallel.sharing import Shared
from hypercaps.training.parallel.worker import Ended, Failed, Job, read_examples, write_examples
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PCAWhitening
from support.scenes import QUICK as ANY_RECIPE
from support.scenes import make_cube

QUICK = ANY_RECIPE | {"recipe": "paper"}  # one that can be shared

# --- how a step is shared: no processes are needed to see it


def gradients_of(parts: int, batch: Tensor) -> tuple[list[Tensor], float]:
    """The gradients that each of ``parts`` processes computes, added up, and the loss."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    patches, targets = torch.randn(50, 5), torch.randint(3, (50,))
    seen: list[Tensor] = []

    def step_loss(which: Tensor) -> Tensor:
        seen.append(which)
        return cross_entropy(network(patches[which]), targets[which])

    sums: Tensor | None = None
    for rank in range(parts):  # each hands in its own; the last one sees the sum
        before = sums

        def add_up(own: Tensor, before: Tensor | None = before) -> Tensor:
            nonlocal sums
            sums = own.clone() if before is None else before + own
            return sums

        loss = Shared(rank, parts, add_up).backward(network, step_loss, batch)
    assert torch.equal(torch.cat(seen), batch)
    return [weight.grad for weight in network.parameters() if weight.grad is not None], loss


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("pixels", [1, 5, 16, 50])  # fewer than there are processes, too
def test_the_parts_add_up_to_the_gradient_of_the_batch(parts: int, pixels: int) -> None:
    batch = torch.randperm(50, generator=torch.Generator().manual_seed(1))[:pixels]
    whole, loss = gradients_of(1, batch)
    shared, shared_loss = gradients_of(parts, batch)
    assert shared_loss == pytest.approx(loss, rel=1e-5)
    for one, many in zip(whole, shared, strict=True):
        torch.testing.assert_close(many, one, rtol=1e-4, atol=1e-6)


def test_a_wish_to_stop_reaches_all_with_the_gradients() -> None:
    network = nn.Linear(1, 1)
    told: list[Tensor] = []

    def add_up(own: Tensor) -> Tensor:
        told.append(own)
        return sum(told[1:], told[0])

    def step_loss(which: Tensor) -> Tensor:
        return network(which.float()[:, None]).mean()

    with pytest.raises(KeyboardInterrupt):
        Shared(0, 2, add_up, stop=lambda: True).backward(network, step_loss, torch.arange(4))
    with pytest.raises(KeyboardInterrupt):  # the other has no wish of its own
        Shared(1, 2, add_up).backward(network, step_loss, torch.arange(4))


def test_examples_come_back_as_they_were(made: tuple[Scene, Labels], tmp_path: Path) -> None:
    scene, _ = made
    store = PatchStore(scene, PCAWhitening.fit(scene), np.arange(30, 40), 7)
    examples = Examples(store, torch.arange(10), torch.arange(6), torch.arange(6, 10))
    write_examples(tmp_path, examples)
    again = read_examples(tmp_path, 7)
    which = torch.tensor([3, 0, 9])
    assert torch.equal(again.store.gather(which), store.gather(which)) and len(again.store) == 10
    for name in ("targets", "train", "val"):
        assert torch.equal(getattr(again, name), getattr(examples, name))


# --- what can't be shared


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "rbf-svm"}, "solved at once and can't be shared by 2 devices"),
        ({"recipe": "best"}, "recipe best trains two networks"),
        ({"method": "se-2d-cnn"}, "normalises over whole batches"),
        ({"device": "mps"}, "on cpu or cuda, not on 'mps'"),
        ({"device": "cuda:1"}, "on cpu or cuda, not on 'cuda:1'"),
        ({"device": "cuda"}, "2 devices were asked for and 0 GPUs are here"),
        ({"devices": 0}, "devices is 0: a whole number of 1 or more"),
        ({"devices": "two"}, "devices is 'two'"),
    ],
)
def test_what_cant_be_shared_is_refused_at_once(
    made: tuple[Scene, Labels], options: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ModelError, match=re.escape(words)):
        ConvCapsClassifier(**{"devices": 2, "recipe": "paper"} | options).fit(*made)


def test_every_method_that_is_not_refused_treats_pixels_one_by_one() -> None:
    """A layer that looks at a whole batch would see another one in each process."""
    for method in METHODS.values():
        whole_batch = [m for m in method.blueprint(103, 9).modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        assert not whole_batch or method.semi_supervised is not None, method.name


def test_a_missing_package_is_named(made: tuple[Scene, Labels], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    with pytest.raises(ModelError, match=r"pip install 'hypercaps\[cluster\]'"):
        ConvCapsClassifier(devices=2, recipe="paper").fit(*made)


def test_torchrun_is_not_needed(made: tuple[Scene, Labels], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with pytest.raises(ModelError, match="run it without torchrun"):
        ConvCapsClassifier(devices=2, recipe="paper").fit(*made)


def test_a_script_without_a_guard_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process imports the script, and would start processes of its own: it leaves, and the first one explains."""

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(SystemExit) as left:
        ConvCapsClassifier(devices=2, recipe="paper").fit(*map(_scene_and_labels, (0, 1)))

    class Process:
        exitcode = left.value.code

        def join(self, seconds: float) -> None:
            pass

    failure = processes._died(JOB, 1, Process())
    assert failure.remoteness == 0 and "__name__ == '__main__'" in str(failure.error)


def _scene_and_labels(which: int) -> Scene | Labels:
    cube, labels = make_cube()
    return (Scene.from_array(cube), Labels.from_array(labels))[which]


# --- two processes


JOB = Job("convcapsnet", "paper", {"bands": 26, "classes": 3, "patch": 7}, 0, 8, 16, Device(), 2, 1)


@pytest.fixture(scope="module")
def shared() -> dict[str, object]:
    """A training by two processes, and what was seen of it meanwhile."""
    seen: dict[str, object] = {"progress": [], "sockets": []}
    follow = processes.follow

    def watched(*args: object) -> list[Ended]:
        seen["endings"] = follow(*args)
        return seen["endings"]

    def look(progress: Progress) -> None:
        if not seen["progress"]:
            for child in psutil.Process().children(recursive=True):
                seen["sockets"] += child.net_connections("inet")
        seen["progress"].append(progress)

    cube, labels = make_cube()
    truth = Labels.from_array(labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "follow", watched)
        fitted = ConvCapsClassifier(**QUICK, devices=2).fit(Scene.from_array(cube), truth, on_progress=look)
    return seen | {"fitted": fitted, "one": ConvCapsClassifier(**QUICK).fit(Scene.from_array(cube), truth)}


def test_both_processes_end_with_the_same_weights(shared: dict[str, object]) -> None:
    first, second = shared["endings"]
    assert first.digest == second.digest and len(first.digest) == 64
    assert first.history.best_epoch == second.history.best_epoch
    for one, other in zip(first.history.records, second.history.records, strict=True):
        assert one[:3] == other[:3]  # loss and validation accuracy to the bit; seconds are each one's own


def test_two_processes_learn_what_one_learns(shared: dict[str, object]) -> None:
    two, one = shared["fitted"], shared["one"]
    assert two.scores_.oa > 95 and abs(two.scores_.oa - one.scores_.oa) < 1
    assert two.split_.digest() == one.split_.digest() and len(two.history_) == 8
    for a, b in zip(two.history_.records[:3], one.history_.records[:3], strict=True):
        assert a.loss == pytest.approx(b.loss, rel=0.01)  # the same steps, up to rounding
    assert two.model_.recipe["devices"] == 2 and "devices" not in one.model_.recipe
    assert two.get_params()["devices"] == 2


def test_progress_reaches_the_caller(shared: dict[str, object]) -> None:
    progress = shared["progress"]
    assert [p.done for p in progress] == sorted(p.done for p in progress) and progress[-1].done == 1
    assert {p.epoch for p in progress} == set(range(1, 9)) and progress[-1].last.epoch == 8


def test_they_talk_on_this_machine_only(shared: dict[str, object]) -> None:
    sockets = shared["sockets"]
    assert sockets  # there are some
    for connection in sockets:
        for end in (connection.laddr, connection.raddr):
            assert not end or end.ip in ("127.0.0.1", "::1"), connection


def test_nothing_is_left_behind(shared: dict[str, object]) -> None:
    assert not multiprocessing.active_children()
    assert "LOCAL_RANK" not in os.environ and not torch.distributed.is_initialized()
    assert "lightning_fabric" not in sys.modules  # on one device nobody waits for it, on two the processes do
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_killed_process_ends_the_training_with_one_sentence(
    made: tuple[Scene, Labels], capfd: pytest.CaptureFixture[str]
) -> None:
    def kill(progress: Progress) -> None:
        for child in multiprocessing.active_children()[:1]:
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(TrainingError, match=r"process [12] of 2 ended before the training did \(exit code -9\)") as end:
        ConvCapsClassifier(**QUICK | {"epochs": 10_000}, devices=2).fit(*made, on_progress=kill)
    assert "\n" not in str(end.value) and not multiprocessing.active_children()
    assert capfd.readouterr() == ("", "")


def test_an_error_in_a_process_is_the_callers_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no method 'nothing'"):
        processes.follow(replace(JOB, method="nothing", processes=1), tmp_path)
    assert not multiprocessing.active_children()


def test_ctrl_c_keeps_the_best_model_so_far(tmp_path: Path) -> None:
    cube, labels = make_cube()
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "gt.npy", labels)
    command = [sys.executable, "-m", "hypercaps", "train", "cube.npy", "gt.npy", "--out", "out", "--epochs", "100000"]
    command += ["--recipe", "paper"]
    running = subprocess.Popen(
        [*command, "--batch-size", "16", "--devices", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    line = running.stdout.readline()
    assert "epoch 1/" in line
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: all processes get it
    said, errors = running.communicate(timeout=100)
    assert running.returncode == 0 and errors == "", errors
    assert "Interrupted after epoch" in said and said.count("OA ") == 1
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["interrupted"] and metrics["epochs"] < 100_000 and metrics["oa"] > 90


# --- what is heard from the processes


def listen(messages: list[object], *, interrupt: bool = False) -> tuple[dict[int, Ended], dict[int, Failed]]:
    ours, theirs = multiprocessing.Pipe()
    for message in messages:
        theirs.send(message)
    theirs.close()
    interrupts = processes._Interrupts()
    interrupts.noted = interrupt
    return processes._listen({ours: 0}, interrupts, None)


def test_ctrl_c_before_the_first_epoch_does_not_wait_for_it() -> None:
    started = time.monotonic()
    with pytest.raises(Interrupted, match="there is no model to keep"):
        listen([], interrupt=True)
    assert time.monotonic() - started < 1


def test_a_process_that_says_nothing_has_failed() -> None:
    assert listen([Progress(1, 2, 0.5, 0.1, None)]) == ({}, {})
    failure = Failed(0, TrainingError("diverged"))
    ended, failed = listen([failure])
    assert not ended and str(failed[0].error) == "diverged"


def test_the_second_ctrl_c_is_one_as_always() -> None:
    interrupts = processes._Interrupts()
    with processes._handling_interrupts_by(interrupts.note):
        signal.raise_signal(signal.SIGINT)
        assert interrupts.noted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    elsewhere = threading.Thread(target=lambda: processes._handling_interrupts_by(None).__enter__())
    elsewhere.start()
    elsewhere.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_command_line_refuses_in_a_sentence(tmp_path: Path) -> None:
    cube, labels = make_cube()
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "gt.npy", labels)
    job = [
        "train",
        str(tmp_path / "cube.npy"),
        str(tmp_path / "gt.npy"),
        "--out",
        str(tmp_path / "out"),
        "--recipe",
        "paper",
        "--devices",
    ]
    refused = CliRunner().invoke(app, [*job, "2", "--method", "rbf-svm"])
    assert refused.exit_code == 2 and "can't be shared by 2 devices" in " ".join(refused.output.split())
    assert CliRunner().invoke(app, [*job, "0"]).exit_code == 2 and not (tmp_path / "out").exists()
