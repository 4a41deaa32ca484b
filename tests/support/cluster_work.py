"""What the workers do in the tests of the cluster; a file of its own, because each of them has to import it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from hypercaps.compute.cluster.pool import still_needed


def double(number: int) -> int:
    return 2 * number


def wait_and_return(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail(error: Exception) -> None:
    raise error


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def double_or_work(what: int | str) -> int | None:
    """Double a number; with a path, leave a sign there and go on for as long as the result is wanted."""
    if isinstance(what, int):
        return double(what)
    Path(what).write_text("begun")
    for _ in range(600):
        if not still_needed():
            Path(what).write_text("stopped")
            break
        time.sleep(0.05)
    return None
