"""The command ``hypercaps train``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out
from hypercaps.cli.progress import RunProgress
from hypercaps.cli.values import (
    command_line,
    memory_bytes,
    open_cube,
    open_truth,
    refuse_together,
    refuse_without,
    set_threads,
)

if TYPE_CHECKING:
    from hypercaps.classifier import ConvCapsClassifier
    from hypercaps.pipeline.requests import TrainRequest
    from hypercaps.pipeline.train import RunResult

Method = Annotated[
    str, opt.option(opt.TRAINING, "--method", "NAME", "Classification method; 'hypercaps methods' lists them.")
]
RecipeOption = Annotated[
    str | None,
    opt.option(opt.TRAINING, "--recipe", "NAME", "Training recipe; 'hypercaps methods' lists them.", "the method's"),
]
Epochs = Annotated[
    int | None,
    opt.option(
        opt.TRAINING,
        "--epochs",
        "N",
        "Number of epochs; for recipe best, of the first stage.",
        "the recipe's",
    ),
]
BatchSize = Annotated[
    int | None, opt.option(opt.TRAINING, "--batch-size", "N", "Number of pixels in a training step.", "the recipe's")
]
Patch = Annotated[
    int | None,
    opt.option(opt.TRAINING, "--patch", "N", "Side of the square patch around each pixel, in pixels.", "the method's"),
]
Seed = Annotated[
    int, opt.option(opt.TRAINING, "--seed", "N", "Random seed; the same seed gives the same run.", min=0, max=2**32 - 1)
]

_CLASSIFIER_OPTIONS = (
    *("train", "val", "per_class", "block", "method", "recipe", "epochs", "batch_size", "patch", "seed"),
    *("device", "precision"),
)


@app.command(epilog="Example:  hypercaps train cube.mat labels.mat --out runs/first --train 0.1 --seed 1")
def train(
    ctx: typer.Context,
    scene: opt.SceneArg,
    labels: opt.LabelsArg = None,
    *,
    out: opt.OutFolder,
    force: opt.Force = False,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    class_field: opt.ClassField = None,
    train: opt.TrainShare = 0.2,
    val: opt.ValShare = 0.1,
    per_class: opt.PerClass = None,
    split: opt.SplitKind = "random",
    block: opt.Block = 16,
    both: opt.Both = False,
    split_file: opt.SplitOption = None,
    method: Method = "convcapsnet",
    recipe: RecipeOption = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    patch: Patch = None,
    seed: Seed = 0,
    with_map: opt.WithMap = True,
    confidence_dtype: opt.ConfidenceDtype = "float32",
    probabilities: opt.Probabilities = False,
    coverage: opt.Coverage = None,
    reject: opt.Reject = None,
    mask: opt.Mask = None,
    memory: opt.Memory = "1GB",
    threads: opt.Threads = None,
    device: opt.DeviceOption = "cpu",
    devices: opt.Devices = None,
    precision: opt.Precision = "float32",
    debug: opt.Debug = False,
) -> None:
    """Train on a scene and its labels, score the model, and map the scene.

    Writes into DIR: report.html, which shows everything, model.safetensors,
    metrics.json, history.csv, split.npz, classes.json and figures; and, unless
    --no-map, map.tif with class names and colours for a GIS, confidence.tif and
    map.png. Ctrl-C ends the training early and keeps the best model so far.
    """
    from hypercaps.io.open import open_mask, open_split

    _check_split_options(ctx)
    request = _make_request(ctx)
    _check_folder(ctx)
    cube = open_cube(scene, wavelengths, allow_remote)
    truth = open_truth(scene, labels, cube, class_field, allow_remote)
    maps = replace(request.map, mask=open_mask(mask, cube)) if mask else request.map
    request = replace(request, split=open_split(split_file, truth) if split_file else None, map=maps)

    from hypercaps.pipeline.train import train_run  # imports torch: only after the inputs could be read

    set_threads(threads)
    with RunProgress(console_out()) as shown:
        result = train_run(_make_classifier(ctx), cube, truth, out, request, shown.observer())
    _print_result(result, request)


def _check_split_options(ctx: typer.Context) -> None:
    from hypercaps.data.splits import check_kind

    refuse_together(ctx, "split_file", ("train", "val", "per_class", "split", "block", "both"))
    check_kind(ctx.params["split"])
    if ctx.params["split"] != "blocks":  # with blocks, --train sizes the training blocks, --per-class draws from them
        refuse_together(ctx, "per_class", ("train",))
        if not ctx.params["both"]:
            refuse_without(ctx, "block", "--split blocks")


def _make_request(ctx: typer.Context) -> TrainRequest:
    from hypercaps.pipeline.requests import MapRequest, TrainRequest, run_files

    given = ctx.params
    layers = {"probabilities": given["probabilities"], "sets": given["coverage"] is not None}
    maps = MapRequest(
        run_files(name for name, chosen in layers.items() if chosen),
        memory=memory_bytes(given["memory"]),
        reject=given["reject"],
        coverage=given["coverage"],
        confidence_dtype=given["confidence_dtype"],
    )
    return TrainRequest(
        with_map=given["with_map"], map=maps, both=given["both"], command=command_line(), force=given["force"]
    )


def _check_folder(ctx: typer.Context) -> None:
    """Refuse a folder that can't be written, or a run in it that would replace an input."""
    from hypercaps.io.inputs import input_files
    from hypercaps.io.writers.run_folder import RunFolder
    from hypercaps.pipeline.run_files import RUN_FILES

    given = ctx.params
    # Not the split file: the run writes the same split again.
    inputs = input_files(given["scene"], *(given["labels"] or ()), given["mask"], given["wavelengths"])
    RunFolder(given["out"], RUN_FILES, force=given["force"]).check(inputs)


def _make_classifier(ctx: typer.Context) -> ConvCapsClassifier:
    from hypercaps.classifier import ConvCapsClassifier

    return ConvCapsClassifier(split_by=ctx.params["split"], **{name: ctx.params[name] for name in _CLASSIFIER_OPTIONS})


def _print_result(result: RunResult, request: TrainRequest) -> None:
    from hypercaps.cli import tables

    console, history = console_out(), result.classifier.history_
    if history.interrupted:
        console.print(
            f"[yellow]Interrupted[/] after epoch {len(history.records)}: the best model so far was kept, that of "
            f"epoch {history.best_epoch}."
        )
    if request.with_map and not result.mapped:
        console.print("[yellow]Mapping was stopped[/]: the run has no map; 'hypercaps map' can make it later.")
    if request.both and result.metrics.both is None:
        console.print("[yellow]The second training was left out[/]: there is no figure by the other split.")
    if not result.reported:
        console.print("[yellow]The report was stopped[/]: the run has none.")
    tables.print_scores(console, result.metrics, result.out)
    if result.metrics.both is not None:
        tables.print_both(console, result.metrics.both)
    tables.print_files(console, result.out)
