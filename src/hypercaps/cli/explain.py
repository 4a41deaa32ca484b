"""The command ``hypercaps explain``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import typer

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, plain
from hypercaps.cli.options import (
    AllowRemote,
    ClassName,
    Debug,
    JsonFile,
    ModelArg,
    OutFigure,
    Pixel,
    Resample,
    SceneArg,
    Threads,
    Wavelengths,
    set_threads,
    with_bands_of,
)
from hypercaps.errors import SceneError


@app.command(epilog="Example:  hypercaps explain runs/first/model.safetensors cube.mat --at 70,70 --out why.png")
def explain(
    model: ModelArg,
    scene: SceneArg,
    *,
    out: OutFigure = None,
    json_file: JsonFile = None,
    at: Pixel = None,
    class_name: ClassName = None,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    resample: Resample = False,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Show which bands a class capsule responded to.

    For the class of one pixel (--at), or as a mean over the pixels of a class
    (--class). Also checks whether these bands matter: how much shorter the
    capsule is without them. See docs/explain.md.
    """
    from hypercaps.classifier import load_model
    from hypercaps.cli import progress, tables
    from hypercaps.inference.explain import explain_at, explain_class, find_class
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_scene
    from hypercaps.io.writers.atomic import check_output, write_files

    console = console_out()
    to_stdout = json_file == Path("-")
    taken = input_files(model, scene, wavelengths)
    if out is not None:
        check_output(out, {".png"}, inputs=taken)
        taken.append(out)
    if json_file is not None and not to_stdout:
        check_output(json_file, inputs=taken)
    if at is None and class_name is None:
        raise SceneError("there is nothing to explain: name a pixel (--at ROW,COL) or a class (--class NAME)")
    pixel = None if at is None else _pixel(at)
    trained = load_model(model).model_
    label = None if class_name is None else find_class(trained, class_name)
    download = progress.download_bar(console)
    cube = open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=download)
    cube = with_bands_of(trained, cube, resample)
    set_threads(threads)
    if pixel is not None:
        found = explain_at(trained, cube, *pixel, label=label)
    else:
        assert label is not None  # because a pixel or a class was given
        found = explain_class(trained, cube, label)
    about = found.describe()
    files = {}
    if out is not None:
        from hypercaps.report.plots import attribution_picture

        files[out] = attribution_picture(found)
    if json_file is not None and not to_stdout:
        files[json_file] = (json.dumps(about, indent=2, allow_nan=False) + "\n").encode()
    write_files(files)
    if to_stdout:
        typer.echo(json.dumps(about, indent=2, allow_nan=False))
        return
    tables.print_explanation(console, found)
    for path in files:
        console.print(f"wrote {plain(path)}")


def _pixel(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(-?\d+)\s*,\s*(-?\d+)\s*", text)
    if match is None:
        raise SceneError(f"--at is {text!r}: a row and a column, counted from 0, are expected, such as 70,12")
    return int(match[1]), int(match[2])
