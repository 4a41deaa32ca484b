"""How much memory a piece of code takes, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Not getrusage: it remembers what the process was before Python was started in it.
_PEAK = """
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
"""


def output_of(code: str, seconds: float = 120) -> str:
    """What ``code`` prints; it may call ``peak()`` for the most memory it ever held, in MB."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the peak of a process's memory is read from /proc")
    command = [sys.executable, "-c", _PEAK + code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds).stdout
