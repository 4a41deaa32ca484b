"""An average of models, and the scene that it is trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning
from hypercaps.inference.calibration import fit_temperature
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.scoring import calibrate, pixel_scores
from support.scenes import make_fields

WEIGHTS = (0.5, 0.3, 0.2)


def opened(bands: int = 26) -> tuple[Scene, Labels]:
    """50 rows and 53 columns, so that windows at the border are incomplete, with pixels without data."""
    cube, labels = make_fields(50, 53, bands, noise=120.0)
    cube[12:15, 14:19], cube[31, 31], cube[47:, :2] = np.nan, np.nan, np.nan
    labels[np.isnan(cube[..., 0])] = 0
    return Scene.from_array(cube, name="fields", wavelengths=np.arange(bands) * 10.0 + 400), Labels.from_array(labels)


def as_member(model: TrainedModel, weight: float, scene: Scene, labels: Labels) -> TrainedModel:
    pixels = np.flatnonzero(labels.array)
    truth = np.searchsorted(labels.legend.labels, labels.array.ravel()[pixels])
    own = fit_temperature(pixel_scores(model, scene, pixels), truth)
    return replace(model, weight=weight, own_calibration=own, calibration=None)


def make_average() -> tuple[TrainedModel, Scene, Labels]:
    """LDA on single pixels, LDA on patches of 5 and a network on patches of 7."""
    scene, labels = opened()
    trainings: list[dict[str, Any]] = [
        {"method": "lda"},
        {"method": "lda", "patch": 5},
        {"epochs": 1, "recipe": "paper"},
    ]
    with pytest.warns(DataWarning):
        fitted = [ConvCapsClassifier(**given).fit(scene, labels, evaluate=False) for given in trainings]
        members = [as_member(one.model_, w, scene, labels) for one, w in zip(fitted, WEIGHTS, strict=True)]
        whole = replace(members[0], partners=tuple(members[1:]))
        calibration = calibrate(whole, scene, labels, fitted[0].split_.val)
    assert calibration is not None
    return replace(whole, calibration=calibration), scene, labels
