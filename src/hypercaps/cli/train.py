"""The command ``hypercaps train``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hypercaps.cli import events
from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_err, console_out, plain, say
from hypercaps.cli.progress import RunProgress
from hypercaps.cli.resume import StoppedTraining, kept_options
from hypercaps.cli.root import app
from hypercaps.cli.values import (
    STDOUT,
    CommandOptions,
    check_device,
    check_json_file,
    listed,
    memory_bytes,
    open_cube,
    open_truth,
    refuse_together,
    refuse_with,
    refuse_without,
    set_threads,
    write_or_print_json,
)
from hypercaps.errors import OutputError, Paused, SceneError

if TYPE_CHECKING:
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
    opt.option(
        opt.TRAINING, "--whitening", "KIND", "Whitening of the spectra: plain, damped or robust.", "the recipe's"
    ),
]
TimeLimit = Annotated[
    float | None,
    opt.option(
        opt.TRAINING,
        "--budget",
        "MINUTES",
        "Time limit of --method auto; another method pauses after the epoch in which it ends, and --resume continues.",
        "no limit",
    ),
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
    *("train", "val", "per_class", "block", "folds", "recipe", "epochs", "batch_size", "patch", "whitening", "seed"),
    *("device", "precision"),
)


@app.command(epilog="Example:  hypercaps train cube.mat labels.mat --out runs/first --train 0.1 --seed 1")
def train(
    ctx: typer.Context,
    scene: opt.NewSceneArg = None,
    labels: opt.LabelsArg = None,
    *,
    out: opt.NewOutFolder = None,
    resume: opt.ResumeTraining = None,
    force: opt.Force = False,
    json_file: opt.JsonFile = None,
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
    unknown: opt.Unknown = None,
    mask: opt.Mask = None,
    memory: opt.Memory = "1GB",
    threads: opt.Threads = None,
    device: opt.DeviceOption = "cpu",
    devices: opt.Devices = None,
    precision: opt.Precision = "float32",
    progress: opt.ProgressMode = "auto",
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Train on a scene and its labels, score the model, and map the scene.

    Your own labels choose the method, on spatial folds. Writes into DIR:
    report.html, which shows everything, model, metrics and maps. Without
    folds, Ctrl-C ends the training early and keeps the best model so far;
    a training that was killed, or paused by --budget, is continued by
    'hypercaps train --resume DIR' and ends with the same model. See
    docs/run-folder.md.
    """
    options = CommandOptions.of(ctx)
    refuse_together(options, "quiet", ("progress",))
    if resume is None:
        _check_needed(options)
        _train(options, kept_options(options))
        return
    stopped = StoppedTraining.read(resume)
    resumed = stopped.merged_with(options, ctx)
    with stopped.in_its_folder():
        _train(resumed, stopped.kept, resume=True)


def _train(options: CommandOptions, repeat: Mapping[str, Any], *, resume: bool = False) -> None:
    """Train as the options say; ``repeat`` is what a checkpoint keeps of them."""
    choices = _choose_defaults(options)
    request = replace(_make_request(options, choices), repeat=repeat, command=repeat["command"], resume=resume)
    parameters = _classifier_parameters(options, choices)
    _check_parameters(options, choices, parameters)
    _check_folder(options, resume)
    quiet, remote = options["quiet"], options["allow_remote"]
    cube = open_cube(options["scene"], options["wavelengths"], remote, quiet=quiet)
    truth = open_truth(options["scene"], options["labels"], cube, options["class_field"], remote, quiet=quiet)
    request = _with_files(request, options, cube, truth)

    from hypercaps.classifier import ConvCapsClassifier
    from hypercaps.pipeline.train import train_run  # imports torch: only after the inputs could be read

    set_threads(options["threads"])
    progress = console_err(quiet=quiet)
    if not quiet:
        about = progress if options["json_file"] == STDOUT else console_out()
        if resume:
            about.print(f"Continues {plain(repeat['command'])!r}.", soft_wrap=True)
        about.print(choices.in_words(), soft_wrap=True)
    try:
        with RunProgress(progress) as shown:
            classifier = ConvCapsClassifier(**parameters)
            result = train_run(classifier, cube, truth, options["out"], request, shown.observer())
    except Paused as paused:
        say(f"[yellow]Paused[/]: {plain(paused)}.")
        return
    _say_what_is_missing(result, request)
    _show_result(result, options)
    if _was_interrupted(result, request):
        raise typer.Exit(130)


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


def _check_needed(options: CommandOptions) -> None:
    """Refuse a new training without a scene or a folder."""
    if options["scene"] is None:
        raise SceneError("no scene was given: name one, or continue a training that was stopped with --resume DIR")
    if options["out"] is None:
        raise OutputError("no folder for the results was given: name a new one with --out DIR")


def _choose_defaults(options: CommandOptions) -> Choices:
    """Users' own labels get folds and the method that fits them; public scenes are split as in the paper."""
    from hypercaps.io import catalog

    is_public = not options["labels"] and options["scene"] in catalog.names()
    whose = "labels of a public scene, as in the paper" if is_public else "your own labels"
    shares = [name for name in ("train", "val", "per_class", "split_file") if name in options.typed]
    split, method = options["split"], options["method"]
    if split is None:
        split = "file" if "split_file" in shares else "random" if is_public or shares or options["both"] else "folds"
    named = [name for name in ("recipe", "epochs", "batch_size", "patch", "whitening") if options[name] is not None]
    if method is None:  # options of a network mean the network
        method = "auto" if options["candidates"] or not (is_public or named or options["both"]) else "convcapsnet"
    chosen = [f"--{name}" for name in ("split", "method") if options[name] is not None]
    choices = Choices(split, method, f"{whose}; {' and '.join(chosen)} given" if chosen else whose)
    _check_split_options(options, choices)
    return choices


def _check_split_options(options: CommandOptions, choices: Choices) -> None:
    from hypercaps.data.splits import check_kind

    refuse_together(options, "split_file", ("train", "val", "per_class", "split", "folds", "block", "both"))
    if choices.split == "file" and options["split"] is None:
        return
    check_kind(choices.split)
    if choices.split in ("folds", "none"):
        for name in ("train", "val", "per_class", "both"):
            refuse_with(options, name, f"--split {choices.split}")
    if choices.split != "folds":
        refuse_without(options, "folds", "--split folds")
    elif choices.method != "auto":
        refuse_with(options, "budget", "--split folds and a named method")
    if choices.split != "blocks":  # with blocks, --train sizes the training blocks, --per-class draws from them
        refuse_together(options, "per_class", ("train",))
        if not options["both"] and choices.split != "folds":
            refuse_without(options, "block", "--split blocks or folds")


def _make_request(options: CommandOptions, choices: Choices) -> TrainRequest:
    from hypercaps.pipeline.requests import MapRequest, TrainRequest, run_files

    layers = {"probabilities": options["probabilities"], "sets": options["coverage"] is not None}
    maps = MapRequest(
        run_files(name for name, chosen in layers.items() if chosen),
        memory=memory_bytes(options["memory"]),
        reject=options["reject"],
        unknown=options["unknown"],
        coverage=options["coverage"],
        confidence_dtype=options["confidence_dtype"],
    )
    return TrainRequest(
        with_map=options["with_map"],
        map=maps,
        both=options["both"],
        force=options["force"],
        budget=None if choices.method == "auto" else options["budget"],  # of auto, it is the time of the comparison
        inputs=_inputs(options),
    )


def _inputs(options: CommandOptions) -> dict[str, object]:
    """The options that name or open scene, labels and split, as JSON takes them."""
    names = ("scene", "labels", "wavelengths", "class_field", "allow_remote", "split_file")
    named = {name: options[name] for name in names if options[name]}
    return {name: str(value) if isinstance(value, Path) else value for name, value in named.items()}


def _with_files(request: TrainRequest, options: CommandOptions, cube: Scene, truth: Labels) -> TrainRequest:
    """The request with the mask and the split that files give."""
    from hypercaps.io.open import open_mask, open_split

    mask, split_file = options["mask"], options["split_file"]
    maps = replace(request.map, mask=open_mask(mask, cube)) if mask else request.map
    return replace(request, split=open_split(split_file, truth) if split_file else None, map=maps)


def _check_folder(options: CommandOptions, resume: bool) -> None:
    """Refuse a folder that can't be written, or a run in it that would replace an input."""
    from hypercaps.io.inputs import input_files
    from hypercaps.io.writers.run_folder import RunFolder
    from hypercaps.pipeline.run_files import RUN_FILES

    # Not the split file: the run writes the same split again.
    inputs = input_files(options["scene"], *(options["labels"] or ()), options["mask"], options["wavelengths"])
    RunFolder(options["out"], RUN_FILES, force=options["force"], resume=resume).check(inputs)
    check_json_file(options["json_file"], [*inputs, *(options["out"] / name for name in RUN_FILES)])


def _classifier_parameters(options: CommandOptions, choices: Choices) -> dict[str, Any]:
    return {
        "split_by": "random" if choices.split == "file" else choices.split,
        "method": choices.method,
        "candidates": listed(options["candidates"]),
        "budget": options["budget"] if choices.method == "auto" else None,
        **{name: options[name] for name in _CLASSIFIER_OPTIONS},
    }


def _was_interrupted(result: RunResult, request: TrainRequest) -> bool:
    """Whether Ctrl-C ended a part of the run early."""
    is_complete = result.reported and result.mapped == request.with_map and request.both == bool(result.metrics.both)
    return result.classifier.history_.interrupted or not is_complete


def _check_parameters(options: CommandOptions, choices: Choices, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters of the training before anything is read, and before torch is imported."""
    from hypercaps.models.descriptions import get_description
    from hypercaps.selection.settings import Settings

    settings = Settings(structure=None, **parameters)
    settings.check()
    if choices.split != "file":
        settings.split_request()
    if choices.method != "auto":
        recipe = get_description(choices.method).recipe(options["recipe"])
        recipe.check_overrides(choices.method, {"budget": options["budget"]})
    check_device(options)


def _say_what_is_missing(result: RunResult, request: TrainRequest) -> None:
    """Print what is missing because the user pressed Ctrl-C."""
    history = result.classifier.history_
    if history.interrupted:
        say(
            f"[yellow]Interrupted[/] after epoch {len(history.records)}: the best model so far was kept, that of "
            f"epoch {history.best_epoch}."
        )
    if request.with_map and not result.mapped:
        say("[yellow]Mapping was stopped[/]: the run has no map; 'hypercaps map' can make it later.")
    if request.both and result.metrics.both is None:
        say("[yellow]The second training was left out[/]: there is no figure by the other split.")
    if not result.reported:
        say("[yellow]The report was stopped[/]: the run has none.")


def _show_result(result: RunResult, options: CommandOptions) -> None:
    """Print the scores as tables, a line or JSON, and write them to a file."""
    from hypercaps.cli import tables

    console, json_file, quiet = console_out(), options["json_file"], options["quiet"]
    if quiet and json_file != STDOUT:
        tables.print_result(console, tables.scores_line(result.metrics), str(result.out))
    elif json_file != STDOUT:
        tables.print_scores(console, result.metrics, result.out)
        if result.metrics.both is not None:
            tables.print_both(console, result.metrics.both)
        tables.print_files(console, result.out)
    if json_file is not None:
        write_or_print_json(json_file, result.metrics.to_json(), quiet=quiet)
    events.write_result(_named_files(result.out), events.scores_of(result.metrics))


def _named_files(out: Path) -> dict[str, Path]:
    """The files of a run that another program needs, by kind."""
    from hypercaps.pipeline.layers import LAYERS

    named = {
        "report": "report.html",
        "model": "model.safetensors",
        "metrics": "metrics.json",
        "style": "map.qml",
        "picture": "map.png",
    }
    named |= {layer.name: layer.file for layer in LAYERS.values()}
    return {"folder": out, **{name: out / file for name, file in named.items()}}
