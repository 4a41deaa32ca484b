"""Make text from files safe to show: a terminal executes control characters."""

from __future__ import annotations

_JOINERS = "\u200c\u200d"  # invisible, and part of words in some scripts


def printable(text: str) -> str:
    """Text in which every control character, line break and invisible character is a space."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _JOINERS else " " for c in text)
