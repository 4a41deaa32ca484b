"""The command ``hypercaps map``."""

from __future__ import annotations

from dataclasses import replace

import typer

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, plain
from hypercaps.cli.options import (
    AllowRemote,
    ClusterOption,
    ConfidenceDtype,
    ConfidenceFile,
    Coverage,
    Debug,
    DeviceOption,
    Mask,
    Memory,
    ModelArg,
    OutMap,
    Precision,
    ProbabilitiesFile,
    Reject,
    Resample,
    Resume,
    SceneArg,
    Threads,
    Wavelengths,
    Workers,
    cluster_of,
    memory_bytes,
    refuse_together,
    set_threads,
    with_bands_of,
)


@app.command("map", epilog="Example:  hypercaps map runs/first/model.safetensors cube.mat --out map.tif")
def map_(
    ctx: typer.Context,
    model: ModelArg,
    scene: SceneArg,
    *,
    out: OutMap,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    resample: Resample = False,
    confidence: ConfidenceFile = None,
    confidence_dtype: ConfidenceDtype = "float32",
    probabilities: ProbabilitiesFile = None,
    coverage: Coverage = None,
    reject: Reject = None,
    mask: Mask = None,
    resume: Resume = False,
    memory: Memory = "1GB",
    workers: Workers = 1,
    cluster: ClusterOption = None,
    threads: Threads = None,
    device: DeviceOption = "cpu",
    precision: Precision = "float32",
    debug: Debug = False,
) -> None:
    """Classify every pixel of a scene with a trained model.

    The map is a Cloud Optimized GeoTIFF on the scene's grid; class names and
    colours are in FILE.aux.xml and in a QGIS style beside it; --coverage writes
    FILE_sets.tif. Finished windows are kept in FILE.partial until the map is
    complete.
    """
    from hypercaps.cli import progress
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_mask, open_scene
    from hypercaps.io.writers.atomic import file_sha256
    from hypercaps.pipeline.requests import MapRequest

    console = console_out()
    refuse_together(ctx, "cluster", ("workers",))
    is_picture = out.suffix.lower() == ".png"
    layers = {
        "classes": None if is_picture else out,
        "confidence": confidence,
        "probabilities": probabilities,
        "sets": None if coverage is None else out.with_name(f"{out.stem}_sets.tif"),
    }
    request = MapRequest(
        {name: path for name, path in layers.items() if path is not None},
        picture=out if is_picture else None,
        memory=memory_bytes(memory),
        reject=reject,
        coverage=coverage,
        confidence_dtype=confidence_dtype,
        resume=resume,
    )
    taken = input_files(model, scene, mask)
    taken += [path.with_suffix(".qml") for path in taken]  # the style of a mask is the user's
    request.check_outputs(taken + input_files(wavelengths))
    download = progress.download_bar(console)
    cube = open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=download)
    if mask:
        request = replace(request, mask=open_mask(mask, cube))

    from hypercaps.classifier import load_model  # imports torch: only after the inputs could be read
    from hypercaps.pipeline.map import make_map

    classifier = load_model(model, device=device, precision=precision)
    request.check_calibrated(classifier.model_)
    cube = with_bands_of(classifier.model_, cube, resample)
    set_threads(threads)
    try:
        with cluster_of(cluster, workers, threads) as pool, progress.RunProgress(console) as shown:
            mapper = None
            if pool is not None:
                from hypercaps.io.open import Opening
                from hypercaps.io.options import OpenOptions
                from hypercaps.pipeline.cluster_map import MapJob, cluster_mapper

                opening = Opening.of(scene, OpenOptions(wavelengths=wavelengths, allow_remote=allow_remote))
                job = MapJob.of(model, opening, cube, resample=resample, device=device, precision=precision)
                mapper = cluster_mapper(pool, job, request)
            sha256 = file_sha256(model)
            make_map(classifier, cube, request, model_sha256=sha256, mapper=mapper, on_progress=shown.mapping)
    except KeyboardInterrupt:
        kept = f"What is finished is in {plain(request.partial)}: the same command with --resume goes on."
        console.print(f"Stopped. {kept if request.partial.exists() else 'Nothing was written.'}", soft_wrap=True)
        raise typer.Exit(130) from None
    for path in request.outputs():
        console.print(f"wrote {plain(path)}")
