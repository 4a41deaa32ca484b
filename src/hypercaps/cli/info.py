"""The command ``hypercaps info``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_out
from hypercaps.cli.root import app
from hypercaps.cli.values import open_cube
from hypercaps.errors import SceneError

if TYPE_CHECKING:
    from hypercaps.pipeline.describe import FileReport


@app.command(epilog="Example:  hypercaps info runs/first/model.safetensors")
def info(
    what: opt.AnyFileArg,
    scene: opt.ComparedSceneArg = None,
    *,
    as_json: opt.Json = False,
    verbose: opt.Verbose = False,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    class_field: opt.ClassField = None,
    debug: opt.Debug = False,
) -> None:
    """Describe a scene, a label file or a model, or compare a new scene with a model's training scene.

    Shows how a file is read, before it is used. See docs/data.md.
    """
    from hypercaps.cli import tables
    from hypercaps.io.options import OpenOptions
    from hypercaps.pipeline.describe import describe, describe_new_scene, report_file

    if verbose:
        if scene is not None:
            raise SceneError("--verbose is for one file: leave out the model or the scene")
        options = OpenOptions(wavelengths, class_field, allow_remote)
        _print_report(report_file(what, options), as_json=as_json)
        return
    if scene is None:
        about = describe(what, wavelengths=wavelengths, class_field=class_field, allow_remote=allow_remote)
    else:
        about = describe_new_scene(Path(what), partial(open_cube, scene, wavelengths, allow_remote))
    if as_json:
        typer.echo(json.dumps(about.to_json(), indent=2))
    else:
        tables.print_facts(console_out(), about)


def _print_report(report: FileReport, *, as_json: bool) -> None:
    """Print the report of a file, then raise an error if the file can't be read."""
    from hypercaps.cli import tables

    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        tables.print_file_report(console_out(), report)
    if report.error is not None:
        raise report.error
