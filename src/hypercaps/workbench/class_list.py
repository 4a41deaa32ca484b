"""The classes of a project: number, name, colour, key, hidden and locked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from hypercaps.data.colors import choose_colors, parse_color
from hypercaps.data.labels import Legend, LegendEntry
from hypercaps.data.text import printable
from hypercaps.workbench.refusals import RefusedError, not_found

MOST = 254  # the label raster has a byte for each pixel
_LONGEST_NAME = 100
_COLOR = re.compile(r"#[0-9a-f]{6}")
_KEYS = "1234567890"


@dataclass(frozen=True)
class ClassRecord:
    """One class; ``id`` is permanent and is the value in the label raster."""

    id: int
    name: str
    color: str  # #rrggbb
    key: str = ""
    hidden: bool = False
    locked: bool = False


Classes = tuple[ClassRecord, ...]


def find(classes: Classes, number: int) -> ClassRecord:
    for one in classes:
        if one.id == number:
            return one
    raise not_found(f"class {number}")


def legend_of(classes: Classes) -> Legend:
    return Legend(tuple(sorted(LegendEntry(one.id, one.name, parse_color(one.color)) for one in classes)))


def new_class(
    classes: Classes, name: str | None, color: str | None, taken: Iterable[int] = (), number: int | None = None
) -> ClassRecord:
    """A class with the first number that is not ``taken``, the next free key and a colour of its own."""
    used = {one.id for one in classes} | set(taken)
    free = next((n for n in range(1, MOST + 1) if n not in used), None) if number is None else number
    if free is None:
        raise RefusedError(f"there are {MOST} classes already, the most that a label raster can hold", 409)
    name = checked_name(f"Class {free}" if name is None else name)
    if color is None:
        given = [parse_color(one.color) for one in classes]
        chosen = choose_colors([*(one.name for one in classes), name], [*given, None])[-1]
        color = f"#{bytes(chosen).hex()}"
    keys = {one.key for one in classes}
    key = next((key for key in _KEYS if key not in keys), "")
    return ClassRecord(free, name, checked_color(color), key)


def checked_name(name: str) -> str:
    name = printable(name).strip()
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise RefusedError(f"a class needs a name of 1 to {_LONGEST_NAME} characters")
    return name


def checked_color(color: str) -> str:
    if not _COLOR.fullmatch(color.lower()):
        raise RefusedError(f"{color[:20]!r} is no colour: #rrggbb is expected")
    return color.lower()


def _renamed(classes: Classes, one: ClassRecord, value: str) -> Classes:
    name = checked_name(value)
    if any(other.name.casefold() == name.casefold() and other.id != one.id for other in classes):
        raise RefusedError(f"there is a class {name!r} already: merge them, or choose another name", 409)
    return replaced(classes, replace(one, name=name))


def _with_key(classes: Classes, one: ClassRecord, value: str) -> Classes:
    if len(value) > 1 or not value.isprintable():
        raise RefusedError("a key is a single character, or empty")
    freed = tuple(replace(other, key="") if value and other.key == value else other for other in classes)
    return replaced(freed, replace(one, key=value))


_CHANGES: dict[str, Callable[[Classes, ClassRecord, str], Classes]] = {
    "rename": _renamed,
    "recolor": lambda classes, one, value: replaced(classes, replace(one, color=checked_color(value))),
    "key": _with_key,
    "hide": lambda classes, one, _: replaced(classes, replace(one, hidden=True)),
    "show": lambda classes, one, _: replaced(classes, replace(one, hidden=False)),
    "lock": lambda classes, one, _: replaced(classes, replace(one, locked=True)),
    "unlock": lambda classes, one, _: replaced(classes, replace(one, locked=False)),
}
CHANGES = tuple(_CHANGES)
TITLES = {
    "rename": "Rename class", "recolor": "Change colour", "key": "Change key", "hide": "Hide class",
    "show": "Show class", "lock": "Lock class", "unlock": "Unlock class", "add": "Add class", "merge": "Merge classes",
    "remove": "Remove class",
}  # fmt: skip


def changed(classes: Classes, action: str, number: int, value: str) -> Classes:
    """The classes after one of ``CHANGES``."""
    return _CHANGES[action](classes, find(classes, number), value)


def replaced(classes: Classes, new: ClassRecord) -> Classes:
    return tuple(new if one.id == new.id else one for one in classes)


def to_json(classes: Classes) -> list[dict[str, Any]]:
    return [asdict(one) for one in classes]


def from_json(rows: Iterable[dict[str, Any]]) -> Classes:
    return tuple(ClassRecord(**row) for row in rows)
