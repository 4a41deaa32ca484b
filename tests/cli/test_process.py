"""The process of a command: signals, and terminals of any kind."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest

from hypercaps import ConvCapsClassifier
from support.scenes import make_cube

pytestmark = pytest.mark.xdist_group("processes")

_COMMAND = (sys.executable, "-m", "hypercaps")


@pytest.fixture
def long_training(tmp_path: Path) -> list[str]:
    """A command that trains for hours."""
    cube, labels = make_cube()
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "labels.npy", labels)
    options = ["--split", "random", "--epochs", "100000", "--no-map", "--out", str(tmp_path / "run")]
    return [*_COMMAND, "train", str(tmp_path / "cube.npy"), str(tmp_path / "labels.npy"), *options]


def test_a_closed_terminal_ends_a_training_as_ctrl_c_does(long_training: list[str], tmp_path: Path) -> None:
    ours, theirs = os.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = subprocess.Popen(long_training, start_new_session=True, preexec_fn=take_terminal, **streams)
    os.close(theirs)
    shown = b""
    while b"epoch" not in shown:
        shown += os.read(ours, 10_000)
    os.set_blocking(ours, False)
    until = time.monotonic() + 2
    while time.monotonic() < until:  # some epochs
        time.sleep(0.05)
        try:
            os.read(ours, 10_000)
        except BlockingIOError:
            continue
    os.close(ours)
    assert process.wait(timeout=120) == 130
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "model.safetensors" in names and not any(name.startswith(".") for name in names)


def test_a_signal_that_is_ignored_stays_so(long_training: list[str]) -> None:
    def ignore() -> None:  # as nohup does
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with subprocess.Popen(long_training, preexec_fn=ignore, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "epoch 1/" in line)
        process.send_signal(signal.SIGHUP)
        next(line for line in process.stderr if "epoch 20/" in line)  # goes on
        process.kill()


def test_a_terminated_training_leaves_nothing(long_training: list[str], tmp_path: Path) -> None:
    folds = ["--split", "folds", "--method", "convcapsnet"]  # no model of a fold is kept
    with subprocess.Popen([*long_training, *folds], stderr=subprocess.PIPE) as process:
        while not list(tmp_path.glob("run/.partial-*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        _, wrong = process.communicate(timeout=120)
    assert process.returncode == 130 and b"Traceback" not in wrong, wrong
    assert not (tmp_path / "run").exists()


def test_any_encoding_of_the_terminal(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    trained.save(tmp_path / "model.safetensors")
    for encoding in ("latin-1", "ascii", "utf-8"):
        done = subprocess.run(
            [*_COMMAND, "info", str(tmp_path / "model.safetensors")],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0 and b"convcapsnet" in done.stdout, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("what", [["methods"], ["methods", "--json"], ["--version"], ["train", "--help"]])
def test_an_output_that_is_full_is_one_sentence(what: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*_COMMAND, *what], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert done.returncode == 2
    sentence = "Error: the output can't be written: the disk is full; free space or give another place\n"
    assert done.stderr == sentence
