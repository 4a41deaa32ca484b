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
    Given,
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
    from hypercaps.io.detect import find_model
    from hypercaps.io.open import open_mask
    from hypercaps.io.writers.atomic import file_sha256

    given = Given.of(ctx)
    refuse_together(given, "cluster", ("workers",))
    refuse_together(given, "quiet", ("progress",))
    request = _make_request(given)
    check_device(given)
    find_model(model)  # before a scene is opened
    cube = open_cube(scene, wavelengths, allow_remote, quiet=quiet)
    if mask:
        request = replace(request, mask=open_mask(mask, cube))

    from hypercaps.classifier import load_model  # may import torch: only after the inputs could be read
    from hypercaps.pipeline.map import make_map

    classifier = load_model(model, device=device, precision=precision)
    request.check_model(classifier.model_)
    prepared = prepare_for(classifier.model_, cube, resample, adapt, typed="adapt" in given.typed)
    set_threads(threads)
    try:
        with cluster_of(cluster, workers, threads) as pool, _shown(quiet=quiet) as on_progress:
            mapper = None if pool is None else _mapper_on(pool, given, prepared, request)
            sha256 = file_sha256(model)
            make_map(classifier, prepared, request, model_sha256=sha256, mapper=mapper, on_progress=on_progress)
    except KeyboardInterrupt:
        kept = f"What is finished is in {plain(request.partial)}: the same command with --resume goes on."
        say(f"Stopped. {kept if request.partial.exists() else 'Nothing was written.'}")
        raise typer.Exit(130) from None
    for path in [request.main] if quiet else request.outputs():
        say_written(path)
    style = out.with_suffix(".qml") if "classes" in request.files else None
    events.write_result({**request.files, "picture": request.picture, "style": style})


@contextmanager
def _shown(*, quiet: bool) -> Iterator[OnProgress | None]:
    """What to call while a scene is mapped; None where nothing is shown."""
    if not shows_bars(quiet=quiet):
        yield None
        return
    from hypercaps.cli.progress import RunProgress

    with RunProgress(console_err(quiet=quiet)) as shown:
        yield shown.mapping


def _make_request(given: Given) -> MapRequest:
    from hypercaps.io.inputs import input_files
    from hypercaps.pipeline.requests import MapRequest

    out = given["out"]
    is_picture = out.suffix.lower() == ".png"
    layers = {
        "classes": None if is_picture else out,
        "confidence": given["confidence"],
        "familiarity": given["familiarity"],
        "probabilities": given["probabilities"],
        "sets": None if given["coverage"] is None else out.with_name(f"{out.stem}_sets.tif"),
    }
    request = MapRequest(
        {name: path for name, path in layers.items() if path is not None},
        picture=out if is_picture else None,
        memory=memory_bytes(given["memory"]),
        reject=given["reject"],
        unknown=given["unknown"],
        coverage=given["coverage"],
        confidence_dtype=given["confidence_dtype"],
        resume=given["resume"],
    )
    inputs = input_files(given["model"], given["scene"], given["mask"], given["wavelengths"])
    # A map reads no style, and one beside the scene may be that of an earlier map of the same name.
    request.check_outputs([path for path in inputs if path.suffix.lower() != ".qml"])
    return request


def _mapper_on(pool: Cluster, given: Given, prepared: PreparedScene, request: MapRequest) -> Mapper:
    from hypercaps.pipeline.cluster_map import cluster_mapper

    return cluster_mapper(pool, _make_job(given, prepared), request)


def _make_job(given: Given, prepared: PreparedScene) -> MapJob:
    """What the workers of a cluster need to open model and scene themselves."""
    from hypercaps.io.open import Opening
    from hypercaps.io.options import OpenOptions
    from hypercaps.pipeline.cluster_map import MapJob

    options = OpenOptions(wavelengths=given["wavelengths"], allow_remote=given["allow_remote"])
    chosen = {name: given[name] for name in ("device", "precision")}
    return MapJob.of(given["model"], Opening.of(given["scene"], options), prepared, **chosen)
