"""The command ``hypercaps map``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from hypercaps.cli import events
from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_err, plain, say, say_written, shows_bars
from hypercaps.cli.root import app
from hypercaps.cli.values import (
    CommandOptions,
    check_device,
    cluster_of,
    memory_bytes,
    open_cube,
    prepare_for,
    refuse_together,
    set_threads,
)

if TYPE_CHECKING:
    from hypercaps.compute.cluster.pool import Cluster
    from hypercaps.inference.predict import OnProgress
    from hypercaps.inference.scene_shift import PreparedScene
    from hypercaps.pipeline.cluster_map import MapJob
    from hypercaps.pipeline.fill_map import Mapper
    from hypercaps.pipeline.requests import MapRequest


@app.command("map", epilog="Example:  hypercaps map runs/first cube.mat --out maps/cube.tif")
def map_(
    ctx: typer.Context,
    model: opt.ModelArg,
    scene: opt.SceneArg,
    *,
    out: opt.OutMap,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    resample: opt.Resample = False,
    adapt: opt.Adapt = "auto",
    confidence: opt.ConfidenceFile = None,
    confidence_dtype: opt.ConfidenceDtype = "float32",
    probabilities: opt.ProbabilitiesFile = None,
    coverage: opt.Coverage = None,
    reject: opt.Reject = None,
    familiarity: opt.FamiliarityFile = None,
    unknown: opt.Unknown = None,
    mask: opt.Mask = None,
    resume: opt.Resume = False,
    memory: opt.Memory = "1GB",
    workers: opt.Workers = 1,
    cluster: opt.ClusterOption = None,
    threads: opt.Threads = None,
    device: opt.DeviceOption = "cpu",
    precision: opt.Precision = "float32",
    progress: opt.ProgressMode = "auto",
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Classify every pixel of a scene with a trained model.

    The map is a Cloud Optimized GeoTIFF on the scene's grid; class names and
    colours are in map.tif.aux.xml and in the QGIS style map.qml beside it, for
    --out map.tif; --coverage writes map_sets.tif. Finished windows are kept in
    map.tif.partial until the map is complete. See docs/maps.md.
    """
    options = CommandOptions.of(ctx)
    refuse_together(options, "cluster", ("workers",))
    refuse_together(options, "quiet", ("progress",))
    request = _make_request(options)
    check_device(options)
    _map(options, request)
    for path in [request.main] if quiet else request.outputs():
        say_written(path)
    style = out.with_suffix(".qml") if "classes" in request.files else None
    events.write_result({**request.files, "picture": request.picture, "style": style})


def _map(options: CommandOptions, request: MapRequest) -> None:
    """Map the scene; Ctrl-C leaves the finished windows in the partial map."""
    from hypercaps.io.detect import find_model
    from hypercaps.io.open import open_mask
    from hypercaps.io.writers.atomic import file_sha256

    quiet, threads, model = options["quiet"], options["threads"], options["model"]
    find_model(model)  # before a scene is opened
    cube = open_cube(options["scene"], options["wavelengths"], options["allow_remote"], quiet=quiet)
    if options["mask"]:
        request = replace(request, mask=open_mask(options["mask"], cube))

    from hypercaps.loading import load_model  # may import torch: only after the inputs could be read
    from hypercaps.pipeline.map import make_map

    classifier = load_model(model, device=options["device"], precision=options["precision"])
    request.check_model(classifier.model_)
    is_typed = "adapt" in options.typed
    prepared = prepare_for(classifier.model_, cube, options["resample"], options["adapt"], typed=is_typed)
    set_threads(threads)
    try:
        with (
            cluster_of(options["cluster"], options["workers"], threads) as pool,
            _progress_callback(quiet=quiet) as on_progress,
        ):
            mapper = None if pool is None else _mapper_on(pool, options, prepared, request)
            sha256 = file_sha256(model)
            make_map(classifier, prepared, request, model_sha256=sha256, mapper=mapper, on_progress=on_progress)
    except KeyboardInterrupt:
        kept = f"What is finished is in {plain(request.partial)}: the same command with --resume goes on."
        say(f"Stopped. {kept if request.partial.exists() else 'Nothing was written.'}")
        raise typer.Exit(130) from None


@contextmanager
def _progress_callback(*, quiet: bool) -> Iterator[OnProgress | None]:
    """The callback that shows the progress of a map; None where none is shown."""
    if not shows_bars(quiet=quiet):
        yield None
        return
    from hypercaps.cli.progress import RunProgress

    with RunProgress(console_err(quiet=quiet)) as shown:
        yield shown.mapping


def _make_request(options: CommandOptions) -> MapRequest:
    from hypercaps.io.inputs import input_files
    from hypercaps.pipeline.requests import MapRequest

    out = options["out"]
    is_picture = out.suffix.lower() == ".png"
    layers = {
        "classes": None if is_picture else out,
        "confidence": options["confidence"],
        "familiarity": options["familiarity"],
        "probabilities": options["probabilities"],
        "sets": None if options["coverage"] is None else out.with_name(f"{out.stem}_sets.tif"),
    }
    request = MapRequest(
        {name: path for name, path in layers.items() if path is not None},
        picture=out if is_picture else None,
        memory=memory_bytes(options["memory"]),
        reject=options["reject"],
        unknown=options["unknown"],
        coverage=options["coverage"],
        confidence_dtype=options["confidence_dtype"],
        resume=options["resume"],
    )
    inputs = input_files(options["model"], options["scene"], options["mask"], options["wavelengths"])
    # A map reads no style, and one beside the scene may be that of an earlier map of the same name.
    request.check_outputs([path for path in inputs if path.suffix.lower() != ".qml"])
    return request


def _mapper_on(pool: Cluster, options: CommandOptions, prepared: PreparedScene, request: MapRequest) -> Mapper:
    from hypercaps.pipeline.cluster_map import cluster_mapper

    return cluster_mapper(pool, _make_job(options, prepared), request)


def _make_job(options: CommandOptions, prepared: PreparedScene) -> MapJob:
    """What the workers of a cluster need to open model and scene themselves."""
    from hypercaps.io.open import Opening
    from hypercaps.io.options import OpenOptions
    from hypercaps.pipeline.cluster_map import MapJob

    how = OpenOptions(wavelengths=options["wavelengths"], allow_remote=options["allow_remote"])
    chosen = {name: options[name] for name in ("device", "precision")}
    return MapJob.of(options["model"], Opening.of(options["scene"], how), prepared, **chosen)
