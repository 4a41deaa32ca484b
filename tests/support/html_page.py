"""What an HTML page consists of."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags, addresses, tables and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.tables: dict[str, list[list[str]]] = {}  # rows of cells, by the first cell of the head
        self._rows: list[list[str]] = []
        self._inside = False  # a cell
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._inside = True
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.tables[self._rows[0][0]] = self._rows[1:]
        elif tag in ("td", "th"):
            self._rows[-1][-1] = self._rows[-1][-1].strip()
            self._inside = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._inside:
            self._rows[-1][-1] += data
