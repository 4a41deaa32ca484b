"""hypercaps explain, suggest"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, plain
from hypercaps.cli.options import (
    AllowRemote,
    ClassField,
    Debug,
    Mask,
    Memory,
    ModelArg,
    Resample,
    SceneArg,
    Threads,
    Wavelengths,
    memory_bytes,
    set_threads,
    with_bands_of,
)
from hypercaps.errors import SceneError


@app.command(epilog="Example:  hypercaps explain runs/first/model.safetensors cube.mat --at 70,70 --out why.png")
def explain(
    model: ModelArg,
    scene: SceneArg,
    *,
    at: Annotated[str | None, typer.Option("--at", metavar="ROW,COL", help="A pixel, counted from 0.")] = None,
    class_name: Annotated[
        str | None,
        typer.Option(
            "--class", metavar="NAME", help="A class, by name or number: its pixels on average, or at --at its capsule."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="A picture of it, as .png.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="All numbers as JSON ('-': print them).")
    ] = None,
    resample: Resample = False,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Say which part of the spectrum a class capsule listened to.

    The class of one pixel, or a class on average over its pixels. Says also whether it matters: how much shorter the
    capsule gets without those bands. See docs/explain.md.
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
        raise SceneError("nothing was asked for: name a pixel (--at ROW,COL) or a class (--class NAME)")
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
        assert label is not None  # as one of the two was given
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


@app.command(epilog="Example:  hypercaps suggest runs/first/model.safetensors scene.tif --n 20 --out points.gpkg")
def suggest(
    model: ModelArg,
    scene: SceneArg,
    *,
    n: Annotated[int, typer.Option("--n", min=1, metavar="N", help="How many pixels.")] = 20,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Points as .gpkg or .geojson where the scene lies somewhere, or .csv.")
    ],
    labels: Annotated[
        list[str] | None,
        typer.Option("--labels", metavar="FILE", help="Labels that there are already: not there again, nor close by."),
    ] = None,
    class_field: ClassField = None,
    mask: Mask = None,
    memory: Memory = "1GB",
    resample: Resample = False,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Say where to label next: pixels of which the model is unsure, spread over the scene and the classes.

    Each point has its rank, what the model takes it for, what it may be instead, and how sure it is. See
    docs/suggest.md.
    """
    from hypercaps.classifier import load_model
    from hypercaps.cli import progress
    from hypercaps.data.tiling import plan_windows
    from hypercaps.inference.suggest import suggest as choose
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_labels, open_mask, open_scene
    from hypercaps.io.writers.atomic import check_output
    from hypercaps.io.writers.points import SUFFIXES, check_placed, write_points
    from hypercaps.pipeline.map import pixels_within

    console = console_out()
    most_memory = memory_bytes(memory)
    check_output(out, SUFFIXES, inputs=input_files(model, scene, mask, wavelengths, *(labels or ())))
    classifier = load_model(model)
    trained = classifier.model_
    download = progress.download_bar(console)
    cube = open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=download)
    cube = with_bands_of(trained, cube, resample)
    check_placed(out, cube)
    known = None
    if labels:
        given = open_labels(
            labels, scene=cube, class_field=class_field, legend=trained.legend, allow_remote=allow_remote
        )
        given.check_fits(cube)
        known = given.array > 0
    only = open_mask(mask, cube) if mask else None
    set_threads(threads)
    windows = plan_windows(cube, patch=trained.patch, pixels=pixels_within(most_memory, classifier, cube))
    found = choose(
        classifier.map_windows(cube, windows, only=only, with_scores=True, raw=True),
        trained.legend,
        n,
        labelled=known,
        name=cube.name,
    )
    write_points(out, found, cube)
    if len(found) < n:
        console.print(f"There are only {len(found)} pixels worth a label, not {n}.")
    console.print(f"wrote {plain(out)}: {len(found)} pixels to label next")
