"""A document of headings, text, tables and pictures, as Markdown and as one self-contained HTML file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hypercaps.report import page

_UNITS = re.compile(r"\b(of|s|min|h)\b")  # words that a column of numbers may have


class Heading(NamedTuple):
    level: int
    text: str


class Text(NamedTuple):
    text: str


class Picture(NamedTuple):
    file: str
    title: str
    png: bytes


class Table(NamedTuple):
    title: str
    head: list[str]
    rows: list[list[str]]
    caption: str = ""

    def is_numeric(self, column: int) -> bool:
        """Whether a column has no letters but units and is to be aligned right."""
        return not any(letter.isalpha() for row in self.rows for letter in _UNITS.sub("", row[column]))


class Contents(NamedTuple):
    """Links to the headings of level 2; anchors are made from their texts."""

    titles: list[str]


class Fold(NamedTuple):
    """A part that is closed until it is clicked, in HTML; in Markdown it follows a heading of level 3."""

    title: str
    blocks: list[Heading | Text | Table | Picture]


Block = Heading | Text | Table | Picture | Contents | Fold


def flat(blocks: Sequence[Block]) -> Iterator[Block]:
    """All blocks, with the contents of a fold in its place."""
    for block in blocks:
        if isinstance(block, Fold):
            yield from block.blocks
        else:
            yield block


def anchor(title: str) -> str:
    """The name that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def to_markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_markdown_block(block) for block in blocks) + "\n"


def _markdown_block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_escape(block.text)}"
        case Contents():
            return "\n".join(f"- [{_escape(title)}](#{anchor(title)})" for title in block.titles)
        case Fold():
            return "\n\n".join(map(_markdown_block, (Heading(3, block.title), *block.blocks)))
        case Text():
            return _escape(block.text)
        case Picture():
            return f"**{_escape(block.title)}**\n\n![{_escape(block.title)}]({block.file})"
        case Table():
            rules = ["---:" if block.is_numeric(i) else "---" for i in range(len(block.head))]
            rows = [[_escape(cell) for cell in row] for row in (block.head, *block.rows)]
            lines = [f"| {' | '.join(row)} |" for row in (rows[0], rules, *rows[1:])]
            caption = ["", _escape(block.caption)] if block.caption else []
            return "\n".join([f"**{_escape(block.title)}**", "", *lines, *caption])


def _escape(text: str) -> str:
    """Text without effect on the Markdown around it: it starts or ends no table cell, tag, link or code."""
    return re.sub(r"([\\|`*\[\]]|<(?=[A-Za-z/!?]))", r"\\\1", " ".join(text.split()))


def to_html(blocks: Sequence[Block], title: str) -> str:
    """One file that opens without a network: pictures and styles are embedded."""
    return page.render("study", title=title, blocks=blocks, anchor=anchor)
