"""One run: train, evaluate, map, and the folder that holds it all."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hypercaps import splits
from hypercaps.classifier import ConvCapsClassifier
from hypercaps.errors import DataWarning, SplitError
from hypercaps.io.mapfiles import MapFiles, check_share
from hypercaps.io.runfolder import RunFolder
from hypercaps.io.write import file_sha256, write_bytes, write_csv, write_json, write_npz
from hypercaps.mapping import Mask, OnProgress
from hypercaps.maps import MEMORY, make_map
from hypercaps.metrics import Scores
from hypercaps.modelfile import TrainedModel
from hypercaps.models.registry import SolvedRecipe, count_parameters, get_method
from hypercaps.plots import curves_picture, reliability_picture
from hypercaps.scene import Labels, Scene
from hypercaps.splits import Split
from hypercaps.training import Progress


@dataclass(frozen=True)
class RunResult:
    """What a run ended with."""

    classifier: ConvCapsClassifier
    metrics: dict[str, Any]  # as in metrics.json
    out: Path
    mapped: bool  # False if no map was wanted, or the user stopped it


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
    memory: int = MEMORY,
    force: bool = False,
    on_training: Callable[[Progress], None] | None = None,
    on_mapping: OnProgress | None = None,
) -> RunResult:
    """Fit, score the test set, map the scene, or ``only`` part of it, and write it all into ``out``, or nothing.

    Ctrl-C while mapping gives up the map only: what was trained is worth keeping.
    """
    _check_can_calibrate(classifier, split, {"coverage": coverage, "reject": reject})
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
        classifier.save(staging / "model.safetensors")
        write_csv(staging / "history.csv", ("epoch", "loss", "val_oa", "seconds", "stage"), history.records)
        write_npz(staging / "split.npz", train=drawn.train, val=drawn.val, test=drawn.test)
        write_bytes(staging / "curves.png", curves_picture(history.records, history.best_epoch))
        write_bytes(staging / "reliability.png", reliability_picture(metrics))
        mapped = False
        if with_map:
            with suppress(KeyboardInterrupt):
                make_map(
                    classifier,
                    scene,
                    files,
                    model_sha256=file_sha256(staging / "model.safetensors"),
                    only=only,
                    memory=memory,
                    truth=labels,
                    on_progress=on_mapping,
                )
                mapped = True
            files.partial.unlink(missing_ok=True)
        write_json(staging / "metrics.json", metrics)
    return RunResult(classifier, metrics, out, mapped=mapped)


def _check_can_calibrate(
    classifier: ConvCapsClassifier, split: Split | None, asked: Mapping[str, float | None]
) -> None:
    """Refuse before training what a model without calibration could not say after it."""
    for option, value in asked.items():
        check_share(option, value)
        if value is not None and (classifier.val == 0 if split is None else split.val.size == 0):
            raise SplitError(
                f"--{option} needs validation pixels, to learn from them how far to trust a score, and there are none: "
                "set some aside (--val 0.1, or in the split's file)"
            )


def run_metrics(classifier: ConvCapsClassifier) -> dict[str, Any]:
    """metrics.json of a trained classifier."""
    model, history, split = classifier.model_, classifier.history_, classifier.split_
    return {
        **classifier.scores_.to_json(),
        "n_train": int(split.train.size),
        "n_val": int(split.val.size),
        "n_test": int(split.test.size),
        "split": split.kind,
        "block": split.how.get("block"),
        "leakage": split.leakage,
        "parameters": model.parameters,
        "train_seconds": history.seconds,
        "best_epoch": history.best_epoch,
        "epochs": len(history.records),
        "interrupted": history.interrupted,
        "seed": classifier.seed,
        "method": model.method,
        "recipe": model.recipe["name"],
        "scene": model.scene,
    }


def evaluation_split(model: TrainedModel, scene: Scene, labels: Labels, given: Split | None = None) -> Split | None:
    """The split to evaluate by: ``given``, or the model's own if these are the labels it was trained on, or None.

    On those labels, pixels that the model has learned from must not be in the test set: its split is drawn again
    to make sure, and where that is not possible the very split it was trained by is asked for.
    """
    if model.split.get("labels") != labels.digest():
        return given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the evaluation itself will say it
        own = splits.draw(labels.where_valid(scene), model.split, patch=model.patch)
    if own is None or own.digest() != model.split.get("digest"):
        if given is None or given.digest() != model.split.get("digest"):
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
        "block": split.how.get("block") if split else None,
        "leakage": split.leakage if split else None,
        "parameters": model.parameters,
        "method": model.method,
        "recipe": model.recipe.get("name"),
        "seed": model.recipe.get("seed"),
        "scene": scene.name,
        "trained_on": model.scene,
    }


def check_both(model: TrainedModel, labels: Labels) -> None:
    """Refuse a model that can't be scored by both splits."""
    if model.split.get("labels") != labels.digest():
        raise SplitError(
            "the model was trained on other labels than these: both splits can be compared only on the labels that the "
            "model was trained on"
        )
    if model.split.get("kind") not in ("share", "per-class", "blocks"):
        raise SplitError(
            f"the model was trained by a split of kind {model.split.get('kind')!r}, which has no counterpart: train it "
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
    other = "random" if model.split["kind"] == "blocks" else "blocks"
    twin = ConvCapsClassifier(**classifier.get_params()).set_params(split_by=other)
    if other == "blocks":
        twin.set_params(block=block)
    # What an earlier training found is not part of the recipe.
    found = getattr(model.network, "found", {})
    structure = {key: value for key, value in (classifier.structure or {}).items() if key not in found}
    twin.set_params(structure=structure or None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # fit says it once more
        twin.draw_split(labels.where_valid(scene))  # refused now, if at all, and not after the first score
    first = evaluation_metrics(model, scene, classifier.evaluate(scene, labels, own, on_mapping), own)
    on_start(other)
    twin.fit(scene, labels, on_progress=on_training)
    both = {own.kind if own else "": first, other: run_metrics(twin)}
    return {kind: both[kind] for kind in ("random", "blocks")}


def _bytes_needed(
    classifier: ConvCapsClassifier, scene: Scene, labels: Labels, with_map: bool, probabilities: bool
) -> int:
    """A generous guess of what a run writes, to refuse a full disk before training and not after."""
    method = get_method(classifier.method)
    network = method.blueprint(scene.bands, len(labels.legend), patch=classifier.patch, structure=classifier.structure)
    model = 4 * count_parameters(network) + 8 * scene.bands * (scene.bands + 3)
    if isinstance(method.recipe(classifier.recipe), SolvedRecipe):  # every labelled pixel may become a support vector
        model += 4 * int((labels.array > 0).sum()) * (scene.bands + len(labels.legend) ** 2)
    a_pixel = 6 + (4 * len(labels.legend) if probabilities else 0)
    maps = 3 * a_pixel * scene.rows * scene.cols + 1_000_000 if with_map else 0  # while they are made, and the picture
    indices = 8 * int((labels.array > 0).sum())
    return model + maps + indices + 200_000
