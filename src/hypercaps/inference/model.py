"""TrainedModel: a network and everything needed to apply it to a scene."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from hypercaps.data.labels import Legend
from hypercaps.data.resampling import differences, resample, usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.data.splits import SplitDescription
from hypercaps.errors import ModelFileError
from hypercaps.inference.calibration import Calibration
from hypercaps.models.history import TrainingRecord
from hypercaps.models.registry import count_parameters, get_method
from hypercaps.training.preprocessing import Preprocessing, kind_of


@dataclass(frozen=True)
class TrainedModel:
    """A network, or what stands for one, and all that is needed to use it on a scene."""

    method: str
    patch: int
    structure: dict[str, Any]  # what was changed from the method's default sizes
    network: nn.Module
    preprocessing: Preprocessing  # what is done to spectra before the network sees them
    legend: Legend  # the trained classes: entry i belongs to output i
    wavelengths: npt.NDArray[np.float64] | None = None  # (bands,) nm
    fwhm: npt.NDArray[np.float64] | None = None  # (bands,) nm: how wide each band is at half of its height
    recipe: TrainingRecord = field(default_factory=TrainingRecord)  # how it was trained
    split: SplitDescription = field(default_factory=SplitDescription)  # what it was trained on
    scene: str = ""
    scores: dict[str, Any] = field(default_factory=dict)  # on the test set of that split
    versions: dict[str, str] = field(default_factory=dict)
    calibration: Calibration | None = None  # None: scores are as the network says them

    @property
    def bands(self) -> int:
        return self.preprocessing.bands

    @property
    def parameters(self) -> int:
        return count_parameters(self.network)

    def confidences(self, scores: Tensor) -> Tensor:
        """What the network says (..., n) as numbers from 0 to 1, the highest for the same class."""
        return get_method(self.method).confidence(scores)

    def calibrated(self, what_for: str) -> Calibration:
        """The calibration, or a refusal of what can't be had without one."""
        if self.calibration is None:
            raise ModelFileError(
                f"the model is not calibrated and {what_for} needs that: train it again with validation pixels (--val)"
            )
        return self.calibration

    def check_fits(self, scene: Scene) -> None:
        """Refuse a scene that the model can't be used on: with other bands or, where they are unknown, their number."""
        ours, theirs = usable_wavelengths(self.wavelengths), usable_wavelengths(scene.wavelengths)
        if ours is not None and theirs is not None:
            if found := differences(ours, theirs):
                raise ModelFileError(
                    f"the {scene.bands} bands of scene {scene.name!r} are not the {self.bands} of the model (trained "
                    f"on {self.scene!r}): {'; '.join(found)}; resample it to the model's bands (--resample, or "
                    "resampled() from Python), or train a model on this scene"
                )
        elif scene.bands != self.bands:
            raise ModelFileError(
                f"the model was trained on {self.bands} bands (scene {self.scene!r}) but scene {scene.name!r} has "
                f"{scene.bands}: use a scene of the same sensor and band list, or train a model on this one"
            )

    def resampled(self, scene: Scene) -> Scene:
        """The scene with the model's bands, by their widths where they are known; read by window, as before."""
        ours = usable_wavelengths(self.wavelengths)
        if ours is None:
            raise ModelFileError(
                f"the model does not know its wavelengths, since scene {self.scene!r} had none, and no scene can be "
                f"resampled to them: use one with its {self.bands} bands, or train it again with wavelengths"
            )
        return resample(scene, ours, self.fwhm)

    def describe(self) -> dict[str, Any]:
        """All but the arrays, as JSON takes it."""
        return {
            "method": self.method,
            "bands": self.bands,
            "patch": self.patch,
            "preprocessing": kind_of(self.preprocessing),
            "structure": self.structure,
            "parameters": self.parameters,
            "classes": [{"label": e.label, "name": e.name, "color": list(e.color)} for e in self.legend],
            "scene": self.scene,
            "recipe": self.recipe.to_json(),
            "split": self.split.to_json(),
            "scores": self.scores,
            "versions": self.versions,
            "calibration": None if self.calibration is None else self.calibration.describe(),
        }
