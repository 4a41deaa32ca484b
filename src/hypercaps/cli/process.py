"""What the process of a command needs: signals that end it as Ctrl-C does, and text that every terminal can show."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import stat
import sys
from types import FrameType

_OBJECTS = 20_000  # that may be created before Python looks for garbage; its default is 700


def end_as_ctrl_c_does() -> None:
    """Handle SIGTERM and SIGHUP (the terminal was closed) as Ctrl-C: what has to be kept or removed, is."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if signal.Signals(number).name == "SIGHUP":
        _leave_terminal()
    raise KeyboardInterrupt


def _leave_terminal() -> None:
    """Give up outputs to a terminal that is gone: writing to it would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):  # isatty is false for one that is gone
            os.dup2(nowhere, descriptor)
    os.close(nowhere)


def collect_garbage_less_often() -> None:
    """Importing creates many objects and no garbage, for which Python would otherwise look dozens of times."""
    gc.set_threshold(_OBJECTS)
    atexit.register(gc.freeze)  # nor does a process that ends need to


def print_any_text() -> None:
    """Print "?" for characters that the encoding of the output does not have."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
