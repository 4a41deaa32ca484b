"""The command ``hypercaps methods``."""

from __future__ import annotations

import json

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_out
from hypercaps.cli.root import app
from hypercaps.errors import ModelError


@app.command(epilog="Example:  hypercaps methods --bands 200 --classes 16")
def methods(
    *,
    bands: opt.Bands = None,
    classes: opt.Classes = None,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """List the methods, their input and their training recipes.

    See docs/methods.md.
    """
    from hypercaps.cli import tables
    from hypercaps.models.registry import METHODS

    if (bands is None) != (classes is None):
        raise ModelError("parameters depend on bands and classes: give both --bands and --classes, or none of them")
    listed = [method.describe(bands, classes) for method in METHODS.values()]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        tables.print_methods(console_out(), listed)
