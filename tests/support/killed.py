"""A command of hypercaps that is killed by SIGKILL when its training is at a given point.

    python killed.py SHARE COMMAND ...

SHARE is the share of the training, 0 to 1, after which it is killed, or ``writing`` to kill it in the middle of its
second checkpoint. A checkpoint is written after every step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def run_killed(share: float | str, *command: object) -> None:
    """Run the command in a process of its own, and check that it was killed."""
    arguments = [sys.executable, str(Path(__file__)), str(share), *map(str, command)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


def _kill_when_done(share: float) -> None:
    from hypercaps.training.loop import TrainingLoop

    report = TrainingLoop._report

    def report_and_die(loop: TrainingLoop, epoch: int, part: float, loss: float) -> None:
        report(loop, epoch, part, loss)
        if loop.stage.done_before + loop.stage.share * (epoch - 1 + part) / loop.stage.epochs >= share:
            os.kill(os.getpid(), signal.SIGKILL)

    TrainingLoop._report = report_and_die  # type: ignore[method-assign]


def _kill_while_writing() -> None:
    written, fsync = [], os.fsync

    def sync(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(descriptor)

    os.fsync = sync


def main(when: str, command: list[str]) -> None:
    from hypercaps.cli import main as hypercaps
    from hypercaps.training import checkpoint_file

    checkpoint_file.EVERY = 0.0
    if when == "writing":
        _kill_while_writing()
    else:
        _kill_when_done(float(when))
    sys.argv[1:] = command
    hypercaps()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
