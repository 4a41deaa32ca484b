"""Spectra and band attribution of the classes: the content of classes.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels, LegendEntry
from hypercaps.data.resampling import usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.inference.attribution import Deletion
from hypercaps.inference.explain import Explanation, can_explain, evenly, explain_pixels
from hypercaps.inference.model import TrainedModel
from hypercaps.report.figure import hex_color
from hypercaps.training.patches import read_pixels

MOST_PIXELS = 200  # whose spectra represent a class
MOST_EXPLAINED = 8  # of them: 0.02 s each

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Signature:
    """Mean spectrum of the labelled pixels of a class, and the attribution of its capsule in some of them."""

    entry: LegendEntry
    pixels: int  # number of spectra; 0: the class has no labelled pixel
    mean: Floats  # (bands,)
    spread: Floats  # (bands,): standard deviation
    explanation: Explanation | None  # None: no labelled pixel, or a method without capsules


def signatures(model: TrainedModel, scene: Scene, labels: Labels) -> list[Signature]:
    """Signatures of all classes, from up to 200 labelled pixels of each, spread evenly over the scene."""
    flat = labels.array.ravel()
    chosen = [evenly(np.flatnonzero(flat == entry.label), MOST_PIXELS) for entry in model.legend]
    all_pixels = np.sort(np.concatenate(chosen))
    spectra = np.empty((all_pixels.size, scene.bands))
    for at, read in read_pixels(scene, all_pixels):
        spectra[at] = read.values
    explainable = can_explain(model)
    signatures_found = []
    for entry, pixels in zip(model.legend, chosen, strict=True):
        own = spectra[np.searchsorted(all_pixels, pixels)]  # (N, bands)
        explanation = None
        if explainable and pixels.size:
            explained_pixels = np.stack(np.divmod(evenly(pixels, MOST_EXPLAINED), scene.cols), axis=1)  # (8, 2)
            explanation = explain_pixels(model, scene, explained_pixels, entry.label)
        mean, spread = (own.mean(axis=0), own.std(axis=0)) if pixels.size else (np.zeros(scene.bands),) * 2
        signatures_found.append(Signature(entry, int(pixels.size), mean, spread, explanation))
    return signatures_found


@dataclass(frozen=True)
class SceneRecord:
    """The scene in classes.json."""

    name: str
    rows: int
    cols: int
    bands: int
    picture: str  # caption of scene.png


@dataclass(frozen=True)
class ClassRecord:
    """A class in classes.json."""

    label: int
    name: str
    color: str  # "#rrggbb"
    pixels: int  # number of spectra behind the mean
    spectrum: list[float] | None  # None: no labelled pixel
    spread: list[float] | None
    explained: int | None  # number of pixels behind the attribution; None: not explained
    share: list[float] | None  # attribution of each band; absolute values add up to 1
    deletion: Deletion | None
    train: int  # number of pixels in each set of the split
    val: int
    test: int


@dataclass(frozen=True)
class ClassesRecord:
    """The content of classes.json; ``dataclasses.asdict`` gives the JSON."""

    wavelengths_nm: list[float] | None
    mean_spectrum: list[float]  # of the scene that the model was trained on
    classes: list[ClassRecord]
    scene: SceneRecord


def make_classes_record(model: TrainedModel, scene: Scene, labels: Labels, split: Split, caption: str) -> ClassesRecord:
    """Describe the classes of a run; ``caption`` is that of the scene's picture."""
    waves = usable_wavelengths(scene.wavelengths)
    flat, size = labels.array.ravel(), int(model.legend.labels.max()) + 1
    counts = [np.bincount(flat[part], minlength=size) for part in (split.train, split.val, split.test)]
    return ClassesRecord(
        wavelengths_nm=None if waves is None else waves.tolist(),
        mean_spectrum=model.preprocessing.mean.tolist(),
        classes=[
            _class_record(signature, [int(count[signature.entry.label]) for count in counts])
            for signature in signatures(model, scene, labels)
        ],
        scene=SceneRecord(scene.name, *scene.shape, caption),
    )


def _class_record(signature: Signature, counts: Sequence[int]) -> ClassRecord:
    explanation, entry = signature.explanation, signature.entry
    train, val, test = counts
    return ClassRecord(
        label=entry.label,
        name=entry.name,
        color=hex_color(entry.color),
        pixels=signature.pixels,
        spectrum=signature.mean.tolist() if signature.pixels else None,
        spread=signature.spread.tolist() if signature.pixels else None,
        explained=None if explanation is None else len(explanation.pixels),
        share=None if explanation is None else explanation.share.tolist(),
        deletion=None if explanation is None else explanation.deletion,
        train=train,
        val=val,
        test=test,
    )
