"""Errors and warnings on the terminal: one sentence each; --debug shows the traceback.

rich is imported when a message is printed, so that ``hypercaps --help`` does not wait for it.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from hypercaps.cli import events
from hypercaps.data.text import printable
from hypercaps.errors import DataWarning, HypercapsError, Interrupted, SpeedWarning

if TYPE_CHECKING:
    from rich.console import Console


# Base of errors in the words of a command. typer has its own copy of click, or in older versions click itself.
_UsageError: Any = typer.BadParameter.__base__
_ARGUMENTS = "hypercaps.arguments"  # where a context keeps what was typed
_ENDLESS = 100_000  # columns of a console that does not wrap lines


class SentenceGroup(TyperGroup):
    """Print errors that the user can fix as one sentence and exit with code 2; --debug shows the traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.parent is None:
            events.enable_if_requested(args)
            ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            _refuse_empty(ctx.meta[_ARGUMENTS])
            return super().invoke(ctx)
        except HypercapsError as error:
            if ctx.find_root().obj == "debug":
                raise
            _say_error(error)
            raise typer.Exit(130 if isinstance(error, Interrupted) else 2) from None
        except ModuleNotFoundError as error:
            if error.name != "torch" or ctx.find_root().obj == "debug":
                raise
            _say_error(
                f"'hypercaps {ctx.invoked_subcommand}' needs PyTorch, which is not installed here: install it (pip "
                "install torch)"
            )
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            if events.are_enabled():
                _say_error("Stopped. Nothing was written.")
            else:
                say("[bold red]Stopped.[/] Nothing was written.")
            raise typer.Exit(130) from None
        except _UsageError as error:  # an option that does not exist, or a value that it can't have
            message = error.format_message()
            hint = unquoted_pattern(ctx.meta[_ARGUMENTS]) if "unexpected extra argument" in message else ""
            if not hint and not events.are_enabled():
                raise
            _say_error(hint or message)
            raise typer.Exit(error.exit_code) from None


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument, mostly a variable of the shell that is not set: as a path it is the current folder."""
    for before, argument in itertools.pairwise(["", *arguments]):
        option, is_joined, value = argument.partition("=")
        if argument == "" or (option.startswith("--") and is_joined and not value):
            name = option or (before if before.startswith("-") else "")
            what = f"the value of {name}" if name else "an argument"
            raise HypercapsError(f"{what} is empty: give one; perhaps a variable of the shell is not set")


def unquoted_pattern(arguments: Sequence[str]) -> str:
    """What to do, if neighbouring arguments are files by which a shell replaces a pattern of tiles; otherwise empty."""
    pattern = ""
    for first, second in itertools.pairwise(map(Path, arguments)):
        if first.suffix and (first.parent, first.suffix) == (second.parent, second.suffix) and first.is_file():
            pattern = str(first.parent / f"*{first.suffix}")
    if not pattern:
        return ""
    return (
        f"several files like {pattern} were given where one is expected: if they are tiles of one scene, put their "
        f"pattern in quotes, '{pattern}', so that the shell leaves it as it is"
    )


def remember_debug(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.find_root().obj = "debug"
    return value


def console_out() -> Console:
    return _console(stderr=False)


def console_err(*, quiet: bool = False) -> Console:
    """The console for progress and messages; with ``quiet`` it shows nothing."""
    return _console(stderr=True, quiet=quiet)


def _console(*, stderr: bool, quiet: bool = False) -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """A console on which texts from files, such as names of arrays, can't control the terminal."""

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for part in super().render(renderable, options):
                is_safe = part.control or part.text == "\n"
                yield part if is_safe else Segment("\n".join(map(printable, part.text.split("\n"))), part.style)

    if stderr and events.are_enabled():
        return PrintableConsole(
            file=events.MessageStream(), force_terminal=False, color_system=None, width=_ENDLESS, highlight=False
        )
    return PrintableConsole(stderr=stderr, highlight=False, quiet=quiet)


def shows_bars(*, quiet: bool = False) -> bool:
    """Whether progress may be shown. If not, rich, which decides in the end, need not be imported."""
    forced = any(name in os.environ for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
    return not quiet and (events.are_enabled() or forced or sys.stderr.isatty())


def say_written(path: object) -> None:
    typer.echo(f"wrote {printable(str(path))}")


def say(text: str) -> None:
    console_err().print(text, soft_wrap=True)


def _say_error(error: object) -> None:
    if events.are_enabled():
        events.write_event("error", text=printable(str(error)))
    else:
        say(f"[bold red]Error:[/] {plain(error)}")


def _say_warning(message: object) -> None:
    if events.are_enabled():
        events.write_message("warning", message)
    else:
        say(f"[bold yellow]Warning:[/] {plain(message)}")


def plain(value: object) -> str:
    """Text on one line without markup: a name from a file must not begin a line that looks like one of ours."""
    from rich.markup import escape

    return escape(printable(str(value)))


class ShowWarnings:
    """Print warnings about data and speed as a sentence, other warnings as Python does, and each only once.

    Python's own registry of shown warnings is reset whenever a library changes the warning filters.
    """

    def __init__(self) -> None:
        self._shown: set[tuple[type[Warning], str]] = set()

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: Any = None,
    ) -> None:
        if (category, str(message)) in self._shown:
            return
        self._shown.add((category, str(message)))
        if events.are_enabled() or issubclass(category, DataWarning | SpeedWarning):
            _say_warning(message)
        else:
            sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
