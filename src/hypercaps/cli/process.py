"""Set up the process of a command: signals that act like Ctrl-C, garbage collection, encoding of the output."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import stat
import sys
from contextlib import suppress
from types import FrameType

_OBJECTS = 20_000  # allocations between two garbage collections; Python's default is 700


def end_as_ctrl_c_does() -> None:
    """Handle SIGTERM and SIGHUP (the terminal was closed) like Ctrl-C, so that results are saved and locks released."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if signal.Signals(number).name == "SIGHUP":
        _discard_terminal_output()
    raise KeyboardInterrupt


def _discard_terminal_output() -> None:
    """Redirect outputs to a closed terminal to the null device: writing to it would fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):  # isatty is false for a closed terminal
            os.dup2(null, descriptor)
    os.close(null)


def collect_garbage_less_often() -> None:
    """Imports create many objects and no garbage: collecting dozens of times meanwhile only costs time."""
    gc.set_threshold(_OBJECTS)
    atexit.register(gc.freeze)  # likewise when the process ends


def give_up_output() -> int:
    """Say that the disk is full to which output goes, and give the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # Python writes the rest of its buffer when it ends
    os.close(nowhere)
    with suppress(OSError):
        sys.stderr.write("Error: the output can't be written: the disk is full; free space or give another place\n")
    return 2


def print_any_text() -> None:
    """Print "?" for characters that the encoding of the output does not have."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
