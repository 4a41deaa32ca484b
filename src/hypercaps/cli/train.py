"""The command ``hypercaps train``."""

from __future__ import annotations

from dataclasses import replace

import typer

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, say
from hypercaps.cli.options import (
    AllowRemote,
    BatchSize,
    Block,
    Both,
    ClassField,
    ConfidenceDtype,
    Coverage,
    Debug,
    DeviceOption,
    Devices,
    Epochs,
    Force,
    LabelsArg,
    Mask,
    Memory,
    Method,
    OutFolder,
    Patch,
    PerClass,
    Precision,
    Probabilities,
    RecipeOption,
    Reject,
    SceneArg,
    Seed,
    SplitKind,
    SplitOption,
    Threads,
    TrainShare,
    ValShare,
    Wavelengths,
    WithMap,
    command_line,
    memory_bytes,
    open_both,
    refuse_together,
    refuse_without,
    set_threads,
)


@app.command(epilog="Example:  hypercaps train cube.mat labels.mat --out runs/first --train 0.1 --seed 1")
def train(
    ctx: typer.Context,
    scene: SceneArg,
    labels: LabelsArg = None,
    *,
    out: OutFolder,
    force: Force = False,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    class_field: ClassField = None,
    train: TrainShare = 0.2,
    val: ValShare = 0.1,
    per_class: PerClass = None,
    split: SplitKind = "random",
    block: Block = 16,
    both: Both = False,
    split_file: SplitOption = None,
    method: Method = "convcapsnet",
    recipe: RecipeOption = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    patch: Patch = None,
    seed: Seed = 0,
    with_map: WithMap = True,
    confidence_dtype: ConfidenceDtype = "float32",
    probabilities: Probabilities = False,
    coverage: Coverage = None,
    reject: Reject = None,
    mask: Mask = None,
    memory: Memory = "1GB",
    threads: Threads = None,
    device: DeviceOption = "cpu",
    devices: Devices = None,
    precision: Precision = "float32",
    debug: Debug = False,
) -> None:
    """Train on a scene and its labels, score the model, and map the scene.

    Writes into DIR: report.html, which shows everything, model.safetensors,
    metrics.json, history.csv, split.npz, classes.json and figures; and, unless
    --no-map, map.tif with class names and colours for a GIS, confidence.tif and
    map.png. Ctrl-C ends the training early and keeps the best model so far.
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
    if split != "blocks":  # with blocks, --train is a share of the ground, and --per-class draws pixels from it
        refuse_together(ctx, "per_class", ("train",))
        if not both:
            refuse_without(ctx, "block", "--split blocks")
    # Not the split file: the run writes the same split again.
    RunFolder(out, RUN_FILES, force=force).check(input_files(scene, *(labels or ()), mask, wavelengths))
    cube, truth = open_both(scene, labels, class_field, wavelengths=wavelengths, allow_remote=allow_remote)
    chosen_map = replace(request.map, mask=open_mask(mask, cube)) if mask else request.map
    request = replace(request, split=open_split(split_file, truth) if split_file else None, map=chosen_map)

    from hypercaps.classifier import ConvCapsClassifier  # imports torch: only after the inputs could be read
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
