"""The command line: one module per command, each a few lines that call one function of the package.

Heavy libraries are imported inside the commands, so that ``hypercaps --help`` responds at once, and a command is
imported without the others.
"""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

    from hypercaps.cli.root import app

__all__ = ["COMMANDS", "app", "main"]

# In the order of --help: each module of these names registers its command with the app.
COMMANDS = (
    "train", "map", "evaluate", "explain", "suggest", "export", "serve", "scenes", "info", "methods", "study",
)  # fmt: skip


def load_app(*names: str) -> typer.Typer:
    """The application with the commands of these names."""
    from hypercaps.cli.root import app

    for name in names:
        import_module(f"hypercaps.cli.{name}")
    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        return load_app(*COMMANDS)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    from hypercaps.cli.process import collect_garbage_less_often, end_as_ctrl_c_does, give_up_output, print_any_text

    collect_garbage_less_often()
    print_any_text()
    try:
        end_as_ctrl_c_does()
        first = sys.argv[1:2]
        load_app(*(first if first and first[0] in COMMANDS else COMMANDS))()
    except KeyboardInterrupt:  # before a command could handle it
        raise SystemExit(130) from None
    except OSError as error:  # of what is printed: files have their own sentences
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or "--debug" in sys.argv:
            raise
        raise SystemExit(give_up_output()) from None
