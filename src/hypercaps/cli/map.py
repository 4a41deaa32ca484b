"""hypercaps map"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, plain
from hypercaps.cli.options import (
    AllowRemote,
    ClusterOption,
    ConfidenceDtype,
    Coverage,
    Debug,
    DeviceOption,
    Mask,
    Memory,
    ModelArg,
    Precision,
    Reject,
    Resample,
    SceneArg,
    Threads,
    Wavelengths,
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
    out: Annotated[Path, typer.Option(metavar="FILE", help="The map: .tif with names and colours, or .png.")],
    confidence: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write how sure each pixel is, as .tif.")
    ] = None,
    confidence_dtype: ConfidenceDtype = "float32",
    probabilities: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write how likely each class is, one band each, as .tif.")
    ] = None,
    coverage: Coverage = None,
    reject: Reject = None,
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
    and in a style for QGIS beside it; --coverage writes FILE_sets.tif. Finished windows are kept in FILE.partial until
    the map is whole.
    """
    from hypercaps.cli import progress
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_mask, open_scene
    from hypercaps.io.writers.atomic import check_output, file_sha256
    from hypercaps.io.writers.map_files import MapFiles

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
        sets=None if coverage is None else out.with_name(f"{out.stem}_sets.tif"),
        coverage=coverage,
        reject=reject,
    )
    taken = input_files(model, scene, mask)
    taken += [path.with_suffix(".qml") for path in taken]  # the style of a mask is the user's
    taken += input_files(wavelengths)
    for path in (*files.possible(), files.partial):
        rasters = {".tif", ".tiff"} if path in (out, confidence, probabilities, files.sets) else set()
        check_output(path, rasters | {".png"} if path == out else rasters, inputs=taken)
        taken.append(path)
    download = progress.download_bar(console)
    cube = open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=download)
    only = open_mask(mask, cube) if mask else None

    from hypercaps.classifier import load_model  # torch: not before what was named could be read
    from hypercaps.pipeline.map import check_calibrated, make_map

    classifier = load_model(model, device=device, precision=precision)
    check_calibrated(classifier.model_, files)
    cube = with_bands_of(classifier.model_, cube, resample)
    set_threads(threads)
    try:
        with cluster_of(cluster, workers, threads) as pool, progress.RunProgress(console) as shown:
            mapper = None
            if pool is not None:
                from hypercaps.io.open import Opening
                from hypercaps.io.options import OpenOptions
                from hypercaps.pipeline.cluster_map import MapJob, map_windows_on

                opening = Opening.of(scene, OpenOptions(wavelengths=wavelengths, allow_remote=allow_remote))
                job = MapJob.of(model, opening, cube, resample=resample, device=device, precision=precision)
                with_scores = probabilities is not None
                mapper = partial(map_windows_on, pool, job, only=only, with_scores=with_scores, coverage=coverage)
            make_map(
                classifier,
                cube,
                files,
                model_sha256=file_sha256(model),
                only=only,
                memory=most_memory,
                resume=resume,
                mapper=mapper,
                on_progress=shown.mapping,
            )
    except KeyboardInterrupt:
        kept = f"What is finished is in {plain(files.partial)}: the same command with --resume goes on."
        console.print(f"Stopped. {kept if files.partial.exists() else 'Nothing was written.'}", soft_wrap=True)
        raise typer.Exit(130) from None
    for path in files.all(classifier.legend_):
        console.print(f"wrote {plain(path)}")
