"""The command ``hypercaps info``."""

from __future__ import annotations

import json

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out


@app.command(epilog="Example:  hypercaps info runs/first/model.safetensors")
def info(
    what: opt.AnyFileArg,
    *,
    as_json: opt.Json = False,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    debug: opt.Debug = False,
) -> None:
    """Describe a scene, a label file or a model."""
    from hypercaps.cli import tables
    from hypercaps.pipeline.describe import describe

    about = describe(what, wavelengths=wavelengths, allow_remote=allow_remote)
    if as_json:
        typer.echo(json.dumps(about.to_json(), indent=2))
    else:
        tables.print_facts(console_out(), about)
