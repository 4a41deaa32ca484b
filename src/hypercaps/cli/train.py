"""hypercaps train"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, say
from hypercaps.cli.options import (
    AllowRemote,
    Block,
    ClassField,
    ConfidenceDtype,
    Coverage,
    Debug,
    DeviceOption,
    Devices,
    LabelsArg,
    Mask,
    Memory,
    Precision,
    Reject,
    SceneArg,
    SplitOption,
    Threads,
    Wavelengths,
    command_line,
    memory_bytes,
    open_both,
    refuse_together,
    refuse_without,
    set_threads,
)
from hypercaps.pipeline.layers import PROBABILITIES


@app.command(epilog="Example:  hypercaps train cube.mat labels.mat --out runs/first --train 0.1 --seed 1")
def train(
    ctx: typer.Context,
    scene: SceneArg,
    labels: LabelsArg = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the run; made if it is not there.")],
    method: Annotated[str, typer.Option(help="As 'hypercaps methods' lists them.")] = "convcapsnet",
    train: Annotated[float, typer.Option(help="Share of each class to train on.")] = 0.2,
    val: Annotated[
        float, typer.Option(help="Share of each class to calibrate confidence by, and most methods' best epoch.")
    ] = 0.1,
    per_class: Annotated[
        int | None, typer.Option(metavar="N", help="Train on N pixels of each class in place of a share.")
    ] = None,
    class_field: ClassField = None,
    split: Annotated[
        str,
        typer.Option(
            metavar="WAY",
            help="What is drawn: random (pixels, as in the paper), or polygons or blocks (of ground), each kept whole "
            "in one set; blocks leave no leakage.",
        ),
    ] = "random",
    block: Block = 16,
    both: Annotated[
        bool,
        typer.Option(
            "--both",
            help="Also score by the other of random and blocks, side by side; trains a second time.",
        ),
    ] = False,
    split_file: SplitOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same run.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", help="Passes over the training pixels; the recipe's if left out.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Pixels in a step; the recipe's if left out.")
    ] = None,
    patch: Annotated[
        int | None,
        typer.Option(metavar="N", help="Side of the square of pixels that is looked at; the method's if left out."),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Way to train, as 'hypercaps methods' lists them; the method's if left out.")
    ] = None,
    with_map: Annotated[bool, typer.Option("--map/--no-map", help="Map the whole scene at the end.")] = True,
    confidence_dtype: ConfidenceDtype = "float32",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help=f"Also write the {PROBABILITIES.description}.")
    ] = False,
    coverage: Coverage = None,
    reject: Reject = None,
    mask: Mask = None,
    memory: Memory = "1GB",
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is already in DIR.")] = False,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    threads: Threads = None,
    device: DeviceOption = "cpu",
    devices: Devices = 1,
    precision: Precision = "float32",
    debug: Debug = False,
) -> None:
    """Train on a scene and its labels, say how good it is, and map the scene.

    Writes report.html, which shows all of it, model.safetensors, metrics.json, history.csv, split.npz, classes.json,
    pictures, and, unless --no-map, map.tif with its names and colours for a GIS, confidence.tif and map.png into DIR.
    Ctrl-C ends the training early and keeps the best model so far.
    """
    from hypercaps.cli import progress, tables
    from hypercaps.data.splits import check_kind
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_mask, open_split
    from hypercaps.io.writers.run_folder import RunFolder
    from hypercaps.pipeline.requests import MapRequest, RunObserver, TrainRequest, run_files
    from hypercaps.pipeline.run_files import RUN_FILES

    console = console_out()
    refuse_together(ctx, "split_file", ("train", "val", "per_class", "split", "block", "both"))
    check_kind(split)
    layers = {"probabilities": probabilities, "sets": coverage is not None}
    request = TrainRequest(
        with_map=with_map,
        map=MapRequest(
            run_files(name for name, chosen in layers.items() if chosen),
            memory=memory_bytes(memory),
            reject=reject,
            coverage=coverage,
            confidence_dtype=confidence_dtype,
        ),
        both=both,
        command=command_line(),
        force=force,
    )
    if split != "blocks":  # there, --train says how much ground trains and --per-class how many pixels of it
        refuse_together(ctx, "per_class", ("train",))
        if not both:
            refuse_without(ctx, "block", "--split blocks")
    # Not the split file: the run writes the same split again.
    RunFolder(out, RUN_FILES, force=force).check(input_files(scene, *(labels or ()), mask, wavelengths))
    cube, truth = open_both(scene, labels, class_field, wavelengths=wavelengths, allow_remote=allow_remote)
    chosen_map = replace(request.map, mask=open_mask(mask, cube)) if mask else request.map
    request = replace(request, split=open_split(split_file, truth) if split_file else None, map=chosen_map)

    from hypercaps.classifier import ConvCapsClassifier  # torch: not before what was named could be read
    from hypercaps.pipeline.train import train_run

    set_threads(threads)
    classifier = ConvCapsClassifier(
        train=train,
        val=val,
        per_class=per_class,
        split_by=split,
        block=block,
        epochs=epochs,
        batch_size=batch_size,
        patch=patch,
        seed=seed,
        method=method,
        recipe=recipe,
        device=device,
        precision=precision,
        devices=devices,
    )
    with progress.RunProgress(console) as shown:
        observer = RunObserver(
            on_training=shown.training,
            on_mapping=shown.mapping,
            on_second=lambda other: say(f"Training a second time, with --split {other}, by the same recipe."),
        )
        result = train_run(classifier, cube, truth, out, request, observer)
    history = classifier.history_
    if history.interrupted:
        console.print(
            f"[yellow]Interrupted[/] after epoch {len(history.records)}: the best model so far was kept, that of "
            f"epoch {history.best_epoch}."
        )
    if with_map and not result.mapped:
        console.print("[yellow]Mapping was stopped[/]: the run has no map; 'hypercaps map' can make it later.")
    if both and result.metrics.both is None:
        console.print("[yellow]The second training was left out[/]: there is no figure by the other split.")
    if not result.reported:
        console.print("[yellow]The report was stopped[/]: the run has none.")
    tables.print_scores(console, result.metrics)
    if result.metrics.both is not None:
        tables.print_both(console, result.metrics.both)
    tables.print_files(console, out)
