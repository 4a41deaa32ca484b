"""The page of all commands, written by the program itself: help, arguments and options of each command as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import typer
from sphinx.application import Sphinx

from hypercaps.cli import app as hypercaps

PAGE = "reference/commands"
NAMED_PAGE = re.compile(r"\bdocs/([\w-]+)\.md")
NOT_LISTED = ("--debug", "--install-completion", "--show-completion")  # the same for all, described on the page


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _add_commands)
    return {"parallel_read_safe": True}


def _add_commands(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == PAGE:
        app.env.note_reread()  # the options are not in this file
        source[0] += "\n".join(_commands(typer.main.get_command(hypercaps), "hypercaps"))


def _commands(group: Any, prefix: str) -> Iterator[str]:
    """Markdown of the commands of a group and of its groups; typer's classes are untyped."""
    for name, command in group.commands.items():
        yield from _command(command, f"{prefix} {name}")
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")


def _command(command: Any, name: str) -> Iterator[str]:
    yield f"\n## {name}\n"
    yield NAMED_PAGE.sub(r"[\1.md](../\1.md)", _escaped(command.help)) + "\n"
    shown = [one for one in command.params if not getattr(one, "hidden", False) and one.opts[0] not in NOT_LISTED]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    yield f"```text\n{_usage(name, command, arguments, options)}\n```\n"
    if arguments:
        yield from _table("argument", arguments)
    for panel, members in groupby(options, key=lambda one: one.rich_help_panel):
        yield from _table(panel or "option", list(members))
    if command.epilog:
        yield f"```sh\n{command.epilog.removeprefix('Example:').strip()}\n```\n"


def _usage(name: str, command: Any, arguments: list[Any], options: list[Any]) -> str:
    needed = [f"{option.opts[0]} {option.metavar}" for option in options if option.required]
    places = [one.metavar if one.required else f"[{one.metavar}]" for one in arguments]
    several = [place + ("..." if one.nargs == -1 else "") for place, one in zip(places, arguments, strict=True)]
    return " ".join([name, *several, *needed, "[OPTIONS]", *(["[COMMAND]"] if hasattr(command, "commands") else [])])


def _table(title: str, rows: list[Any]) -> Iterator[str]:
    yield f"| {title} | meaning | default |\n|---|---|---|"
    for row in rows:
        yield f"| {_names(row)} | {_escaped(row.help)} | {_default(row)} |"
    yield ""


def _names(row: Any) -> str:
    if row.param_type_name == "argument":
        return f"`{row.metavar}`"
    names = ", ".join([*row.opts, *row.secondary_opts])
    return f"`{names} {row.metavar}`" if row.metavar else f"`{names}`"


def _default(row: Any) -> str:
    """The default, or the words that the program has for it."""
    if isinstance(row.show_default, str):
        return _escaped(row.show_default.strip("()"))
    if row.required:
        return "needed"
    if isinstance(row.default, bool):
        return "on" if row.default else "off"
    return "" if row.default is None or not row.show_default else f"`{row.default}`"


def _escaped(text: str) -> str:
    """Text of a terminal as Markdown: options as code, signs that mean something escaped."""
    marked = re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", " ".join(text.split("\n")) if "\n\n" not in text else text)
    return re.sub(r"(?<!\\)([*|<])", r"\\\1", marked)
