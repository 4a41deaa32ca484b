"""The command line: a table of commands, each a few lines over one function of the package.

Nothing heavy is imported before a command needs it, so that ``hypercaps --help`` answers at once.
"""

from __future__ import annotations

# In the order of --help.
from hypercaps.cli import train as training  # isort: skip
from hypercaps.cli import map as mapping  # isort: skip
from hypercaps.cli import evaluate as evaluation  # isort: skip
from hypercaps.cli import explain as reasons  # isort: skip
from hypercaps.cli import info as lists  # isort: skip
from hypercaps.cli import study as studies  # isort: skip
from hypercaps.cli.app import app

__all__ = ["app", "evaluation", "lists", "main", "mapping", "reasons", "studies", "training"]


def main() -> None:
    try:
        app()
    except KeyboardInterrupt:  # before a command could take care of it
        raise SystemExit(130) from None
