"""Errors and warnings on the terminal: one sentence each; --debug shows the traceback.

rich is imported when a message is printed, so that ``hypercaps --help`` does not wait for it.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from hypercaps.errors import DataWarning, HypercapsError, Interrupted, SpeedWarning

if TYPE_CHECKING:
    from rich.console import Console


class SentenceGroup(TyperGroup):
    """Print errors that the user can fix as one sentence and exit with code 2; --debug shows the traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HypercapsError as error:
            if ctx.find_root().obj == "debug":
                raise
            say(f"[bold red]Error:[/] {plain(error)}")
            raise typer.Exit(130 if isinstance(error, Interrupted) else 2) from None
        except KeyboardInterrupt:
            say("[bold red]Stopped.[/] Nothing was written.")
            raise typer.Exit(130) from None


def remember_debug(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.find_root().obj = "debug"
    return value


def console_out() -> Console:
    from rich.console import Console

    return Console(stderr=False, highlight=False)


def console_err() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    console_err().print(text, soft_wrap=True)


def plain(value: object) -> str:
    from rich.markup import escape

    return escape(str(value))


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: Any = None,
) -> None:
    """Print warnings about data and speed as a sentence, other warnings as Python does."""
    if issubclass(category, DataWarning | SpeedWarning):
        say(f"[bold yellow]Warning:[/] {plain(message)}")
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
