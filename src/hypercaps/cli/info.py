"""hypercaps scenes, info and methods: what there is, and what it is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hypercaps.cli.app import app, scenes_app
from hypercaps.cli.messages import console_out, plain
from hypercaps.cli.options import AllowRemote, Debug, Json, Wavelengths
from hypercaps.errors import ModelError


@scenes_app.callback(epilog="Example:  hypercaps scenes download pavia-university")
def scenes(ctx: typer.Context, as_json: Json = False, debug: Debug = False) -> None:
    """List the public scenes that are known by name, or download one."""
    if ctx.invoked_subcommand is not None:
        return
    from hypercaps.cli import tables
    from hypercaps.io import catalog

    listed = [catalog.get_scene(name).describe() for name in catalog.names()]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        tables.print_scenes(console_out(), listed)


@scenes_app.command("download", epilog="Example:  hypercaps scenes download pavia-university")
def download(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As 'hypercaps scenes' lists it.")],
    debug: Debug = False,
) -> None:
    """Fetch a public scene now, check it, and say where it is."""
    from hypercaps.cli import progress
    from hypercaps.io import catalog

    console = console_out()
    entry = catalog.get_scene(name)
    for part in ("cube", "labels"):
        path, _ = entry.get(part, progress.download_bar(console))
        console.print(f"{part}: {plain(path)}", soft_wrap=True)


@app.command(epilog="Example:  hypercaps info runs/first/model.safetensors")
def info(
    what: Annotated[
        str, typer.Argument(metavar="FILE_OR_NAME", help="A scene, labels, a model, tiles, or a scene's name.")
    ],
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what a scene, a label file or a model is."""
    from hypercaps.cli import tables
    from hypercaps.pipeline.describe import describe

    about = describe(what, wavelengths=wavelengths, allow_remote=allow_remote)
    if as_json:
        typer.echo(json.dumps(about, indent=2))
    else:
        tables.print_facts(console_out(), about)


@app.command(epilog="Example:  hypercaps methods --bands 200 --classes 16")
def methods(
    bands: Annotated[int | None, typer.Option(min=1, metavar="C", help="Count parameters for C bands ...")] = None,
    classes: Annotated[int | None, typer.Option(min=2, metavar="N", help="... and N classes.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the methods, what they look at, and how they are trained."""
    from hypercaps.cli import tables
    from hypercaps.models.registry import METHODS

    if (bands is None) != (classes is None):
        raise ModelError("parameters depend on bands and classes: give both --bands and --classes, or none of them")
    listed = [method.describe(bands, classes) for method in METHODS.values()]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        tables.print_methods(console_out(), listed)
