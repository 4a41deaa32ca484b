"""Run hypercaps, pass on what it says, and stop it on request. Needs neither QGIS nor hypercaps."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Callable

from .commands import CommandError
from .events import Event, parse_event

_LOOK = 0.2  # seconds between two looks at the cancel button
# Seconds from a request to stop to the next: hypercaps keeps what a training has learned, and has to be asked again to
# leave out the map that would follow.
_ASK_AGAIN = 2.0
_KILL_AFTER = 20.0


class CancelledError(Exception):
    """The user stopped the command."""


@dataclass(frozen=True)
class Outcome:
    """What a command that succeeded has written."""

    files: dict[str, str] = field(default_factory=dict)  # paths by what they are
    scores: dict[str, Any] = field(default_factory=dict)


def run_command(
    command: list[str],
    environment: Mapping[str, str],
    on_event: Callable[[Event], None],
    is_cancelled: Callable[[], bool],
) -> Outcome:
    """Run ``command``; its output comes to ``on_event`` line by line, in this thread."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            encoding="utf-8",
            errors="replace",
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # on Windows: no black window
        )
    except OSError as error:
        raise CommandError(f"{command[0]} can't be run: {error}") from None
    with process:
        try:
            return _follow(process, on_event, is_cancelled)
        finally:
            if process.poll() is None:
                process.kill()


def _follow(
    process: subprocess.Popen[str], on_event: Callable[[Event], None], is_cancelled: Callable[[], bool]
) -> Outcome:
    outcome, errors, others = Outcome(), [], []
    for event in _events(process, is_cancelled):
        if event.kind == "result":
            outcome = Outcome(event.files, event.scores)
        elif event.kind == "error":
            errors.append(event.text)
        else:
            others.append(event.text)
            on_event(event)
    code = process.wait()
    if is_cancelled():
        raise CancelledError
    if code:
        raise CommandError(_failure(code, errors, others))
    return outcome


def _failure(code: int, errors: list[str], others: list[str]) -> str:
    """Why a command failed, in a sentence."""
    if any("No such option: --progress" in text for text in others):
        return "this version of hypercaps is too old for the plugin: it has no --progress; install the current one"
    if errors:
        return errors[-1]
    if code < 0:
        return f"hypercaps was ended by signal {-code}; signal 9 often means that memory ran out"
    last = next((text for text in reversed(others) if text.strip()), "it said nothing")
    return f"hypercaps ended with code {code}: {last.strip()}"


def _events(process: subprocess.Popen[str], is_cancelled: Callable[[], bool]) -> Any:
    """Events as they come, until both streams have ended."""
    lines: queue.Queue[tuple[str | None, bool]] = queue.Queue()
    readers = [
        threading.Thread(target=_read, args=(stream, is_stderr, lines), daemon=True)
        for stream, is_stderr in ((process.stdout, False), (process.stderr, True))
    ]
    for reader in readers:
        reader.start()
    stopping, open_streams = _Stopping(process), len(readers)
    while open_streams:
        if is_cancelled():
            stopping.ask()
        try:
            line, is_stderr = lines.get(timeout=_LOOK)
        except queue.Empty:
            continue
        if line is None:
            open_streams -= 1
        elif is_stderr:
            event = parse_event(line)
            if event is not None:
                yield event
        else:
            yield Event("message", line.rstrip())


def _read(stream: IO[str], is_stderr: bool, lines: queue.Queue[tuple[str | None, bool]]) -> None:
    for line in stream:
        lines.put((line, is_stderr))
    lines.put((None, is_stderr))


class _Stopping:
    """Ask a process to end, again after a while, and end it by force at last."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._started: float | None = None
        self._next = 0.0

    def ask(self) -> None:
        now = time.monotonic()
        if self._started is None:
            self._started = now
        if now < self._next:
            return
        self._next = now + _ASK_AGAIN
        if now - self._started > _KILL_AFTER or sys.platform == "win32":
            self._process.kill()
        else:
            self._process.terminate()
