"""Evaluate a trained model: on which pixels, by one or both kinds of split, and the metrics of it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data import splits
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.data.splits.request import WITHOUT_TEST
from hypercaps.errors import DataWarning, SplitError
from hypercaps.inference.metrics import Scores
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.models.protocols import Solvable
from hypercaps.pipeline.requests import SILENT, RunObserver


def run_metrics(classifier: ConvCapsClassifier) -> RunMetrics:
    """Metrics of a classifier after ``fit``."""
    model, history, split = classifier.model_, classifier.history_, classifier.split_
    scores, selection = getattr(classifier, "scores_", None), classifier.selection_
    metrics = _metrics(model, model.scene, scores, split)
    if split.kind == "folds" and selection is not None:
        metrics = replace(metrics, n_val=0, **vars(selection.facts()))
    return replace(
        metrics,
        baseline=classifier.baseline_,
        candidates=() if selection is None else selection.rows,
        train_seconds=history.seconds,
        best_epoch=history.best_epoch,
        epochs=len(history.records),
        interrupted=history.interrupted,
    )


def evaluation_metrics(model: TrainedModel, scene: Scene, scores: Scores, split: Split | None) -> RunMetrics:
    """Metrics of an evaluation; ``split`` is None if the model was trained on other labels."""
    return replace(_metrics(model, scene.name, scores, split), trained_on=model.scene)


def stored_metrics(model: TrainedModel, scene: Scene) -> RunMetrics | None:
    """The out-of-fold metrics of a model that was trained on all labels of this scene; None: its file has none."""
    if model.out_of_fold.get("scene_fingerprint") != scene.fingerprint():
        return None
    split, stored = model.split, RunMetrics.from_json(model.out_of_fold)
    return replace(
        stored,
        n_train=split.n_train,
        n_val=0,
        n_test=sum(map(sum, stored.confusion)),
        split="folds",
        block=split.block,
        trained_on=model.scene,
        **_model_facts(model, scene.name),
    )


def _metrics(model: TrainedModel, scene: str, scores: Scores | None, split: Split | None) -> RunMetrics:
    figures = RunMetrics(None, None, None) if scores is None else _score_figures(scores)
    return replace(
        figures,
        n_train=int(split.train.size) if split else None,
        n_val=int(split.val.size) if split else None,
        split=split.kind if split else None,
        block=split.how.block if split else None,
        leakage=split.with_patch(2 * model.halo + 1).leakage if split and split.test.size else None,
        **_model_facts(model, scene),
    )


def _score_figures(scores: Scores) -> RunMetrics:
    return RunMetrics(
        scores.oa,
        scores.aa,
        scores.kappa,
        scores.per_class,
        scores.confusion.tolist(),
        scores.confidence,
        scores.oa_interval,
        scores.aa_interval,
        scores.kappa_interval,
        n_test=scores.n_test,
    )


def _model_facts(model: TrainedModel, scene: str) -> dict[str, Any]:
    return {
        "patch": 2 * model.halo + 1,
        "parameters": model.parameters,
        "method": model.title,
        "recipe": None if model.partners else model.recipe.name,
        "pseudo_labelled": sum(member.recipe.extra or 0 for member in model.members),
        "seed": model.recipe.seed,
        "scene": scene,
    }


def evaluation_split(model: TrainedModel, scene: Scene, labels: Labels, split: Split | None = None) -> Split | None:
    """The split to evaluate with: ``split``, or the model's own if these are the labels it was trained on, or None.

    On those labels no training or validation pixel may be in the test set: the model's split is drawn again to check
    that, and if it can't be drawn, only the split file of its run is accepted.
    """
    if model.split.labels != labels.digest():
        return split
    if model.out_of_fold and model.out_of_fold["scene_fingerprint"] != scene.fingerprint():
        return split  # the same places in another scene
    if model.split.kind in WITHOUT_TEST:
        raise SplitError(
            "the model was trained on all of these labels, so that none is left to test it: evaluate it on other "
            "labels, or train with --split folds"
        )
    valid = labels.where_valid(scene)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # properties of the split, shown when the model was trained
        request = model.split.request(patch=model.patch)
        own = None if request is None else splits.draw(valid, request)
    if own is None or own.digest() != model.split.digest:
        if split is None or split.digest() != model.split.digest:
            raise SplitError(
                "the model was trained on pixels of these labels and its split can't be drawn again: name the "
                "split.npz of its run with --split-file"
            )
        return split
    if split is not None and np.isin(split.test, np.concatenate([own.train, own.val])).any():
        raise SplitError(
            "the test set of this split holds pixels that the model was trained or validated on: name the split.npz of "
            "its own run, or leave --split-file out"
        )
    return own if split is None or split.digest() == own.digest() else split


def check_both(model: TrainedModel, labels: Labels) -> None:
    """Refuse a model that can't be scored by both splits."""
    if model.split.labels != labels.digest():
        raise SplitError(
            "the model was trained on other labels than these: both splits can be compared only on the labels that the "
            "model was trained on"
        )
    if model.split.kind not in ("share", "per-class", "blocks"):
        raise SplitError(
            f"the model was trained by a split of kind {model.split.kind!r}, which has no counterpart: train it "
            "with --split random or --split blocks to compare both"
        )


def evaluate_both(
    classifier: ConvCapsClassifier, scene: Scene, labels: Labels, *, block: int = 16, observer: RunObserver = SILENT
) -> dict[str, RunMetrics]:
    """Metrics of a trained classifier by a random split and by blocks: ``{"random": metrics, "blocks": metrics}``.

    A model can be scored only on pixels that it was not trained on, so its own split gives one of the two. For the
    other, a second model is trained with the same recipe, shares and seed, and discarded.
    """
    model = classifier.model_
    check_both(model, labels)
    own = evaluation_split(model, scene, labels)
    # Sizes that the training itself determined are not part of the recipe.
    determined = model.network.found if isinstance(model.network, Solvable) else {}
    structure = {key: value for key, value in (classifier.structure or {}).items() if key not in determined}
    twin, split = with_other_split(classifier, labels.where_valid(scene), block=block)
    twin.set_params(structure=structure or None)
    scores = classifier.evaluate(scene, labels, own, observer.on_mapping)
    if observer.on_second is not None:
        observer.on_second(twin.split_by)
    twin.fit(scene, labels, split, on_progress=observer.on_training)
    return side_by_side(evaluation_metrics(model, scene, scores, own), run_metrics(twin))


def with_other_split(
    classifier: ConvCapsClassifier, labels: Labels, *, block: int = 16
) -> tuple[ConvCapsClassifier, Split]:
    """The same recipe, shares and seed with the other kind of split, random or blocks, which is drawn here.

    A split that can't be drawn is therefore refused before any training.
    """
    twin = ConvCapsClassifier(**classifier.get_params())
    if classifier.split_by == "blocks":
        twin.set_params(split_by="random")
    else:
        twin.set_params(split_by="blocks", block=block)
    return twin, twin.draw_split(labels)


def side_by_side(*metrics: RunMetrics) -> dict[str, RunMetrics]:
    """Metrics by kind of split, random first."""
    return {kind: of_split for kind in ("random", "blocks") for of_split in metrics if of_split.split == kind}
