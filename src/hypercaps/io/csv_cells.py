"""Text in cells of CSV files: a spreadsheet would execute what begins like a formula.

An apostrophe in front makes it text, as typed into a spreadsheet. Text that has one already gets another, so that
reading restores what was written.
"""

from __future__ import annotations

import re
from typing import Any

_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def to_cell(value: Any) -> Any:
    """A value as it is written to a cell; numbers stay as they are, also in text."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _is_number(value):
        return value
    return f"'{value}"


def from_cell(text: str) -> str:
    """The text that was written to a cell by :func:`to_cell`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
