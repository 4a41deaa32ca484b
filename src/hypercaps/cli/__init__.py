"""The command line: a table of commands, each a few lines over one function of the package.

Nothing heavy is imported before a command needs it, so that ``hypercaps --help`` answers at once.
"""

from __future__ import annotations

# In the order of --help.
from hypercaps.cli import training  # isort: skip
from hypercaps.cli import mapping  # isort: skip
from hypercaps.cli import evaluation  # isort: skip
from hypercaps.cli import reasons  # isort: skip
from hypercaps.cli import lists  # isort: skip
from hypercaps.cli import studies  # isort: skip
from hypercaps.cli.root import app

__all__ = ["app", "evaluation", "lists", "main", "mapping", "reasons", "studies", "training"]


def main() -> None:
    try:
        app()
    except KeyboardInterrupt:  # before a command could take care of it
        raise SystemExit(130) from None
