"""The commands ``hypercaps scenes`` and ``hypercaps scenes download``."""

from __future__ import annotations

import json

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.messages import SentenceGroup, console_err, console_out, plain
from hypercaps.cli.root import app

scenes_app = typer.Typer(
    cls=SentenceGroup,
    invoke_without_command=True,
    rich_markup_mode="rich",
    epilog="Example:  hypercaps scenes download pavia-university",
)
app.add_typer(scenes_app, name="scenes")


@scenes_app.callback(epilog="Example:  hypercaps scenes download pavia-university")
def scenes(ctx: typer.Context, as_json: opt.Json = False, debug: opt.Debug = False) -> None:
    """List the public scenes, or download one.

    See docs/public-scenes.md.
    """
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
    name: opt.SceneNameArg,
    debug: opt.Debug = False,
) -> None:
    """Download a public scene, check it, and print the paths of its files.

    See docs/public-scenes.md.
    """
    from hypercaps.cli import progress
    from hypercaps.io import catalog

    console, console_of_bar = console_out(), console_err()
    entry = catalog.get_scene(name)
    for part in ("cube", "labels"):
        path, _ = entry.get(part, progress.download_bar(console_of_bar))
        console.print(f"{part}: {plain(path)}", soft_wrap=True)
