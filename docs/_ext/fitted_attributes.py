"""Names that end in an underscore, such as ``scores_``, in lists of attributes and parameters.

napoleon writes them as ``:ivar scores_:``, in which docutils takes the underscore for the sign of a link and drops it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

NAME = re.compile(r"^(\s*:(?:ivar|vartype|param|type) \w*[a-z0-9])_:")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _escape_lines, priority=900)  # after napoleon
    return {"parallel_read_safe": True}


def _escape_lines(_app: Sphinx, _kind: str, _name: str, _member: object, _options: object, lines: list[str]) -> None:
    lines[:] = map(escaped, lines)


def escaped(line: str) -> str:
    """A line of reStructuredText whose field name keeps its last underscore."""
    return NAME.sub(r"\1\\_:", line)
