"""The command ``hypercaps evaluate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_err, console_out, plain, say
from hypercaps.cli.options import (
    AllowRemote,
    Block,
    Both,
    ClassField,
    Debug,
    DeviceOption,
    JsonFile,
    LabelsArg,
    ModelArg,
    Precision,
    Resample,
    SceneArg,
    SplitOption,
    Threads,
    Wavelengths,
    open_both,
    refuse_together,
    refuse_without,
    set_threads,
    with_bands_of,
)

if TYPE_CHECKING:
    from rich.console import Console


@app.command(epilog="Example:  hypercaps evaluate runs/first/model.safetensors indian-pines")
def evaluate(
    ctx: typer.Context,
    model: ModelArg,
    scene: SceneArg,
    labels: LabelsArg = None,
    *,
    json_file: JsonFile = None,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    resample: Resample = False,
    class_field: ClassField = None,
    block: Block = 16,
    both: Both = False,
    split_file: SplitOption = None,
    threads: Threads = None,
    device: DeviceOption = "cpu",
    precision: Precision = "float32",
    debug: Debug = False,
) -> None:
    """Score a model on a test set.

    On the labels it was trained on, that is the test set of its own split; on
    other labels, all labelled pixels, or those of --split-file.
    """
    from hypercaps.cli import progress, tables
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_scene, open_split
    from hypercaps.io.writers.atomic import check_output

    console = console_out()
    refuse_together(ctx, "both", ("split_file", "resample"))
    if not both:
        refuse_without(ctx, "block", "--both")
    to_stdout = json_file == Path("-")
    if json_file is not None and not to_stdout:
        check_output(json_file, inputs=input_files(model, scene, *(labels or ()), split_file, wavelengths))
    open_scene(  # refuses a bad scene before torch is imported
        scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=progress.download_bar(console)
    )

    from hypercaps.classifier import load_model
    from hypercaps.inference.run_metrics import to_json_by_split
    from hypercaps.pipeline.evaluate import check_both, evaluate_both, evaluation_metrics, evaluation_split
    from hypercaps.pipeline.requests import RunObserver

    classifier = load_model(model, device=device, precision=precision)
    trained = classifier.model_
    cube, truth = open_both(
        scene, labels, class_field, legend=trained.legend, wavelengths=wavelengths, allow_remote=allow_remote
    )
    cube = with_bands_of(trained, cube, resample)
    set_threads(threads)
    if both:
        check_both(trained, truth)
        with progress.RunProgress(console_err() if to_stdout else console) as shown:
            observer = RunObserver(
                on_training=shown.training,
                on_mapping=shown.mapping,
                on_second=lambda other: say(f"Training a second time, with --split {other}, by the same recipe."),
            )
            compared = evaluate_both(classifier, cube, truth, block=block, observer=observer)
        _show(to_json_by_split(compared), json_file, lambda to: tables.print_both(to, compared))
        return
    given = open_split(split_file, truth, patch=trained.patch) if split_file else None
    split = evaluation_split(trained, cube, truth, given)
    with progress.RunProgress(console) as shown:
        scores = classifier.evaluate(cube, truth, split, shown.mapping)
    metrics = evaluation_metrics(trained, cube, scores, split)
    _show(metrics.to_json(), json_file, lambda to: tables.print_scores(to, metrics))


def _show(metrics: Mapping[str, Any], json_file: Path | None, print_them: Callable[[Console], None]) -> None:
    """Print the scores as a table or as JSON, and write them to a file."""
    from hypercaps.io.writers.atomic import write_json

    console = console_out()
    if json_file == Path("-"):
        typer.echo(json.dumps(metrics, indent=2))
        return
    print_them(console)
    if json_file is not None:
        write_json(json_file, metrics)
        console.print(f"wrote {plain(json_file)}")
