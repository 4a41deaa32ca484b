"""The command ``hypercaps suggest``."""

from __future__ import annotations

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, plain
from hypercaps.cli.options import (
    AllowRemote,
    ClassField,
    Count,
    Debug,
    LabelFiles,
    Mask,
    Memory,
    ModelArg,
    OutPoints,
    Resample,
    SceneArg,
    Threads,
    Wavelengths,
    memory_bytes,
    set_threads,
    with_bands_of,
)


@app.command(epilog="Example:  hypercaps suggest runs/first/model.safetensors scene.tif --n 20 --out points.gpkg")
def suggest(
    model: ModelArg,
    scene: SceneArg,
    *,
    out: OutPoints,
    wavelengths: Wavelengths = None,
    allow_remote: AllowRemote = False,
    resample: Resample = False,
    n: Count = 20,
    labels: LabelFiles = None,
    class_field: ClassField = None,
    mask: Mask = None,
    memory: Memory = "1GB",
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Suggest which pixels to label next.

    They are uncertain pixels, spread over the scene and the classes. Each point
    has its rank, the predicted class, the second most likely class and the
    confidence. See docs/suggest.md.
    """
    from hypercaps.classifier import load_model
    from hypercaps.cli import progress
    from hypercaps.data.tiling import plan_windows
    from hypercaps.inference.suggest import suggest as choose
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_labels, open_mask, open_scene
    from hypercaps.io.writers.atomic import check_output
    from hypercaps.io.writers.points import SUFFIXES, check_placed, write_points
    from hypercaps.pipeline.map import pixels_within

    console = console_out()
    most_memory = memory_bytes(memory)
    check_output(out, SUFFIXES, inputs=input_files(model, scene, mask, wavelengths, *(labels or ())))
    classifier = load_model(model)
    trained = classifier.model_
    download = progress.download_bar(console)
    cube = open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=download)
    cube = with_bands_of(trained, cube, resample)
    check_placed(out, cube)
    known = None
    if labels:
        given = open_labels(
            labels, scene=cube, class_field=class_field, legend=trained.legend, allow_remote=allow_remote
        )
        given.check_fits(cube)
        known = given.array > 0
    only = open_mask(mask, cube) if mask else None
    set_threads(threads)
    windows = plan_windows(cube, patch=trained.patch, pixels=pixels_within(most_memory, classifier, cube))
    found = choose(
        classifier.map_windows(cube, windows, only=only, with_scores=True, raw=True),
        trained.legend,
        n,
        labelled=known,
        name=cube.name,
    )
    write_points(out, found, cube)
    if len(found) < n:
        console.print(f"Only {len(found)} pixels can be suggested, not {n}.")
    console.print(f"wrote {plain(out)}: {len(found)} pixels to label next")
