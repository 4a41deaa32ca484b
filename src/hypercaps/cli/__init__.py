"""The command line: one module per command, each a few lines that call one function of the package.

Heavy libraries are imported inside the commands, so that ``hypercaps --help`` responds at once.
"""

from __future__ import annotations

# Imported in the order of --help: each module registers its command with the app.
from hypercaps.cli import train  # isort: skip
from hypercaps.cli import map as map_  # isort: skip
from hypercaps.cli import evaluate  # isort: skip
from hypercaps.cli import explain  # isort: skip
from hypercaps.cli import suggest  # isort: skip
from hypercaps.cli import export  # isort: skip
from hypercaps.cli import serve  # isort: skip
from hypercaps.cli import scenes  # isort: skip
from hypercaps.cli import info  # isort: skip
from hypercaps.cli import methods  # isort: skip
from hypercaps.cli import study  # isort: skip
from hypercaps.cli.app import app
from hypercaps.cli.process import end_as_ctrl_c_does, print_any_text

__all__ = ["COMMANDS", "app", "main"]

COMMANDS = (train, map_, evaluate, explain, suggest, export, serve, scenes, info, methods, study)


def main() -> None:
    print_any_text()
    try:
        end_as_ctrl_c_does()
        app()
    except KeyboardInterrupt:  # before a command could handle it
        raise SystemExit(130) from None
