"""The command ``hypercaps map``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, plain
from hypercaps.cli.progress import RunProgress
from hypercaps.cli.values import cluster_of, memory_bytes, open_cube, refuse_together, set_threads, with_bands_of

if TYPE_CHECKING:
    from hypercaps.data.scene import Scene
    from hypercaps.pipeline.cluster_map import MapJob
    from hypercaps.pipeline.requests import MapRequest


@app.command("map", epilog="Example:  hypercaps map runs/first/model.safetensors cube.mat --out map.tif")
def map_(
    ctx: typer.Context,
    model: opt.ModelArg,
    scene: opt.SceneArg,
    *,
    out: opt.OutMap,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    resample: opt.Resample = False,
    confidence: opt.ConfidenceFile = None,
    confidence_dtype: opt.ConfidenceDtype = "float32",
    probabilities: opt.ProbabilitiesFile = None,
    coverage: opt.Coverage = None,
    reject: opt.Reject = None,
    mask: opt.Mask = None,
    resume: opt.Resume = False,
    memory: opt.Memory = "1GB",
    workers: opt.Workers = 1,
    cluster: opt.ClusterOption = None,
    threads: opt.Threads = None,
    device: opt.DeviceOption = "cpu",
    precision: opt.Precision = "float32",
    debug: opt.Debug = False,
) -> None:
    """Classify every pixel of a scene with a trained model.

    The map is a Cloud Optimized GeoTIFF on the scene's grid; class names and
    colours are in map.tif.aux.xml and in the QGIS style map.qml beside it, for
    --out map.tif; --coverage writes map_sets.tif. Finished windows are kept in
    map.tif.partial until the map is complete.
    """
    from hypercaps.io.open import open_mask
    from hypercaps.io.writers.atomic import file_sha256

    console = console_out()
    refuse_together(ctx, "cluster", ("workers",))
    request = _make_request(ctx)
    cube = open_cube(scene, wavelengths, allow_remote)
    if mask:
        request = replace(request, mask=open_mask(mask, cube))

    from hypercaps.classifier import load_model  # imports torch: only after the inputs could be read
    from hypercaps.pipeline.cluster_map import cluster_mapper
    from hypercaps.pipeline.map import make_map

    classifier = load_model(model, device=device, precision=precision)
    request.check_calibrated(classifier.model_)
    cube = with_bands_of(classifier.model_, cube, resample)
    set_threads(threads)
    try:
        with cluster_of(cluster, workers, threads) as pool, RunProgress(console) as shown:
            mapper = None if pool is None else cluster_mapper(pool, _make_job(ctx, cube), request)
            sha256 = file_sha256(model)
            make_map(classifier, cube, request, model_sha256=sha256, mapper=mapper, on_progress=shown.mapping)
    except KeyboardInterrupt:
        kept = f"What is finished is in {plain(request.partial)}: the same command with --resume goes on."
        console.print(f"Stopped. {kept if request.partial.exists() else 'Nothing was written.'}", soft_wrap=True)
        raise typer.Exit(130) from None
    for path in request.outputs():
        console.print(f"wrote {plain(path)}", soft_wrap=True)


def _make_request(ctx: typer.Context) -> MapRequest:
    from hypercaps.io.inputs import input_files
    from hypercaps.pipeline.requests import MapRequest

    given, out = ctx.params, ctx.params["out"]
    is_picture = out.suffix.lower() == ".png"
    layers = {
        "classes": None if is_picture else out,
        "confidence": given["confidence"],
        "probabilities": given["probabilities"],
        "sets": None if given["coverage"] is None else out.with_name(f"{out.stem}_sets.tif"),
    }
    request = MapRequest(
        {name: path for name, path in layers.items() if path is not None},
        picture=out if is_picture else None,
        memory=memory_bytes(given["memory"]),
        reject=given["reject"],
        coverage=given["coverage"],
        confidence_dtype=given["confidence_dtype"],
        resume=given["resume"],
    )
    taken = input_files(given["model"], given["scene"], given["mask"])
    taken += [path.with_suffix(".qml") for path in taken]  # the style of a mask is the user's
    request.check_outputs(taken + input_files(given["wavelengths"]))
    return request


def _make_job(ctx: typer.Context, cube: Scene) -> MapJob:
    """What the workers of a cluster need to open model and scene themselves."""
    from hypercaps.io.open import Opening
    from hypercaps.io.options import OpenOptions
    from hypercaps.pipeline.cluster_map import MapJob

    given = ctx.params
    options = OpenOptions(wavelengths=given["wavelengths"], allow_remote=given["allow_remote"])
    chosen = {name: given[name] for name in ("resample", "device", "precision")}
    return MapJob.of(given["model"], Opening.of(given["scene"], options), cube, **chosen)
