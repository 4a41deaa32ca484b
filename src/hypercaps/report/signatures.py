"""The classes of a scene by their spectra, and what the network listened to in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels, LegendEntry
from hypercaps.data.resampling import usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.inference.explain import Explanation, can_explain, evenly, explain_pixels
from hypercaps.inference.model import TrainedModel
from hypercaps.training.patches import read_pixels

MOST_PIXELS = 200  # whose spectra stand for a class
MOST_EXPLAINED = 8  # of them: a fiftieth of a second each

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Signature:
    """One class: the mean spectrum of its labelled pixels, and what its capsule listened to in some of them."""

    entry: LegendEntry
    pixels: int  # that the mean is of; 0: the class has no labelled pixel
    mean: Floats  # (bands,)
    spread: Floats  # (bands,): standard deviation
    heard: Explanation | None  # None: nothing to ask, or a method without capsules

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.entry.label,
            "name": self.entry.name,
            "color": "#{:02x}{:02x}{:02x}".format(*self.entry.color),
            "pixels": self.pixels,
            "spectrum": self.mean.tolist() if self.pixels else None,
            "spread": self.spread.tolist() if self.pixels else None,
            "explained": None if self.heard is None else len(self.heard.pixels),
            "share": None if self.heard is None else self.heard.share.tolist(),
            "deletion": None if self.heard is None else self.heard.deletion._asdict(),
        }


def signatures(model: TrainedModel, scene: Scene, labels: Labels) -> list[Signature]:
    """Of every class of the model, by up to 200 labelled pixels evenly over the scene."""
    flat = labels.array.ravel()
    chosen = [evenly(np.flatnonzero(flat == entry.label), MOST_PIXELS) for entry in model.legend]
    every = np.sort(np.concatenate(chosen))
    spectra = np.empty((every.size, scene.bands))
    for at, read in read_pixels(scene, every):
        spectra[at] = read.values
    asked = can_explain(model)
    found = []
    for entry, pixels in zip(model.legend, chosen, strict=True):
        own = spectra[np.searchsorted(every, pixels)]  # (N, bands)
        heard = None
        if asked and pixels.size:
            some = np.stack(np.divmod(evenly(pixels, MOST_EXPLAINED), scene.cols), axis=1)
            heard = explain_pixels(model, scene, some, entry.label)
        mean, spread = (own.mean(axis=0), own.std(axis=0)) if pixels.size else (np.zeros(scene.bands),) * 2
        found.append(Signature(entry, int(pixels.size), mean, spread, heard))
    return found


def describe(found: list[Signature], model: TrainedModel, scene: Scene) -> dict[str, Any]:
    """For JSON: all of them, and what they are to be drawn against."""
    waves = usable_wavelengths(scene.wavelengths)
    return {
        "wavelengths_nm": None if waves is None else waves.tolist(),
        "mean_spectrum": model.preprocessing.mean.tolist(),
        "classes": [signature.to_json() for signature in found],
    }
