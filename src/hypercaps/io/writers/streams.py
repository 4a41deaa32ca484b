"""Outputs that are streams: a pipe, a terminal or another character device is written to and never replaced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import translate_write_errors


def is_stream(path: Path) -> bool:
    """Whether ``path`` names a pipe or a character device, also through a link such as /dev/stderr."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def check_stream(path: Path) -> None:
    """Refuse a stream that can't be written, before any work is done."""
    if not os.access(path, os.W_OK):
        raise OutputError(f"{path} can't be written: it is not writable; choose another place")


def write_stream(path: Path, content: bytes) -> None:
    with translate_write_errors(path), path.open("wb", buffering=0) as stream:
        left = memoryview(content)
        while left:
            left = left[stream.write(left) or 0 :]
