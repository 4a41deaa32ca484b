"""The help of every command: options in groups, with a sentence and the default, and each option defined once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.cli.options import PANELS

# Options of one name that take a different kind of value in different commands: a folder, a file of another format, or
# no value at all. Each kind still has one definition.
KINDS = {
    "--out": {("DIR", "train"), ("DIR", "study"), ("FILE", "map"), ("FILE", "explain"), ("FILE", "suggest")},
    "--json": {
        ("", "scenes"), ("", "info"), ("", "methods"), ("FILE", "evaluate"), ("FILE", "explain"),
        ("FILE", "train"),
    },
    "--probabilities": {("", "train"), ("FILE", "map")},
    "--budget": {("MINUTES", "train"), ("MINUTES", "study")},  # of one training, and of a study
    "--resume": {("DIR", "train"), ("", "map")},
}  # fmt: skip


def commands(group: TyperGroup | None = None) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    """All commands with the words that call them; a group that does something itself is one as well."""
    if group is None:
        root = typer.main.get_command(app)
        assert isinstance(root, TyperGroup)
        group = root
    for name, command in group.commands.items():
        assert isinstance(command, TyperCommand | TyperGroup)
        yield name, command
        if isinstance(command, TyperGroup):
            yield from ((f"{name} {rest}", inner) for rest, inner in commands(command))


COMMANDS = dict(commands())


def options_of(command: TyperCommand | TyperGroup) -> list[TyperOption]:
    options = [param for param in command.params if isinstance(param, TyperOption)]
    return [option for option in options if not option.hidden and "--help" not in option.opts]


def default_is_shown(option: TyperOption) -> bool:
    has_default = option.default is not None and option.default is not False
    return bool(option.required or isinstance(option.show_default, str) or (has_default and option.show_default))


def test_all_commands_are_checked() -> None:
    names = {
        "train",
        "map",
        "evaluate",
        "explain",
        "suggest",
        "export",
        "serve",
        "scenes",
        "scenes download",
        "info",
        "methods",
        "study",
    }
    assert set(COMMANDS) == names


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_group_a_sentence_and_a_default(name: str) -> None:
    for option in options_of(COMMANDS[name]):
        assert option.rich_help_panel in PANELS, option.opts
        assert option.help and option.help.endswith("."), option.opts
        assert option.metavar is not None, option.opts  # typer would show a Python type
        assert default_is_shown(option), option.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_has_a_sentence(name: str) -> None:
    for param in COMMANDS[name].params:
        if isinstance(param, TyperArgument):
            assert param.help and param.help.endswith("."), param.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_groups_are_in_order_and_the_first_is_short(name: str) -> None:
    panels = [str(option.rich_help_panel) for option in options_of(COMMANDS[name])]
    assert panels == sorted(panels, key=PANELS.index)
    assert panels.count(panels[0]) <= 10


def test_an_option_is_the_same_in_every_command() -> None:
    definitions: dict[str, set[tuple[object, ...]]] = {}
    kinds: dict[str, set[tuple[str, str]]] = {}
    for name, command in COMMANDS.items():
        for option in options_of(command):
            (flag,) = option.opts
            definition = (option.help, option.rich_help_panel, option.metavar, option.show_default, option.default)
            definitions.setdefault(flag, set()).add(definition)
            kinds.setdefault(flag, set()).add((str(option.metavar), name))
    for flag, found in definitions.items():
        if flag in KINDS:
            assert kinds[flag] == KINDS[flag]
        else:
            assert len(found) == 1, (flag, found)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_name_of_an_option_is_cut_off(name: str, columns: int) -> None:
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": str(columns)}, terminal_width=columns)
    assert result.exit_code == 0
    assert max(len(line) for line in result.output.splitlines()) <= columns
    for option in options_of(COMMANDS[name]):
        assert f" {option.opts[0]} " in result.output, option.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_names_a_page_that_exists(name: str) -> None:
    pages = re.findall(r"See\s(docs/[\w-]+\.md)\.", str(COMMANDS[name].help))
    assert len(pages) == 1 and (Path(__file__).parents[2] / pages[0]).is_file(), pages


def test_the_help_of_the_program_names_the_front_page() -> None:
    assert "See docs/index.md." in CliRunner().invoke(app, ["--help"]).output


def test_no_default_is_in_brackets_twice() -> None:
    """typer writes (...) around a default that is described in words."""
    described = [option.show_default for command in COMMANDS.values() for option in options_of(command)]
    words = [text for text in described if isinstance(text, str)]
    assert words and not [text for text in words if text.startswith("(")]
