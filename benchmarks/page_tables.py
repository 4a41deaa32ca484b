"""Tables in pages: each stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; ``head`` is its first line."""
    lines = [head, "|" + "---|" * (head.count("|") - 1), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def fill(text: str, tables: Mapping[str, Callable[[T], str]], results: T) -> str:
    """The text with all tables that it has places for."""
    for name, make in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if (found := place.search(text)) is not None:
            text = f"{text[: found.end(1)]}{make(results)}\n{text[found.start(2) :]}"
    return text
