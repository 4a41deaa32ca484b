"""The command ``hypercaps suggest``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hypercaps.cli import events
from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_err, console_out, plain, say
from hypercaps.cli.progress import RunProgress
from hypercaps.cli.root import app
from hypercaps.cli.values import memory_bytes, open_cube, open_truth, prepare_for, set_threads

if TYPE_CHECKING:
    from hypercaps.inference.predict import MappedWindow


@app.command(epilog="Example:  hypercaps suggest runs/first/model.safetensors scene.tif --n 20 --out points.gpkg")
def suggest(
    model: opt.ModelArg,
    scene: opt.SceneArg,
    *,
    out: opt.OutPoints,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    resample: opt.Resample = False,
    n: opt.Count = 20,
    labels: opt.LabelFiles = None,
    class_field: opt.ClassField = None,
    mask: opt.Mask = None,
    memory: opt.Memory = "1GB",
    threads: opt.Threads = None,
    progress: opt.ProgressMode = "auto",
    debug: opt.Debug = False,
) -> None:
    """Suggest which pixels to label next.

    They lie in the largest areas that the model is uncertain about, apart from
    each other and from the labels. Each point has its rank, the predicted class,
    the second most likely class and the confidence. See docs/suggest.md.
    """
    from hypercaps.data.tiling import plan_windows
    from hypercaps.inference.suggest import suggest as choose
    from hypercaps.io.inputs import input_files
    from hypercaps.io.open import open_mask
    from hypercaps.io.writers.atomic import check_output
    from hypercaps.io.writers.folders import folders_for
    from hypercaps.io.writers.points import SUFFIXES, check_placed, write_points
    from hypercaps.loading import load_model
    from hypercaps.pipeline.map import pixels_within

    most_memory = memory_bytes(memory)
    check_output(out, SUFFIXES, inputs=input_files(model, scene, mask, wavelengths, *(labels or ())), new_folder=True)
    classifier = load_model(model)
    trained = classifier.model_
    cube = prepare_for(trained, open_cube(scene, wavelengths, allow_remote), resample).scene
    check_placed(out, cube)
    labelled = None
    if labels:
        labelled = open_truth(scene, labels, cube, class_field, allow_remote, trained.legend).array > 0
    only = open_mask(mask, cube) if mask else None
    set_threads(threads)
    windows = plan_windows(cube, patch=2 * trained.halo + 1, pixels=pixels_within(most_memory, classifier, cube))
    scored = classifier.map_windows(cube, windows, only=only, with_scores=True, raw=True)
    with RunProgress(console_err()) as shown:
        reported = _reported(scored, cube.rows * cube.cols, shown.mapping)
        points = choose(reported, trained.legend, n, labelled=labelled, name=cube.name)
    with folders_for([out]):
        write_points(out, points, cube, class_field or "label")
    if len(points) < n:
        say(f"Only {len(points)} pixels can be suggested, not {n}.")
    console_out().print(f"wrote {plain(out)}: {len(points)} pixels to label next", soft_wrap=True)
    events.write_result({"points": out})


def _reported(
    windows: Iterator[MappedWindow], total: int, on_progress: Callable[[int, int], None]
) -> Iterator[MappedWindow]:
    """The same windows; how many pixels of the scene they cover is reported as they come."""
    done = 0
    for window in windows:
        yield window
        done += window.classes.size
        on_progress(done, total)
