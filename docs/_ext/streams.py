"""The output of a command in a notebook as one text.

IPython hands the output of ``%%bash`` on in pieces of 100 bytes. myst-nb ends each of them with a new line, also in the
middle of a word; here pieces are joined as they are.
"""

from __future__ import annotations

from typing import Any

from myst_nb.core import render
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    render.coalesce_streams = joined_streams
    return {"parallel_read_safe": True}


def joined_streams(outputs: list[Any]) -> list[Any]:
    """Outputs of a cell, with one text for stdout and one for stderr before all others."""
    joined: dict[str, Any] = {}
    others = []
    for output in outputs:
        if output["output_type"] != "stream":
            others.append(output)
        elif output["name"] in joined:
            joined[output["name"]]["text"] += output["text"]
        else:
            joined[output["name"]] = output
    return [*(joined[name] for name in sorted(joined, reverse=True)), *others]  # stdout, stderr
