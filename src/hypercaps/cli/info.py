"""The command ``hypercaps info``."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out
from hypercaps.cli.values import open_cube


@app.command(epilog="Example:  hypercaps info runs/first/model.safetensors")
def info(
    what: opt.AnyFileArg,
    scene: opt.ComparedSceneArg = None,
    *,
    as_json: opt.Json = False,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    class_field: opt.ClassField = None,
    debug: opt.Debug = False,
) -> None:
    """Describe a scene, a label file or a model, or compare a new scene with a model's training scene.

    Shows how a file is read, before it is used. See docs/data.md.
    """
    from hypercaps.cli import tables
    from hypercaps.pipeline.describe import describe, describe_new_scene

    if scene is None:
        about = describe(what, wavelengths=wavelengths, class_field=class_field, allow_remote=allow_remote)
    else:
        about = describe_new_scene(Path(what), open_cube(scene, wavelengths, allow_remote))
    if as_json:
        typer.echo(json.dumps(about.to_json(), indent=2))
    else:
        tables.print_facts(console_out(), about)
