"""The command ``hypercaps train``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out
from hypercaps.cli.progress import RunProgress
from hypercaps.cli.values import (
    command_line,
    is_given,
    listed,
    memory_bytes,
    open_cube,
    open_truth,
    refuse_together,
    refuse_with,
    refuse_without,
    set_threads,
)

if TYPE_CHECKING:
    from hypercaps.classifier import ConvCapsClassifier
    from hypercaps.data.labels import Labels
    from hypercaps.data.scene import Scene
    from hypercaps.pipeline.requests import TrainRequest
    from hypercaps.pipeline.train import RunResult

Method = Annotated[
    str | None,
    opt.option(
        opt.TRAINING,
        "--method",
        "NAME",
        "Classification method, as 'hypercaps methods' lists them, or auto: compare candidates on folds of the labels.",
        "auto; convcapsnet for a public scene's labels",
    ),
]
Candidates = Annotated[
    str | None,
    opt.option(opt.TRAINING, "--candidates", "a,b", "Methods that --method auto compares.", "all"),
]
Whitening = Annotated[
    str | None,
    opt.option(opt.TRAINING, "--whitening", "KIND", "Whitening of the spectra: plain or damped.", "plain"),
]
TimeLimit = Annotated[
    float | None,
    opt.option(opt.TRAINING, "--budget", "MINUTES", "Time limit of --method auto.", "no limit"),
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
    *("train", "val", "per_class", "block", "folds", "budget", "recipe", "epochs", "batch_size", "patch", "whitening"),
    *("seed", "device", "precision"),
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
    split: opt.SplitKind = None,
    folds: opt.FoldsOption = None,
    block: opt.Block = 16,
    both: opt.Both = False,
    split_file: opt.SplitOption = None,
    method: Method = None,
    candidates: Candidates = None,
    budget: TimeLimit = None,
    recipe: RecipeOption = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    patch: Patch = None,
    whitening: Whitening = None,
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

    Your own labels choose the method, on spatial folds. Writes into DIR:
    report.html, which shows everything, model, metrics and maps. Without
    folds, Ctrl-C ends the training early and keeps the best model so far.
    """
    choices = _choose_defaults(ctx)
    request = _make_request(ctx)
    _check_folder(ctx)
    cube = open_cube(scene, wavelengths, allow_remote)
    truth = open_truth(scene, labels, cube, class_field, allow_remote)
    request = _with_files(request, ctx, cube, truth)

    from hypercaps.pipeline.train import train_run  # imports torch: only after the inputs could be read

    set_threads(threads)
    console_out().print(choices.in_words(), soft_wrap=True)
    with RunProgress(console_out()) as shown:
        result = train_run(_make_classifier(ctx, choices), cube, truth, out, request, shown.observer())
    _print_result(result, request)


class Choices(NamedTuple):
    """Split and method of a training, and why."""

    split: str
    method: str
    why: str

    def in_words(self) -> str:
        """The first line of the output."""
        kinds = {
            "folds": "spatial folds for the score, and all labels for the final model",
            "none": "all labels train, nothing is scored",
            "file": "the split of a file",
        }
        how = kinds.get(self.split, f"a split by {self.split}" if self.split != "random" else "a random split")
        return f"Method [bold]{self.method}[/], {how} ({self.why})."


def _choose_defaults(ctx: typer.Context) -> Choices:
    """Users' own labels get folds and the method that fits them; public scenes are split as in the paper."""
    from hypercaps.io import catalog

    given = ctx.params
    is_public = not given["labels"] and given["scene"] in catalog.names()
    whose = "labels of a public scene, as in the paper" if is_public else "your own labels"
    shares = [name for name in ("train", "val", "per_class", "split_file") if is_given(ctx, name)]
    split, method = given["split"], given["method"]
    if split is None:
        split = "file" if "split_file" in shares else "random" if is_public or shares or given["both"] else "folds"
    named = [name for name in ("recipe", "epochs", "batch_size", "patch", "whitening") if given[name] is not None]
    if method is None:  # options of a network mean the network
        method = "auto" if given["candidates"] or not (is_public or named or given["both"]) else "convcapsnet"
    chosen = [f"--{name}" for name in ("split", "method") if given[name] is not None]
    choices = Choices(split, method, f"{whose}; {' and '.join(chosen)} given" if chosen else whose)
    _check_split_options(ctx, choices)
    return choices


def _check_split_options(ctx: typer.Context, choices: Choices) -> None:
    from hypercaps.data.splits import check_kind

    refuse_together(ctx, "split_file", ("train", "val", "per_class", "split", "folds", "block", "both"))
    if choices.split == "file":
        return
    check_kind(choices.split)
    if choices.split in ("folds", "none"):
        for name in ("train", "val", "per_class", "both"):
            refuse_with(ctx, name, f"--split {choices.split}")
    if choices.split != "folds":
        refuse_without(ctx, "folds", "--split folds")
    if choices.split != "blocks":  # with blocks, --train sizes the training blocks, --per-class draws from them
        refuse_together(ctx, "per_class", ("train",))
        if not ctx.params["both"] and choices.split != "folds":
            refuse_without(ctx, "block", "--split blocks or folds")


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


def _with_files(request: TrainRequest, ctx: typer.Context, cube: Scene, truth: Labels) -> TrainRequest:
    """The request with the mask and the split that files give."""
    from hypercaps.io.open import open_mask, open_split

    mask, split_file = ctx.params["mask"], ctx.params["split_file"]
    maps = replace(request.map, mask=open_mask(mask, cube)) if mask else request.map
    return replace(request, split=open_split(split_file, truth) if split_file else None, map=maps)


def _check_folder(ctx: typer.Context) -> None:
    """Refuse a folder that can't be written, or a run in it that would replace an input."""
    from hypercaps.io.inputs import input_files
    from hypercaps.io.writers.run_folder import RunFolder
    from hypercaps.pipeline.run_files import RUN_FILES

    given = ctx.params
    # Not the split file: the run writes the same split again.
    inputs = input_files(given["scene"], *(given["labels"] or ()), given["mask"], given["wavelengths"])
    RunFolder(given["out"], RUN_FILES, force=given["force"]).check(inputs)


def _make_classifier(ctx: typer.Context, choices: Choices) -> ConvCapsClassifier:
    from hypercaps.classifier import ConvCapsClassifier

    return ConvCapsClassifier(
        split_by="random" if choices.split == "file" else choices.split,
        method=choices.method,
        candidates=listed(ctx.params["candidates"]),
        **{name: ctx.params[name] for name in _CLASSIFIER_OPTIONS},
    )


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
