"""Pages of the repository's root, such as ARCHITECTURE.md, as pages of the site.

The page ``project/NAME.md`` shows ROOT/NAME.md. Links between these and the pages of docs/ are written for the
repository, where all files are; here they are rewritten to where the pages are on the site. Links to other files, such
as tests, become downloads.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

FOLDER = "project"
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _rewrite, priority=100)
    return {"parallel_read_safe": True}


def _rewrite(app: Sphinx, docname: str, source: list[str]) -> None:
    docs = Path(app.srcdir)
    folder = (docs / docname).parent
    if docname.startswith(f"{FOLDER}/"):
        original = docs.parent / f"{Path(docname).name.upper()}.md"
        app.env.note_dependency(str(original))
        source[0], folder = original.read_text(encoding="utf-8"), original.parent
    source[0] = LINK.sub(lambda link: _as_on_site(link, folder, docs, docname), source[0])


def _as_on_site(link: re.Match[str], folder: Path, docs: Path, docname: str) -> str:
    """The link, written in a file of ``folder``, as the page ``docname`` of the site needs it."""
    target, anchor = link[1], link[2] or ""
    file = (folder / target).resolve()
    if "://" in target or not file.is_file():
        return link[0]
    if file.parent == docs.parent and file.suffix == ".md" and (docs / FOLDER / f"{file.stem.lower()}.md").is_file():
        file = docs / FOLDER / f"{file.stem.lower()}.md"
    return f"]({Path(os.path.relpath(file, (docs / docname).parent)).as_posix()}{anchor})"
