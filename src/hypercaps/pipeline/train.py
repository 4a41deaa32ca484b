"""One run: train, evaluate, map, and write everything into a run folder."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hypercaps.classifier import ConvCapsClassifier, FitObserver
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.data.statistics import statistics_bytes
from hypercaps.errors import Interrupted, ModelError, Paused, SplitError
from hypercaps.inference.familiarity_fit import stored_bytes
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.inference.scene_shift import PreparedScene, SceneShift
from hypercaps.io.writers.atomic import file_sha256, write_csv, write_json, write_npz
from hypercaps.io.writers.run_folder import CHECKPOINT, RunFolder
from hypercaps.models.registry import count_parameters, get_method
from hypercaps.pipeline.evaluate import run_metrics, side_by_side, with_other_split
from hypercaps.pipeline.evidence import with_areas, write_doubtful_labels
from hypercaps.pipeline.layers import LAYERS
from hypercaps.pipeline.map import make_map
from hypercaps.pipeline.requests import DEFAULT_RUN, SILENT, RunObserver, TrainRequest
from hypercaps.pipeline.run_files import RUN_FILES
from hypercaps.report.quicklook import LONGEST_SIDE
from hypercaps.selection.candidates import choose_candidates
from hypercaps.selection.choice import MOST_MEMBERS
from hypercaps.selection.settings import AUTO
from hypercaps.training.checkpoint_file import CheckpointFile
from hypercaps.training.loop import OnProgress, Progress
from hypercaps.training.scene_cache import SceneCache
from hypercaps.training.spec import TrainingSpec

if TYPE_CHECKING:
    from hypercaps.inference.model import TrainedModel
    from hypercaps.pipeline.report_files import Facts


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run."""

    classifier: ConvCapsClassifier
    metrics: RunMetrics
    out: Path
    mapped: bool  # False: no map was requested, or the user stopped it
    reported: bool = True  # False: the user stopped the report


def train_run(
    classifier: ConvCapsClassifier,
    scene: Scene,
    labels: Labels,
    out: Path,
    request: TrainRequest = DEFAULT_RUN,
    observer: RunObserver = SILENT,
    cache: SceneCache | None = None,
) -> RunResult:
    """Fit, score the test set, map the scene, and write everything into ``out``, or nothing.

    Ctrl-C during mapping skips the map only, and later the report only: the trained model is kept. A long training
    keeps a checkpoint in ``out`` until the run is finished. Raises Paused if the time budget ended before. ``cache``
    keeps what later runs on the same scene need as well.
    """
    labels.check_fits(scene)
    _check_budget(classifier, request)
    split = _check_can_calibrate(classifier, scene, labels, request)
    twin = _make_twin(classifier, scene, labels, request) if request.both else None
    needed = _bytes_needed(classifier, scene, labels, request)
    folder = RunFolder(out, RUN_FILES, force=request.force, resume=request.resume, needs_bytes=needed)
    with folder as staging, _checkpoint(out, request) as checkpoint:
        facts = _FactsBeside(classifier, scene, labels)
        on_training = _pausing(observer.on_training, request.budget, out)
        watched = FitObserver(observer.on_comparing, observer.on_candidate, facts.begin)
        classifier.fit(
            scene, labels, split, on_progress=on_training, observer=watched, checkpoint=checkpoint, cache=cache
        )
        metrics = run_metrics(classifier)
        if twin is not None and not classifier.history_.interrupted:
            metrics = _with_both(metrics, twin, scene, labels, observer, cache)
        classifier.save(staging / "model.safetensors")
        sha256 = file_sha256(staging / "model.safetensors")
        metrics = _with_origin(metrics, classifier, request, sha256)
        metrics = replace(metrics, doubtful=write_doubtful_labels(staging, classifier, scene))
        _write_training(staging, classifier, metrics)
        mapped = reported = False
        if request.with_map:
            files, on_progress = request.map.inside(staging), observer.on_mapping
            own = PreparedScene(scene, shift=SceneShift())  # the training scene differs in nothing from itself
            with suppress(KeyboardInterrupt):
                make_map(classifier, own, files, model_sha256=sha256, truth=labels, on_progress=on_progress)
                mapped = True
            files.partial.unlink(missing_ok=True)
        if mapped and all(part is None for part in (request.map.reject, request.map.unknown, request.map.mask)):
            metrics = with_areas(metrics, classifier, staging / "map.tif")
        write_json(staging / "metrics.json", metrics.to_json())
        with suppress(KeyboardInterrupt):
            _write_report(staging, facts.get(), labels.where_valid(scene))
            reported = True
    return RunResult(classifier, metrics, out, mapped=mapped, reported=reported)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


@contextmanager
def _checkpoint(out: Path, request: TrainRequest) -> Iterator[CheckpointFile]:
    """The checkpoint of a run; the run folder removes it at the end."""
    with CheckpointFile(out / CHECKPOINT, request.repeat, resume=request.resume) as checkpoint:
        try:
            yield checkpoint
        except (KeyboardInterrupt, Interrupted) as stopped:
            if checkpoint.keep_if_long():
                raise Interrupted(f"stopped: '{_resume_command(out)}' continues the training") from stopped
            raise


def _pausing(on_training: OnProgress | None, budget: float | None, out: Path) -> OnProgress | None:
    """The callback of a training that pauses after the epoch in which ``budget``, in minutes, ends."""
    if budget is None:
        return on_training
    deadline = time.monotonic() + 60 * budget

    def watch(now: Progress) -> None:
        if on_training is not None:
            on_training(now)
        has_epoch_ended = now.last is not None and now.last.epoch == now.epoch
        if has_epoch_ended and now.epoch < now.epochs and time.monotonic() >= deadline:
            raise Paused(
                f"the budget ended after epoch {now.epoch} of {now.epochs}: '{_resume_command(out)}' continues the "
                "training"
            )

    return watch


def _resume_command(out: Path) -> str:
    return f"hypercaps train --resume {shlex.quote(str(out))}"


# ---- before training -------------------------------------------------------------------------------------------------


def _check_budget(classifier: ConvCapsClassifier, request: TrainRequest) -> None:
    """Refuse a time budget of a training that can't pause."""
    if request.budget is None:
        return
    if classifier.split_by == "folds" or classifier.method == AUTO:
        raise ModelError("a training with folds does not pause after an epoch: leave the budget out")
    recipe = get_method(classifier.method).recipe(classifier.recipe)
    recipe.check_overrides(classifier.method, {"budget": request.budget})


def _check_can_calibrate(
    classifier: ConvCapsClassifier, scene: Scene, labels: Labels, request: TrainRequest
) -> Split | None:
    """Refuse options of the map that need validation pixels if there are none; the split, if it had to be drawn."""
    split = request.split
    if classifier.split_by == "folds" or classifier.method == AUTO:  # out-of-fold predictions calibrate
        return split
    for option in ("coverage", "reject"):
        if getattr(request.map, option) is None:
            continue
        if split is None:
            split = classifier.draw_split(labels.where_valid(scene), scene)
        if split.val.size == 0:
            if classifier.split_by == "none":
                raise SplitError(
                    f"--{option} needs calibrated probabilities, and --split none leaves no pixel to calibrate on: "
                    "leave one of them out, or use --split folds"
                )
            raise SplitError(
                f"--{option} needs validation pixels, to learn from them how far to trust a score, and there are none: "
                "set some aside (--val 0.1 or more, smaller blocks, or in the split's file)"
            )
    return split


def _make_twin(
    classifier: ConvCapsClassifier, scene: Scene, labels: Labels, request: TrainRequest
) -> tuple[ConvCapsClassifier, Split]:
    """The classifier that is trained by the other kind of split, and this split."""
    if request.split is not None or classifier.split_by not in ("random", "blocks"):
        kind = "file" if request.split is not None else classifier.split_by
        raise SplitError(f"a split of kind {kind!r} has no counterpart: both need --split random or --split blocks")
    return with_other_split(classifier, labels.where_valid(scene), block=classifier.block)


def _bytes_needed(classifier: ConvCapsClassifier, scene: Scene, labels: Labels, request: TrainRequest) -> int:
    """Upper estimate of the size of a run folder, to refuse a full disk before training and not after."""
    classes, labelled = len(labels.legend), int((labels.array > 0).sum())
    if classifier.method == AUTO:
        model = _average_bytes(classifier, scene.bands, classes, labelled)
    else:
        spec = TrainingSpec(classifier.method, classifier.recipe, classifier.patch, structure=classifier.structure)
        model = _model_bytes(spec, scene.bands, classes, labelled)
    model += stored_bytes(scene.bands, classes) + statistics_bytes(scene.bands)
    layers = [LAYERS[name] for name in request.map.files]
    of_pixel = sum(np.dtype(layer.dtype).itemsize * (classes if layer.per_class else 1) for layer in layers)
    # Three times: partial map, rasters and temporary files; the rest is the picture.
    maps = 3 * of_pixel * scene.rows * scene.cols + 1_000_000 if request.with_map else 0
    report = 12 * min(scene.rows * scene.cols, LONGEST_SIDE**2) + 200 * scene.bands * classes + 500_000
    return model + maps + 8 * labelled + report


def _average_bytes(classifier: ConvCapsClassifier, bands: int, classes: int, labelled: int) -> int:
    """Of the largest average that the candidates can make."""
    largest: dict[str, int] = {}  # by method: an average has each once
    for one in choose_candidates(classifier.candidates):
        with suppress(ModelError):  # needs more bands: the comparison leaves it out
            size = _model_bytes(one.spec(TrainingSpec()), bands, classes, labelled)
            largest[one.method] = max(size, largest.get(one.method, 0))
    return sum(sorted(largest.values())[-MOST_MEMBERS:])


def _model_bytes(spec: TrainingSpec, bands: int, classes: int, labelled: int) -> int:
    method = get_method(spec.method)
    network = method.blueprint(bands, classes, patch=spec.patch, structure=spec.structure)
    stored = method.recipe(spec.recipe).stored_bytes(labelled, network)
    return 4 * count_parameters(network) + 8 * bands * (bands + 3) + stored


# ---- metrics ---------------------------------------------------------------------------------------------------------


def _with_both(
    metrics: RunMetrics,
    twin: tuple[ConvCapsClassifier, Split],
    scene: Scene,
    labels: Labels,
    observer: RunObserver,
    cache: SceneCache | None,
) -> RunMetrics:
    """Train by the other split as well; Ctrl-C leaves its metrics out."""
    classifier, split = twin
    if observer.on_second is not None:
        observer.on_second(classifier.split_by)
    with suppress(KeyboardInterrupt, Interrupted):
        classifier.fit(scene, labels, split, on_progress=observer.on_training, cache=cache)
        return replace(metrics, both=side_by_side(metrics, run_metrics(classifier)))
    return metrics


def _with_origin(metrics: RunMetrics, classifier: ConvCapsClassifier, request: TrainRequest, sha256: str) -> RunMetrics:
    """Add what is needed to repeat the run."""
    model, default = classifier.model_, ConvCapsClassifier().get_params()
    return replace(
        metrics,
        command=request.command,
        inputs=request.inputs,
        params={name: value for name, value in classifier.get_params().items() if value != default[name]},
        versions=dict(model.versions),
        model_sha256=sha256,
        labels_digest=model.split.labels,
        coverage=request.map.coverage,
        reject=request.map.reject,
        unknown=request.map.unknown,
    )


# ---- files -----------------------------------------------------------------------------------------------------------


def _write_training(staging: Path, classifier: ConvCapsClassifier, metrics: RunMetrics) -> None:
    from hypercaps.pipeline.report_files import draw_training

    history, split = classifier.history_, classifier.split_
    write_csv(staging / "history.csv", ("epoch", "loss", "val_oa", "seconds", "stage"), history.records)
    folds = classifier.folds_ if split.kind == "folds" else None
    held_out = {} if folds is None else {"pixels": folds.units.pixels, "fold": folds.fold, "unit": folds.units.unit}
    write_npz(staging / "split.npz", train=split.train, val=split.val, test=split.test, **held_out)
    draw_training(staging, history.records, history.best_epoch, metrics.confidence)


def _write_report(staging: Path, facts: Facts, labels: Labels) -> None:
    from hypercaps.pipeline.report_files import write_report

    write_report(staging, facts, labels)


class _FactsBeside:
    """Finds what the report says of scene and classes in another thread, from the end of the training on.

    Band attribution takes a second on one core, and so does much of calibration, scores, pictures and rasters. The
    thread imports matplotlib as well. A model by torch is left alone until the facts are needed, because the last
    digits of its scores depend on torch's number of threads, which attribution sets.
    """

    def __init__(self, classifier: ConvCapsClassifier, scene: Scene, labels: Labels) -> None:
        self._classifier, self._scene, self._labels = classifier, scene, labels
        self._future: Future[Facts] | None = None

    def begin(self, model: TrainedModel) -> None:
        if all(member.compiled is not None for member in model.members):
            worker = ThreadPoolExecutor(1, thread_name_prefix="hypercaps-report")
            self._future = worker.submit(self._find, model)
            worker.shutdown(wait=False)

    def get(self) -> Facts:
        return self._find(self._classifier.model_) if self._future is None else self._future.result()

    def _find(self, model: TrainedModel) -> Facts:
        from hypercaps.pipeline.report_files import Facts

        return Facts.find(model, self._scene, self._labels.where_valid(self._scene), self._classifier.split_)
