"""TaskRunner: trainings, maps, scores and exports in the worker process, by the functions that the commands use."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hypercaps.classifier import ConvCapsClassifier, FitObserver
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window
from hypercaps.errors import DataWarning, HypercapsError, SplitError
from hypercaps.inference.explain import explain_at
from hypercaps.inference.familiarity_fit import fit_familiarity
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import MappedWindow
from hypercaps.inference.suggest import suggest
from hypercaps.io.open import open_labels
from hypercaps.io.writers.atomic import write_json, write_npz
from hypercaps.loading import load_model
from hypercaps.models.descriptions import DESCRIPTIONS
from hypercaps.pipeline.evaluate import run_metrics
from hypercaps.pipeline.evidence import find_doubtful_labels
from hypercaps.pipeline.map import pixels_within
from hypercaps.pipeline.requests import MapRequest, RunObserver, TrainRequest
from hypercaps.pipeline.train import train_run
from hypercaps.selection.fit import fit_model
from hypercaps.selection.out_of_fold import FoldProblem
from hypercaps.selection.settings import AUTO
from hypercaps.selection.settings import Settings as Parameters
from hypercaps.training.loop import Progress
from hypercaps.training.scene_cache import SceneCache
from hypercaps.workbench.map_store import as_byte, writable_map
from hypercaps.workbench.map_windows import windows_around
from hypercaps.workbench.scores import score_json
from hypercaps.workbench.trainings import DOUBTFUL, HELD_OUT, MODEL, SUGGESTIONS
from hypercaps.workbench.worker_messages import ExplainQuery, ExportTask, TrainTask, View

if TYPE_CHECKING:
    from hypercaps.workbench.worker import Worker

_SIDE = 128  # of the windows that are mapped, in pixels
_SUGGESTED = 500  # of these a user may be able to tell few: most lie between the fields
_SCORED_WINDOWS = 24  # whose scores are kept for suggestions
_DOUBTFUL = 1000
_NO_SCORE = (
    "There is no score yet: no class has two areas, of which one could be held out. Paint more of each class elsewhere."
)


class TaskRunner:
    """Carries out tasks on one scene, which stays open."""

    def __init__(self, scene: Scene, worker: Worker) -> None:
        self._scene, self._worker = scene, worker
        self._cache = SceneCache(scene)  # what the next training need not compute again
        self._explained: tuple[Path, TrainedModel] | None = None
        self._fitted: tuple[str, ConvCapsClassifier] | None = None  # the last training that was scored

    def warm_up(self) -> None:
        """Train on a few numbers, so that the first training need not wait for libraries that are imported by it."""
        spectra = np.random.default_rng(0).random((8, 8, 30)).astype(np.float32)
        labels = Labels.from_array(np.repeat([1, 2], 32).reshape(8, 8))
        classifier = ConvCapsClassifier(recipe="paper", split_by="none", epochs=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier.fit(Scene.from_array(spectra), labels, evaluate=False)

    # ---- training ----------------------------------------------------------------------------------------------------

    def train(self, task: TrainTask) -> dict[str, Any]:
        """Train and map. With folds and a named method, the map comes before the scores."""
        started = time.monotonic()
        labels = self._open_labels(task)
        _check_classes(labels)
        task = self._with_possible_split(task, labels)
        classifier = ConvCapsClassifier(**task.settings.parameters())
        can_preview = task.settings.split == "folds" and task.settings.method != AUTO
        if can_preview:
            preview = self._train_final(classifier, labels)
            scored = self._map(task, preview)
            seconds = time.monotonic() - started
            # Before pages are told, so that they can ask for points.
            self._suggest(task, scored, preview.model_, labels)
            self._worker.report("mapped", seconds=seconds)
        on_training = self._on_scoring if can_preview else self._on_training
        observer = FitObserver(self._on_comparing)
        classifier.fit(self._scene, labels, on_progress=on_training, observer=observer, cache=self._cache)
        self._check_not_interrupted(classifier)
        classifier.save(task.folder / MODEL)
        self._fitted = task.id, classifier
        self._keep_scores(task, classifier)
        scored = self._map(task, classifier)
        self._suggest(task, scored, classifier.model_, labels)
        return {"seconds": time.monotonic() - started}

    def _open_labels(self, task: TrainTask | ExportTask) -> Labels:
        """The labels as the command line would open them; warnings about our own file tell the user nothing."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            return open_labels(task.labels, scene=self._scene, class_field=task.class_field)

    def _with_possible_split(self, task: TrainTask, labels: Labels) -> TrainTask:
        """Without folds if the labels have none yet: the first strokes of a project make a map, but no score."""
        if task.settings.split != "folds" or task.settings.method == AUTO:
            return task
        try:
            settings = Parameters(**ConvCapsClassifier(**task.settings.parameters()).get_params(deep=False))
            settings.draw_split(labels.where_valid(self._scene), self._scene)
        except SplitError:
            self._worker.report("unscored", text=_NO_SCORE)
            return replace(task, settings=replace(task.settings, split="none"))
        return task

    def _train_final(self, classifier: ConvCapsClassifier, labels: Labels) -> ConvCapsClassifier:
        """The model that ``fit`` will keep, without calibration: the training on all labels that it ends with."""
        settings = Parameters(**classifier.get_params(deep=False))
        settings.check()
        valid = labels.where_valid(self._scene)
        split = settings.draw_split(valid, self._scene)
        folds = settings.draw_folds(self._scene, valid, split)
        assert folds is not None
        problem = FoldProblem(self._cache, valid, folds)
        job = settings.spec.job(self._scene, valid, split, problem.unit_of_pixel)
        fitted = fit_model(job, cache=self._cache, on_progress=self._on_training)
        known = fit_familiarity(self._cache, valid, split, folds, classifier.seed)
        preview = ConvCapsClassifier(**classifier.get_params(deep=False))
        preview.model_ = replace(fitted.model, familiarity=known)
        return preview

    def _check_not_interrupted(self, classifier: ConvCapsClassifier) -> None:
        if classifier.history_.interrupted:
            raise HypercapsError("the training was interrupted")

    def _on_training(self, now: Progress) -> None:
        self._tell_epoch("Training on all labels", now)

    def _on_scoring(self, now: Progress) -> None:
        self._tell_epoch("Scoring: final training", now)

    def _tell_epoch(self, stage: str, now: Progress) -> None:
        validation = None if now.last is None or now.last.val_oa is None else now.last.val_oa / 100
        self._worker.progress(stage=stage, epoch=now.epoch, epochs=now.epochs, validation=validation, done=now.done)

    def _on_comparing(self, name: str, fold: int, folds: int, done: int, total: int) -> None:
        method = DESCRIPTIONS[name].title if name in DESCRIPTIONS else name
        stage = f"Scoring held-out areas: {method}, fold {fold} of {folds}"
        self._worker.progress(stage=stage, epoch=done, epochs=total, validation=None, done=done / max(total, 1))

    # ---- scores ------------------------------------------------------------------------------------------------------

    def _keep_scores(self, task: TrainTask, classifier: ConvCapsClassifier) -> None:
        metrics = run_metrics(classifier)
        held = self._held_out(classifier)
        write_npz(task.folder / HELD_OUT, **held)
        write_json(task.folder / DOUBTFUL, self._doubtful(classifier))
        self._worker.report("scored", score=score_json(metrics, classifier.legend_))

    def _held_out(self, classifier: ConvCapsClassifier) -> dict[str, Any]:
        """The pixels that were scored, their class and the predicted one."""
        selection, numbers = classifier.selection_, classifier.legend_.labels
        if classifier.split_.kind == "folds" and selection is not None:
            problem = selection.problem
            predicted = selection.final.raw.argmax(axis=1)
            return {"pixels": problem.pixels, "truth": numbers[problem.truth], "predicted": numbers[predicted]}
        none = np.empty(0, dtype=np.int64)
        return {"pixels": none, "truth": none, "predicted": none, "test": classifier.split_.test}

    def _doubtful(self, classifier: ConvCapsClassifier) -> list[dict[str, Any]]:
        if classifier.split_.kind != "folds" or classifier.selection_ is None:
            return []
        return [
            {
                "row": one.row,
                "col": one.col,
                "label": one.given.label,
                "predicted": one.predicted.label,
                "confidence": round(one.doubt, 4),
            }
            for one in find_doubtful_labels(classifier.selection_)[:_DOUBTFUL]
        ]

    # ---- map ---------------------------------------------------------------------------------------------------------

    def _map(self, task: TrainTask, classifier: ConvCapsClassifier) -> list[MappedWindow]:
        """Fill the map of the task, from the middle of the view outwards; some windows with scores, for suggestions."""
        scene = self._scene
        target = writable_map(task.folder, scene.shape[:2])
        windows = self._windows(classifier, task.memory)
        kept = set(windows[:: max(1, len(windows) // _SCORED_WINDOWS)])
        scored: list[MappedWindow] = []
        total, done = scene.rows * scene.cols, 0
        has_familiarity = classifier.model_.familiarity is not None
        ordered = self._outwards(windows)
        for at in ordered:  # one by one: the view may move meanwhile
            (mapped,) = classifier.map_windows(
                scene, [at], with_scores=True, raw=True, with_familiarity=has_familiarity
            )
            target[at.rows, at.cols] = _as_bytes(mapped)
            if at in kept:
                scored.append(mapped)
            done += (at.r1 - at.r0) * (at.c1 - at.c0)
            self._worker.report("windows", windows=[tuple(at)], done=done / total)
            self._worker.progress(stage="Mapping", epoch=None, epochs=None, validation=None, done=done / total)
        target.flush()
        return scored

    def _windows(self, classifier: ConvCapsClassifier, memory: int) -> list[Window]:
        """Windows of whole tiles around the view, within the memory."""
        side = _SIDE
        while side > 2 * TILE and (side + 2 * classifier.model_.halo) ** 2 > pixels_within(
            memory, classifier, self._scene
        ):
            side //= 2
        view = self._worker.view
        return windows_around(self._scene.whole, None if view is None else Window(*view), side)

    def _outwards(self, windows: list[Window]) -> Iterator[Window]:
        """The windows of the view, from its middle outwards, and then the others; the view may move meanwhile."""
        left = list(windows)
        ordered: View | bool | None = False
        while left:
            if self._worker.view != ordered:
                ordered = self._worker.view
                center = Window(*ordered) if ordered else self._scene.whole
                left.sort(key=lambda at: _distance(at, center), reverse=True)
            yield left.pop()

    def _suggest(self, task: TrainTask, scored: list[MappedWindow], model: TrainedModel, labels: Labels) -> None:
        """Write the points suggested for labelling."""
        try:
            points = suggest(scored, model.legend, _SUGGESTED, labelled=labels.array > 0, name=self._scene.name)
        except HypercapsError:  # nothing is left
            points = []
        rows = [
            {
                "row": point.row,
                "col": point.col,
                "first": {"id": point.first.label, "confidence": round(point.confidence, 4)},
                "second": {"id": point.second.label},  # without a confidence: only the first one's is calibrated
            }
            for point in points
        ]
        write_json(task.folder / SUGGESTIONS, rows)

    # ---- explain and export ------------------------------------------------------------------------------------------

    def explain(self, query: ExplainQuery) -> dict[str, Any]:
        """Band attribution for the class of a pixel."""
        if self._explained is None or self._explained[0] != query.model:
            self._explained = query.model, load_model(query.model).model_
        model = self._explained[1]
        explanation = explain_at(model, self._scene, query.row, query.col)
        return {"class": explanation.entry.label, "bands": explanation.relevance.tolist()}

    def export(self, task: ExportTask) -> dict[str, Any]:
        """Train as ``hypercaps train`` does, and write its run folder."""
        labels = self._open_labels(task)
        request = TrainRequest(map=MapRequest(memory=task.memory), command=task.command, inputs=task.inputs, force=True)
        observer = RunObserver(
            on_training=lambda now: self._tell_epoch("Exporting: training", now),
            on_mapping=lambda done, total: self._worker.progress(
                stage="Exporting: map", epoch=None, epochs=None, validation=None, done=done / max(total, 1)
            ),
            on_comparing=self._on_comparing,
        )
        train_run(self._classifier(task), self._scene, labels, task.out, request, observer)
        return {}

    def _classifier(self, task: ExportTask) -> ConvCapsClassifier:
        """The classifier of the training, if it is still in memory, or a new one to be trained again."""
        parameters = task.settings.parameters()
        if self._fitted is None or self._fitted[0] != task.id:
            return ConvCapsClassifier(**parameters)
        fitted = _Fitted(**parameters)
        fitted.__dict__.update(self._fitted[1].__dict__)
        return fitted


def _distance(at: Window, view: Window) -> tuple[bool, int]:
    """Whether a window lies outside of the view, and how far from its middle."""
    outside = at.r1 <= view.r0 or at.r0 >= view.r1 or at.c1 <= view.c0 or at.c0 >= view.c1
    down, across = at.r0 + at.r1 - view.r0 - view.r1, at.c0 + at.c1 - view.c0 - view.c1
    return outside, down**2 + across**2


class _Fitted(ConvCapsClassifier):
    """A classifier whose training is done: another one would give the same bits."""

    def fit(self, *_: Any, **__: Any) -> ConvCapsClassifier:
        return self


def _as_bytes(mapped: MappedWindow) -> npt.NDArray[np.uint8]:
    """(h, w, 3) class, confidence and familiarity."""
    shape = (mapped.classes.shape[0], mapped.classes.shape[1])
    layers = (as_byte(mapped.confidence, shape), as_byte(mapped.familiarity, shape))
    return np.stack([mapped.classes.astype(np.uint8), *layers], axis=2)


def _check_classes(labels: Labels) -> None:
    if len(labels.legend) < 2:
        raise HypercapsError(f"only {labels.legend.entries[0].name} is labelled: a training needs two classes or more")
