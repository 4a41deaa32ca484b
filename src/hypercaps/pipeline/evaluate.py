"""How a trained model is scored: by which pixels, by both kinds of split, and the figures that come of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data import splits
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.errors import DataWarning, SplitError
from hypercaps.inference.metrics import Scores
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import OnProgress
from hypercaps.models.protocols import Solvable
from hypercaps.training.loop import Progress


def run_metrics(classifier: ConvCapsClassifier) -> dict[str, Any]:
    """metrics.json of a trained classifier."""
    model, history, split = classifier.model_, classifier.history_, classifier.split_
    return {
        **classifier.scores_.to_json(),
        "n_train": int(split.train.size),
        "n_val": int(split.val.size),
        "n_test": int(split.test.size),
        "split": split.kind,
        "block": split.how.block,
        "leakage": split.leakage,
        "patch": model.patch,
        "parameters": model.parameters,
        "train_seconds": history.seconds,
        "best_epoch": history.best_epoch,
        "epochs": len(history.records),
        "interrupted": history.interrupted,
        "seed": classifier.seed,
        "method": model.method,
        "recipe": model.recipe.name,
        "pseudo_labelled": model.recipe.extra or 0,  # pixels of each epoch; only recipe best has any
        "scene": model.scene,
    }


def evaluation_split(model: TrainedModel, scene: Scene, labels: Labels, given: Split | None = None) -> Split | None:
    """The split to evaluate by: ``given``, or the model's own if these are the labels it was trained on, or None.

    On those labels, pixels that the model has learned from must not be in the test set: its split is drawn again
    to make sure, and where that is not possible the very split it was trained by is asked for.
    """
    if model.split.labels != labels.digest():
        return given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the evaluation itself will say it
        request = model.split.request(patch=model.patch)
        own = None if request is None else splits.draw(labels.where_valid(scene), request)
    if own is None or own.digest() != model.split.digest:
        if given is None or given.digest() != model.split.digest:
            raise SplitError(
                "the model was trained on pixels of these labels and its split can't be drawn again: name the "
                "split.npz of its run with --split-file"
            )
        return given
    if given is not None and np.isin(given.test, np.concatenate([own.train, own.val])).any():
        raise SplitError(
            "the test set of this split holds pixels that the model was trained or validated on: name the split.npz of "
            "its own run, or leave --split-file out"
        )
    return given or own


def evaluation_metrics(model: TrainedModel, scene: Scene, scores: Scores, split: Split | None) -> dict[str, Any]:
    """What ``hypercaps evaluate`` says, with the keys of metrics.json."""
    return {
        **scores.to_json(),
        "n_train": int(split.train.size) if split else None,  # None: not known for other labels
        "n_val": int(split.val.size) if split else None,
        "n_test": scores.n_test,
        "split": split.kind if split else None,
        "block": split.how.block if split else None,
        "leakage": split.leakage if split else None,
        "patch": model.patch,
        "parameters": model.parameters,
        "method": model.method,
        "recipe": model.recipe.name,
        "pseudo_labelled": model.recipe.extra or 0,
        "seed": model.recipe.seed,
        "scene": scene.name,
        "trained_on": model.scene,
    }


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
    classifier: ConvCapsClassifier,
    scene: Scene,
    labels: Labels,
    *,
    block: int = 16,
    on_start: Callable[[str], None] = lambda other: None,
    on_training: Callable[[Progress], None] | None = None,
    on_mapping: OnProgress | None = None,
) -> dict[str, dict[str, Any]]:
    """The scores of a trained classifier by a random split and by blocks: ``{"random": metrics, "blocks": metrics}``.

    A model can be scored only on pixels it has not learned from, so that its own split gives one of the two. For the
    other a second model is trained by the same recipe, shares and seed, and thrown away; ``on_start`` is told which.
    """
    model = classifier.model_
    check_both(model, labels)
    own = evaluation_split(model, scene, labels)
    # What an earlier training found is not part of the recipe.
    found = model.network.found if isinstance(model.network, Solvable) else {}
    structure = {key: value for key, value in (classifier.structure or {}).items() if key not in found}
    twin = with_other_split(classifier, scene, labels, block=block)
    twin.set_params(structure=structure or None)
    first = evaluation_metrics(model, scene, classifier.evaluate(scene, labels, own, on_mapping), own)
    on_start(twin.split_by)
    twin.fit(scene, labels, on_progress=on_training)
    return side_by_side(first, run_metrics(twin))


def with_other_split(
    classifier: ConvCapsClassifier, scene: Scene, labels: Labels, *, block: int = 16
) -> ConvCapsClassifier:
    """The same recipe, shares and seed by the other split: random for blocks, and blocks for random.

    A split that can't be drawn is refused here, and not after a training.
    """
    other = "random" if classifier.split_by == "blocks" else "blocks"
    twin = ConvCapsClassifier(**classifier.get_params())
    twin.set_params(split_by=other)
    if other == "blocks":
        twin.set_params(block=block)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # fit says it once more
        twin.draw_split(labels.where_valid(scene))
    return twin


def side_by_side(*metrics: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Two metrics by the names of their splits, random first."""
    return {kind: found for kind in ("random", "blocks") for found in metrics if found["split"] == kind}
