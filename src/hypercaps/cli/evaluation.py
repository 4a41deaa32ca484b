"""hypercaps evaluate"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hypercaps.arguments import (
    AllowRemote,
    ClassField,
    Debug,
    DeviceOption,
    LabelsArg,
    ModelArg,
    Precision,
    Resample,
    SceneArg,
    SplitOption,
    Threads,
    Wavelengths,
    input_files,
    open_both,
    set_threads,
    with_bands_of,
)
from hypercaps.cli.root import app
from hypercaps.messages import console_out, plain


@app.command(epilog="Example:  hypercaps evaluate runs/first/model.safetensors indian-pines")
def evaluate(
    model: ModelArg,
    scene: SceneArg,
    labels: LabelsArg = None,
    *,
    class_field: ClassField = None,
    split_file: SplitOption = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the scores to FILE ('-': print them)."),
    ] = None,
    resample: Resample = False,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    threads: Threads = None,
    device: DeviceOption = "cpu",
    precision: Precision = "float32",
    debug: Debug = False,
) -> None:
    """Say how good a model is on a test set.

    On the labels it was trained on, that is the test set of its own split; on others, all labelled pixels, or
    those of --split-file.
    """
    from hypercaps import terminal
    from hypercaps.io.open import open_scene, open_split
    from hypercaps.io.write import check_output, write_json

    console = console_out()
    to_stdout = json_file == Path("-")
    if json_file is not None and not to_stdout:
        check_output(json_file, inputs=input_files(model, scene, *(labels or ()), split_file))
    open_scene(  # refused, if it must be, before torch takes its memory
        scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=terminal.download_bar(console)
    )

    from hypercaps.classifier import load_model
    from hypercaps.run import evaluation_metrics, evaluation_split

    classifier = load_model(model, device=device, precision=precision)
    trained = classifier.model_
    cube, truth = open_both(
        scene, labels, class_field, legend=trained.legend, wavelengths=wavelengths, allow_remote=allow_remote
    )
    cube = with_bands_of(trained, cube, resample)
    set_threads(threads)
    given = open_split(split_file, truth, patch=trained.patch) if split_file else None
    split = evaluation_split(trained, cube, truth, given)
    with terminal.RunProgress(console) as bars:
        scores = classifier.evaluate(cube, truth, split, bars.mapping)
    metrics = evaluation_metrics(trained, cube, scores, split)
    if to_stdout:
        typer.echo(json.dumps(metrics, indent=2))
        return
    terminal.print_scores(console, metrics)
    if json_file is not None:
        write_json(json_file, metrics)
        console.print(f"wrote {plain(json_file)}")
