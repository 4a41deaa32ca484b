"""The contents of the site, from the lists of the front page.

Each list of links below a heading of index.md becomes a part of the sidebar with the heading as its caption. So a page
is listed in one place, and the front page reads the same in the repository.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

HEADING = re.compile(r"^## (.+)$", flags=re.MULTILINE)
PAGE = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\.md\)", flags=re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _add_contents, priority=200)  # when links lead to pages of the site
    return {"parallel_read_safe": True}


def _add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == app.config.root_doc:
        _, *parts = HEADING.split(source[0])
        source[0] += "".join(map(_toctree, parts[::2], parts[1::2]))


def _toctree(caption: str, text: str) -> str:
    pages = [f"{title.replace('`', '')} <{page}>" for title, page in PAGE.findall(text)]
    lines = ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
    return "\n\n" + "\n".join(lines) + "\n" if pages else ""
