"""The command ``hypercaps evaluate``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from hypercaps.cli import events
from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_err, console_out
from hypercaps.cli.progress import RunProgress
from hypercaps.cli.root import app
from hypercaps.cli.values import (
    STDOUT,
    CommandOptions,
    check_device,
    check_json_file,
    open_cube,
    open_truth,
    prepare_for,
    refuse_together,
    refuse_without,
    set_threads,
    write_or_print_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hypercaps.classifier import ConvCapsClassifier
    from hypercaps.data.labels import Labels
    from hypercaps.data.scene import Scene
    from hypercaps.data.splits import Split
    from hypercaps.inference.predict import OnProgress
    from hypercaps.inference.run_metrics import RunMetrics


@app.command(epilog="Example:  hypercaps evaluate runs/first/model.safetensors indian-pines")
def evaluate(
    ctx: typer.Context,
    model: opt.ModelArg,
    scene: opt.SceneArg,
    labels: opt.LabelsArg = None,
    *,
    json_file: opt.JsonFile = None,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    resample: opt.Resample = False,
    adapt: opt.Adapt = "auto",
    class_field: opt.ClassField = None,
    block: opt.Block = 16,
    both: opt.Both = False,
    split_file: opt.SplitOption = None,
    threads: opt.Threads = None,
    device: opt.DeviceOption = "cpu",
    precision: opt.Precision = "float32",
    progress: opt.ProgressMode = "auto",
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Score a model on a test set.

    On the labels it was trained on, that is the test set of its own split; on
    other labels, all labelled pixels, or those of --split-file. See
    docs/splits.md.
    """
    from hypercaps.io.detect import find_model
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_split

    options = CommandOptions.of(ctx)
    refuse_together(options, "both", ("split_file", "resample"))
    refuse_together(options, "quiet", ("progress",))
    if not both:
        refuse_without(options, "block", "--both")
    check_device(options)
    check_json_file(json_file, input_files(model, scene, *(labels or ()), split_file, wavelengths))
    find_model(model)  # before a scene is opened
    cube = open_cube(scene, wavelengths, allow_remote, quiet=quiet)

    from hypercaps.loading import load_model  # may import torch: only after the scene could be read
    from hypercaps.pipeline.evaluate import check_both, evaluate_both

    classifier = load_model(model, device=device, precision=precision)
    trained = classifier.model_
    truth = open_truth(scene, labels, cube, class_field, allow_remote, trained.legend, quiet=quiet)
    prepared = prepare_for(trained, cube, resample, adapt, typed="adapt" in options.typed)
    set_threads(threads)
    metrics: RunMetrics | Mapping[str, RunMetrics]
    with RunProgress(console_err(quiet=quiet)) as shown:
        if both:
            check_both(trained, truth)
            metrics = evaluate_both(classifier, prepared.scene, truth, block=block, observer=shown.observer())
        else:
            split = open_split(split_file, truth, patch=trained.patch) if split_file else None
            metrics = _evaluate(classifier, prepared.scene, truth, split, shown.mapping)
            claimed = None if prepared.unchecked else prepared.is_claimed
            metrics = replace(metrics, scene_shift=prepared.tag, claimed=claimed)
    _show(metrics, json_file, quiet=quiet)


def _evaluate(
    classifier: ConvCapsClassifier, cube: Scene, truth: Labels, split: Split | None, on_progress: OnProgress
) -> RunMetrics:
    """Score the test pixels; for a model that was trained on all of these labels, the stored out-of-fold scores."""
    from hypercaps.pipeline.evaluate import evaluation_metrics, evaluation_split, stored_metrics

    model = classifier.model_
    if split is None and model.split.labels == truth.digest():
        stored = stored_metrics(model, cube)
        if stored is not None:
            console_err().print(
                "The model was trained on all of these labels: these are its out-of-fold scores, stored when it was "
                "trained.",
                soft_wrap=True,
            )
            return stored
    tested = evaluation_split(model, cube, truth, split)
    return evaluation_metrics(model, cube, classifier.evaluate(cube, truth, tested, on_progress), tested)


def _show(metrics: RunMetrics | Mapping[str, RunMetrics], json_file: Path | None, *, quiet: bool) -> None:
    """Print the scores as a table, a line or JSON, and write them to a file; ``--both`` gives metrics by split."""
    from hypercaps.inference.run_metrics import RunMetrics, to_json_by_split

    if json_file != STDOUT:
        _print(metrics, quiet=quiet)
    if json_file is not None:
        content = metrics.to_json() if isinstance(metrics, RunMetrics) else to_json_by_split(metrics)
        write_or_print_json(json_file, content, quiet=quiet)
    scores: Mapping[str, object]
    if isinstance(metrics, RunMetrics):
        scores = events.scores_of(metrics)
    else:
        scores = {kind: events.scores_of(one) for kind, one in metrics.items()}
    events.write_result({"json": None if json_file == STDOUT else json_file}, scores)


def _print(metrics: RunMetrics | Mapping[str, RunMetrics], *, quiet: bool) -> None:
    from hypercaps.cli import tables
    from hypercaps.inference.run_metrics import RunMetrics

    console = console_out()
    if isinstance(metrics, RunMetrics):
        if quiet:
            tables.print_result(console, tables.scores_line(metrics))
        else:
            tables.print_scores(console, metrics)
    elif quiet:
        tables.print_result(console, *(f"{kind}: {tables.scores_line(one)}" for kind, one in metrics.items()))
    else:
        tables.print_both(console, metrics)
