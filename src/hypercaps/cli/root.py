"""The root of the command line: the application that all commands register with."""

from __future__ import annotations

import os
import warnings
from typing import Annotated

import typer

from hypercaps import __version__
from hypercaps.cli import options as opt
from hypercaps.cli.messages import SentenceGroup, ShowWarnings

app = typer.Typer(
    cls=SentenceGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Land-cover maps from hyperspectral scenes and a few labels, with the 1D-ConvCapsNet capsule network.",
    epilog="See docs/index.md. Try it on the bundled scene:  hypercaps train indian-pines --out runs/first",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"hypercaps {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: opt.Debug = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    warnings.showwarning = ShowWarnings()
    # torch reads this when it is imported: threads that wait for each other then release the core after a moment. On a
    # busy machine they would otherwise slow each other down several times.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
