"""The command line: a table of commands, each a few lines over one function of the package.

Nothing heavy is imported before a command needs it, so that ``hypercaps --help`` answers at once.
"""

from __future__ import annotations

import json
import os
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hypercaps import __version__
from hypercaps.arguments import (
    AllowRemote,
    ClassField,
    ClusterOption,
    ConfidenceDtype,
    Debug,
    DeviceOption,
    Devices,
    Json,
    LabelsArg,
    Mask,
    Memory,
    ModelArg,
    Precision,
    Resample,
    SceneArg,
    SplitOption,
    Threads,
    Wavelengths,
    cluster_of,
    command_line,
    input_files,
    listed,
    memory_bytes,
    open_both,
    refuse_together,
    set_threads,
    with_bands_of,
)
from hypercaps.errors import ModelError, StudyError
from hypercaps.messages import SentenceGroup, console_out, plain, show_warning

app = typer.Typer(
    cls=SentenceGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Land-cover maps from hyperspectral scenes and a few labels, with the 1D-ConvCapsNet capsule network.",
    epilog="Try it on the real scene that comes along:  hypercaps train indian-pines --out runs/first",
)
scenes_app = typer.Typer(
    cls=SentenceGroup,
    invoke_without_command=True,
    rich_markup_mode="rich",
    epilog="Example:  hypercaps scenes download pavia-university",
)
app.add_typer(scenes_app, name="scenes")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"hypercaps {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Debug = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    warnings.showwarning = show_warning
    # Read when torch is loaded: threads that wait for each other give the core free after a moment. On a machine
    # that does other things too they would otherwise hold each other up, several times over.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


@app.command(epilog="Example:  hypercaps train cube.mat labels.mat --out runs/first --train 0.1 --seed 1")
def train(
    ctx: typer.Context,
    scene: SceneArg,
    labels: LabelsArg = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the run; made if it is not there.")],
    method: Annotated[str, typer.Option(help="As 'hypercaps methods' lists them.")] = "convcapsnet",
    train: Annotated[float, typer.Option(help="Share of each class to train on.")] = 0.2,
    val: Annotated[float, typer.Option(help="Share of each class to choose the best epoch by.")] = 0.1,
    per_class: Annotated[
        int | None, typer.Option(metavar="N", help="Train on N pixels of each class in place of a share.")
    ] = None,
    class_field: ClassField = None,
    split: Annotated[
        str,
        typer.Option(metavar="WAY", help="What is drawn: random (pixels) or polygons (each kept whole in one set)."),
    ] = "random",
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
        bool, typer.Option("--probabilities", help="Also write how likely each class is, as probabilities.tif.")
    ] = False,
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

    Writes model.safetensors, metrics.json, history.csv, split.npz, curves.png, and, unless --no-map, map.tif with its
    names and colours for a GIS, confidence.tif and map.png into DIR. Ctrl-C ends the training early and keeps the best
    model so far.
    """
    from hypercaps import terminal
    from hypercaps.classifier import ConvCapsClassifier
    from hypercaps.io.open import open_mask, open_split
    from hypercaps.io.runfolder import RunFolder
    from hypercaps.run import train_run
    from hypercaps.splits import check_kind

    console = console_out()
    most_memory = memory_bytes(memory)
    refuse_together(ctx, "split_file", ("train", "val", "per_class", "split"))
    refuse_together(ctx, "per_class", ("train",))
    check_kind(split)
    RunFolder(out, force=force).check()
    cube, truth = open_both(scene, labels, class_field, wavelengths=wavelengths, allow_remote=allow_remote)
    set_threads(threads)
    classifier = ConvCapsClassifier(
        train=train,
        val=val,
        per_class=per_class,
        split_by=split,
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
    given = open_split(split_file, truth) if split_file else None
    with terminal.RunProgress(console) as bars:
        result = train_run(
            classifier,
            cube,
            truth,
            out,
            split=given,
            with_map=with_map,
            only=open_mask(mask, cube) if mask else None,
            confidence_dtype=confidence_dtype,
            probabilities=probabilities,
            memory=most_memory,
            force=force,
            on_training=bars.training,
            on_mapping=bars.mapping,
        )
    history = classifier.history_
    if history.interrupted:
        console.print(
            f"[yellow]Interrupted[/] after epoch {len(history.records)}: the best model so far was kept, that of "
            f"epoch {history.best_epoch}."
        )
    if with_map and not result.mapped:
        console.print("[yellow]Mapping was stopped[/]: the run has no map; 'hypercaps map' can make it later.")
    terminal.print_scores(console, result.metrics)
    terminal.print_files(console, out)


@app.command("map", epilog="Example:  hypercaps map runs/first/model.safetensors cube.mat --out map.tif")
def map_(
    ctx: typer.Context,
    model: ModelArg,
    scene: SceneArg,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The map: .tif with names and colours, or .png.")],
    confidence: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write how sure each pixel is, as .tif.")
    ] = None,
    confidence_dtype: ConfidenceDtype = "float32",
    probabilities: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write how likely each class is, one band each, as .tif.")
    ] = None,
    mask: Mask = None,
    memory: Memory = "1GB",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a map that was stopped or killed, if there is one.")
    ] = False,
    resample: Resample = False,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes that share the windows.")] = 1,
    cluster: ClusterOption = None,
    threads: Threads = None,
    device: DeviceOption = "cpu",
    precision: Precision = "float32",
    debug: Debug = False,
) -> None:
    """Map every pixel of a scene with a trained model.

    The map is a Cloud Optimized GeoTIFF with the scene's place on earth; class names and colours are in FILE.aux.xml
    and in a style for QGIS beside it. Finished windows are kept in FILE.partial until the map is whole.
    """
    from hypercaps import terminal
    from hypercaps.classifier import load_model
    from hypercaps.io.open import open_mask, open_scene
    from hypercaps.io.write import check_output, file_sha256
    from hypercaps.maps import MapFiles, make_map

    console = console_out()
    most_memory = memory_bytes(memory)
    refuse_together(ctx, "cluster", ("workers",))
    picture = out.suffix.lower() == ".png"
    files = MapFiles(
        classes=None if picture else out,
        confidence=confidence,
        probabilities=probabilities,
        picture=out if picture else None,
        confidence_dtype=confidence_dtype,
    )
    taken = input_files(model, scene, mask)
    check_output(out, {".tif", ".tiff", ".png"}, inputs=taken)
    for path in filter(None, (confidence, probabilities)):
        taken += input_files(out)
        check_output(path, {".tif", ".tiff"}, inputs=taken)
        taken += input_files(path)
    classifier = load_model(model, device=device, precision=precision)
    options: dict[str, Any] = {"wavelengths": wavelengths, "allow_remote": allow_remote}
    cube = open_scene(scene, **options, progress=terminal.download_bar(console))
    cube = with_bands_of(classifier.model_, cube, resample)
    only = open_mask(mask, cube) if mask else None
    set_threads(threads)
    try:
        with cluster_of(cluster, workers, threads) as pool, terminal.RunProgress(console) as bars:
            mapper = None
            if pool is not None:
                from hypercaps.cluster.maps import MapJob, Opening, map_windows_on

                opening = Opening.of(scene, **options)
                job = MapJob.of(model, opening, cube, resample=resample, device=device, precision=precision)
                mapper = partial(map_windows_on, pool, job, only=only, with_scores=probabilities is not None)
            make_map(
                classifier,
                cube,
                files,
                model_sha256=file_sha256(model),
                only=only,
                memory=most_memory,
                resume=resume,
                mapper=mapper,
                on_progress=bars.mapping,
            )
    except KeyboardInterrupt:
        kept = f"What is finished is in {plain(files.partial)}: the same command with --resume goes on."
        console.print(f"Stopped. {kept if files.partial.exists() else 'Nothing was written.'}", soft_wrap=True)
        raise typer.Exit(130) from None
    for path in files.all(classifier.legend_):
        console.print(f"wrote {plain(path)}")


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
    from hypercaps.classifier import load_model
    from hypercaps.io.open import open_split
    from hypercaps.io.write import check_output, write_json
    from hypercaps.run import evaluation_metrics, evaluation_split

    console = console_out()
    to_stdout = json_file == Path("-")
    if json_file is not None and not to_stdout:
        check_output(json_file, inputs=input_files(model, scene, *(labels or ()), split_file))
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


@scenes_app.callback(epilog="Example:  hypercaps scenes download pavia-university")
def scenes(ctx: typer.Context, as_json: Json = False, debug: Debug = False) -> None:
    """List the public scenes that are known by name, or download one."""
    if ctx.invoked_subcommand is not None:
        return
    from hypercaps import terminal
    from hypercaps.io import catalog

    listed = [catalog.get_scene(name).describe() for name in catalog.names()]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        terminal.print_scenes(console_out(), listed)


@scenes_app.command("download", epilog="Example:  hypercaps scenes download pavia-university")
def download(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As 'hypercaps scenes' lists it.")],
    debug: Debug = False,
) -> None:
    """Fetch a public scene now, check it, and say where it is."""
    from hypercaps import terminal
    from hypercaps.io import catalog

    console = console_out()
    entry = catalog.get_scene(name)
    for part in ("cube", "labels"):
        path, _ = entry.get(part, terminal.download_bar(console))
        console.print(f"{part}: {plain(path)}", soft_wrap=True)


@app.command(epilog="Example:  hypercaps info runs/first/model.safetensors")
def info(
    what: Annotated[
        str, typer.Argument(metavar="FILE_OR_NAME", help="A scene, labels, a model, tiles, or a scene's name.")
    ],
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what a scene, a label file or a model is."""
    from hypercaps import terminal
    from hypercaps.describe import describe

    about = describe(what, wavelengths=wavelengths, allow_remote=allow_remote)
    if as_json:
        typer.echo(json.dumps(about, indent=2))
    else:
        terminal.print_facts(console_out(), about)


@app.command(epilog="Example:  hypercaps methods --bands 200 --classes 16")
def methods(
    bands: Annotated[int | None, typer.Option(min=1, metavar="C", help="Count parameters for C bands ...")] = None,
    classes: Annotated[int | None, typer.Option(min=2, metavar="N", help="... and N classes.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the methods, what they look at, and how they are trained."""
    from hypercaps import terminal
    from hypercaps.models.registry import METHODS

    if (bands is None) != (classes is None):
        raise ModelError("parameters depend on bands and classes: give both --bands and --classes, or none of them")
    listed = [method.describe(bands, classes) for method in METHODS.values()]
    if as_json:
        typer.echo(json.dumps(listed, indent=2))
    else:
        terminal.print_methods(console_out(), listed)


@app.command(epilog="Example:  hypercaps study quick --out studies/quick")
def study(
    ctx: typer.Context,
    which: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_NAME",
            help="A TOML file, or paper-methods, paper-small, paper-cost, paper-convergence or quick.",
        ),
    ],
    *,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the study; what is done there is not done again.")
    ],
    repeats: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seeds 0 to N - 1 for every method; the study's if left out.")
    ] = None,
    methods: Annotated[str | None, typer.Option(metavar="a,b", help="Only these methods.")] = None,
    scenes: Annotated[str | None, typer.Option(metavar="x,y", help="Only these scenes.")] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Runs at the same time; they share the cores.")] = 1,
    cluster: ClusterOption = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Stop after this time; the same command goes on later.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Run methods x scenes x label shares x seeds, and set the results beside the paper's.

    Writes results.json, results.csv, results.md and results.html into DIR. Every finished run is kept: a study that
    was stopped or killed goes on where it was. A run that fails is listed and does not stop the others.
    """
    from hypercaps import terminal
    from hypercaps.study.plan import open_study
    from hypercaps.study.study import run_study

    if budget is not None and not budget > 0:
        raise StudyError(f"a budget of {budget:g} minutes leaves no time for a run: give more than 0")
    console = console_out()
    refuse_together(ctx, "cluster", ("workers",))
    plan = open_study(which).only(methods=listed(methods), scenes=listed(scenes), repeats=repeats)
    try:
        with cluster_of(cluster) as pool, terminal.StudyProgress(console, pool.slots if pool else workers) as shown:
            result = run_study(
                plan,
                out,
                workers=workers,
                cluster=pool,
                budget_minutes=budget,
                command=command_line(),
                download_progress=terminal.download_bar(console),
                on_start=shown.started,
                on_done=shown.run_done,
                on_progress=shown.training,
            )
    except KeyboardInterrupt:
        console.print(f"Stopped: what is finished is in {plain(out)}, and the same command goes on with the rest.")
        raise typer.Exit(130) from None
    terminal.print_study(console, out, result)


def main() -> None:
    try:
        app()
    except KeyboardInterrupt:  # before a command could take care of it
        raise SystemExit(130) from None
