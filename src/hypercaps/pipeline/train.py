"""One run: train, evaluate, map, and the folder that holds it all."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.data.tiling import thinning
from hypercaps.errors import DataWarning, Interrupted, SplitError
from hypercaps.inference.predict import Mask, OnProgress
from hypercaps.io.writers.atomic import file_sha256, write_bytes, write_csv, write_json, write_npz
from hypercaps.io.writers.map_files import MapFiles, check_share
from hypercaps.io.writers.run_folder import RunFolder
from hypercaps.models.registry import count_parameters, get_method
from hypercaps.pipeline.evaluate import run_metrics, side_by_side, with_other_split
from hypercaps.pipeline.map import MEMORY, make_map
from hypercaps.report.map_pictures import colored, raster_picture
from hypercaps.report.plots import curves_picture, reliability_picture
from hypercaps.report.quicklook import LONGEST_SIDE, quicklook
from hypercaps.report.run_report import make_report
from hypercaps.report.signatures import make_classes_record
from hypercaps.training.loop import Progress


@dataclass(frozen=True)
class RunResult:
    """What a run ended with."""

    classifier: ConvCapsClassifier
    metrics: dict[str, Any]  # as in metrics.json
    out: Path
    mapped: bool  # False if no map was wanted, or the user stopped it
    reported: bool = True  # False if the user stopped the report


def train_run(
    classifier: ConvCapsClassifier,
    scene: Scene,
    labels: Labels,
    out: Path,
    *,
    split: Split | None = None,
    with_map: bool = True,
    only: Mask | None = None,
    confidence_dtype: str = "float32",
    probabilities: bool = False,
    coverage: float | None = None,
    reject: float | None = None,
    both: bool = False,
    command: str | None = None,
    memory: int = MEMORY,
    force: bool = False,
    on_second: Callable[[str], None] = lambda other: None,
    on_training: Callable[[Progress], None] | None = None,
    on_mapping: OnProgress | None = None,
) -> RunResult:
    """Fit, score the test set, map the scene, or ``only`` part of it, and write it all into ``out``, or nothing.

    ``both`` trains a second time, by the other kind of split, and sets its scores beside; ``on_second`` is told which.
    ``command`` is what the user typed, for the report. Ctrl-C while mapping gives up the map only, and later on the
    report only: what was trained is worth keeping.
    """
    _check_can_calibrate(classifier, scene, labels, split, {"coverage": coverage, "reject": reject})
    twin = _twin(classifier, scene, labels, split) if both else None
    needed = _bytes_needed(classifier, scene, labels, with_map, probabilities)
    with RunFolder(out, force=force, needs_bytes=needed) as staging:
        files = MapFiles(
            classes=staging / "map.tif",
            confidence=staging / "confidence.tif",
            probabilities=staging / "probabilities.tif" if probabilities else None,
            picture=staging / "map.png",
            confidence_dtype=confidence_dtype,
            sets=None if coverage is None else staging / "sets.tif",
            coverage=coverage,
            reject=reject,
        )
        classifier.fit(scene, labels, split, on_progress=on_training)
        metrics = run_metrics(classifier)
        history, drawn = classifier.history_, classifier.split_
        if twin is not None and not history.interrupted:
            on_second(twin.split_by)
            with suppress(KeyboardInterrupt, Interrupted):  # without its figures, then
                twin.fit(scene, labels, on_progress=on_training)
                metrics["both"] = side_by_side(run_metrics(classifier), run_metrics(twin))
        classifier.save(staging / "model.safetensors")
        sha256 = file_sha256(staging / "model.safetensors")
        metrics |= _how(classifier, command, sha256) | {"coverage": coverage, "reject": reject}
        write_csv(staging / "history.csv", ("epoch", "loss", "val_oa", "seconds", "stage"), history.records)
        write_npz(staging / "split.npz", train=drawn.train, val=drawn.val, test=drawn.test)
        write_bytes(staging / "curves.png", curves_picture(history.records, history.best_epoch))
        write_bytes(staging / "reliability.png", reliability_picture(metrics))
        mapped = reported = False
        if with_map:
            with suppress(KeyboardInterrupt):
                make_map(
                    classifier,
                    scene,
                    files,
                    model_sha256=sha256,
                    only=only,
                    memory=memory,
                    truth=labels,
                    on_progress=on_mapping,
                )
                mapped = True
            files.partial.unlink(missing_ok=True)
        write_json(staging / "metrics.json", metrics)
        with suppress(KeyboardInterrupt):
            _write_report(staging, classifier, scene, labels)
            reported = True
    return RunResult(classifier, metrics, out, mapped=mapped, reported=reported)


def _twin(classifier: ConvCapsClassifier, scene: Scene, labels: Labels, split: Split | None) -> ConvCapsClassifier:
    """What is trained by the other kind of split."""
    if split is not None or classifier.split_by not in ("random", "blocks"):
        kind = "file" if split is not None else classifier.split_by
        raise SplitError(f"a split of kind {kind!r} has no counterpart: both need --split random or --split blocks")
    return with_other_split(classifier, scene, labels, block=classifier.block)


def _how(classifier: ConvCapsClassifier, command: str | None, sha256: str) -> dict[str, Any]:
    """The part of metrics.json that says how to repeat the run."""
    model = classifier.model_
    default = ConvCapsClassifier().get_params()
    return {
        "command": command,
        "params": {name: value for name, value in classifier.get_params().items() if value != default[name]},
        "versions": dict(model.versions),
        "model_sha256": sha256,
        "labels_digest": model.split.labels,
    }


def _write_report(staging: Path, classifier: ConvCapsClassifier, scene: Scene, labels: Labels) -> None:
    """report.html and what it is made of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # fit has said it
        labels = labels.where_valid(scene)
    look = quicklook(scene)
    classes = make_classes_record(classifier.model_, scene, labels, classifier.split_, look.caption)
    write_json(staging / "classes.json", asdict(classes))
    write_bytes(staging / "scene.png", raster_picture(look.picture))
    write_bytes(staging / "labels.png", raster_picture(colored(_thinned(labels), labels.legend)))
    write_bytes(staging / "report.html", make_report(staging).encode())


def _thinned(labels: Labels) -> npt.NDArray[np.int16]:
    """Labels at the size of a picture. Few among many pixels must not get lost: a cell shows any that lies in it."""
    step = thinning(labels.shape, LONGEST_SIDE)
    rows, cols = labels.shape
    small = np.zeros((-(-rows // step), -(-cols // step)), dtype=np.int16)
    r, c = np.nonzero(labels.array)
    small[r // step, c // step] = labels.array[r, c]
    return small


def _check_can_calibrate(
    classifier: ConvCapsClassifier,
    scene: Scene,
    labels: Labels,
    split: Split | None,
    asked: Mapping[str, float | None],
) -> None:
    """Refuse before training what a model without calibration could not say after it."""
    for option, value in asked.items():
        check_share(option, value)
        if value is None:
            continue
        if split is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # fit will say it
                split = classifier.draw_split(labels.where_valid(scene))
        if split.val.size == 0:
            raise SplitError(
                f"--{option} needs validation pixels, to learn from them how far to trust a score, and there are none: "
                "set some aside (--val 0.1 or more, smaller blocks, or in the split's file)"
            )


def _bytes_needed(
    classifier: ConvCapsClassifier, scene: Scene, labels: Labels, with_map: bool, probabilities: bool
) -> int:
    """A generous guess of what a run writes, to refuse a full disk before training and not after."""
    method = get_method(classifier.method)
    network = method.blueprint(scene.bands, len(labels.legend), patch=classifier.patch, structure=classifier.structure)
    model = 4 * count_parameters(network) + 8 * scene.bands * (scene.bands + 3)
    labelled = int((labels.array > 0).sum())
    model += method.recipe(classifier.recipe).stored_bytes(labelled, scene.bands, len(labels.legend))
    a_pixel = 6 + (4 * len(labels.legend) if probabilities else 0)
    maps = 3 * a_pixel * scene.rows * scene.cols + 1_000_000 if with_map else 0  # while they are made, and the picture
    indices = 8 * labelled
    report = 12 * min(scene.rows * scene.cols, LONGEST_SIDE**2) + 200 * scene.bands * len(labels.legend) + 500_000
    return model + maps + indices + report
