"""Progress of ``fit`` and ``predict`` in interactive sessions: a bar in a notebook, a line in a terminal, else nothing.

A script shows nothing, also on a terminal, unless it asks for it. The command line has bars of its own.
"""

from __future__ import annotations

import html
import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TextIO

if TYPE_CHECKING:  # imports torch
    from hypercaps.training.loop import Progress

P = ParamSpec("P")

_PATIENCE = 0.5  # seconds of a call that nobody needs to be told about, unless asked
_EVERY = 0.2  # seconds between two updates
_WIDTH = 28  # characters of a bar
_LINES = 10  # per stage, where lines can't be replaced


class View(Protocol):
    """Where progress is shown."""

    def update(self, stage: str, done: float, figures: str) -> None:
        """Show that the share ``done`` (0 to 1) of a stage is finished."""

    def close(self, text: str) -> None:
        """Show the last text and no more."""


class NotebookView:
    """A bar in the output of a cell, replaced by a line when it is finished."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display, self._handle = display, None

    def update(self, stage: str, done: float, figures: str) -> None:
        bar = f'<progress value="{done:.4f}" max="1" style="width: 16em; vertical-align: middle"></progress>'
        self._show(f"{html.escape(stage)} {bar} {html.escape(figures)}", f"{stage} {100 * done:.0f} % {figures}")

    def close(self, text: str) -> None:
        self._show(f'<span style="opacity: .7">{html.escape(text)}</span>', text)

    def _show(self, rich: str, plain: str) -> None:
        content = {"text/html": f"<div>{rich}</div>", "text/plain": plain}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class TerminalView:
    """One line that is written again and again, and removed at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def update(self, stage: str, done: float, figures: str) -> None:
        filled = round(_WIDTH * done)
        bar = "#" * filled + "-" * (_WIDTH - filled)
        line = f"{stage} [{bar}] {100 * done:3.0f} %  {figures}"
        self._write(line[: shutil.get_terminal_size().columns - 1])  # a line that wraps could not be replaced

    def close(self, text: str) -> None:
        self._write("")

    def _write(self, line: str) -> None:
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()


class LinesView:
    """Ten lines for each stage, for streams whose lines stay."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._shown = stream, ("", -1)

    def update(self, stage: str, done: float, figures: str) -> None:
        now = stage, int(_LINES * done)
        if now != self._shown:
            self._shown = now
            print(f"{stage} {100 * done:.0f} %  {figures}", file=self._stream, flush=True)

    def close(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def find_view(requested: bool | None) -> View | None:
    """Where to show progress; None: in interactive sessions only."""
    if requested is False:
        return None
    shell = _shell()
    if shell is not None and hasattr(shell, "kernel"):  # Jupyter
        from IPython.display import display

        return NotebookView(display)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_session = shell is not None or hasattr(sys, "ps1")  # not a script
    if is_terminal and (requested or is_session):
        return TerminalView(sys.stderr)
    return LinesView(sys.stderr) if requested and sys.stderr is not None else None


def _shell() -> Any:
    """The shell of IPython that runs this code, if one does."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


class ShownProgress:
    """Progress of one call, as a context manager; ``what`` was called."""

    def __init__(self, what: str, asked: bool | None) -> None:
        self._what, self._view = what, find_view(asked)
        self._started = time.monotonic()
        self._next, self._stage = 0.0, ""
        self._quiet_until = self._started + (0.0 if asked else _PATIENCE)

    @property
    def is_shown(self) -> bool:
        return self._view is not None

    def __enter__(self) -> ShownProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._view is not None and self._stage:
            outcome = "" if kind is None else " (stopped)"
            self._view.close(f"{self._what}: {time.monotonic() - self._started:.1f} s{outcome}")

    def training(self, now: Progress) -> None:
        figures = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.4f}"
        if now.last is not None and now.last.val_oa is not None:
            figures += f"  validation {now.last.val_oa:.2f} %"
        self._update("training", now.done, figures)

    def comparing(self, name: str, fold: int, folds: int, done: int, total: int) -> None:
        self._update("comparing", done / max(total, 1), f"{name}  fold {fold}/{folds}")

    def mapping(self, done: int, total: int) -> None:
        self._update("classifying", done / max(total, 1), f"{done:,} of {total:,} pixels")

    def _update(self, stage: str, done: float, figures: str) -> None:
        now = time.monotonic()
        if now < self._quiet_until:
            return
        if self._view is not None and (now >= self._next or stage != self._stage or done >= 1):
            self._next, self._stage = now + _EVERY, stage
            self._view.update(stage, done, figures)


def both(first: Callable[P, None], second: Callable[P, None] | None) -> Callable[P, None]:
    """A function that calls two, or the first alone."""
    if second is None:
        return first

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        first(*args, **kwargs)
        second(*args, **kwargs)

    return call
