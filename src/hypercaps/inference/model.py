"""TrainedModel: a network and everything needed to apply it to a scene."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hypercaps.compute import native
from hypercaps.compute.devices import Device
from hypercaps.data.labels import Legend
from hypercaps.data.resampling import differences, resample, usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.data.splits import SplitDescription
from hypercaps.data.statistics import SceneStatistics
from hypercaps.errors import ModelFileError
from hypercaps.inference.calibration import Calibration
from hypercaps.inference.familiarity import Familiarity
from hypercaps.models.capsules.compiled import CompiledConvCapsNet
from hypercaps.models.descriptions import get_description
from hypercaps.models.history import TrainingRecord
from hypercaps.models.protocols import Compilable
from hypercaps.training.preprocessing import Preprocessing, kind_of

if TYPE_CHECKING:  # a capsule network classifies without torch
    from torch import Tensor, nn


@dataclass(frozen=True)
class TrainedModel:
    """A trained network (or support vector machine) and everything needed to apply it to a scene."""

    method: str
    patch: int
    structure: Mapping[str, object]  # sizes that differ from the method's defaults
    network: nn.Module | CompiledConvCapsNet  # see ``module`` and ``compiled``
    preprocessing: Preprocessing  # of spectra, before the network
    legend: Legend  # trained classes: entry i belongs to output i of the network
    wavelengths: npt.NDArray[np.float64] | None = None  # (bands,) nm
    fwhm: npt.NDArray[np.float64] | None = None  # (bands,) nm, full width at half maximum
    recipe: TrainingRecord = field(default_factory=TrainingRecord)  # how it was trained
    split: SplitDescription = field(default_factory=SplitDescription)  # what it was trained on
    scene: str = ""
    statistics: SceneStatistics | None = None  # of that scene; None: a file of an older version
    familiarity: Familiarity | None = None  # of ground to what was labelled; None: a file of an older version
    scores: Mapping[str, object] = field(default_factory=dict)  # on the test set of that split, or out of fold
    out_of_fold: Mapping[str, object] = field(default_factory=dict)  # all metrics, for a model trained on all labels
    versions: dict[str, str] = field(default_factory=dict)
    calibration: Calibration | None = None  # None: confidence is the network's raw score
    # An average: scores are the weighted sum of the calibrated scores of this network and of its partners.
    partners: tuple[TrainedModel, ...] = ()
    weight: float = 1.0  # of this network in the average
    own_calibration: Calibration | None = None  # of this network's scores before averaging

    @property
    def bands(self) -> int:
        return self.preprocessing.bands

    @property
    def parameters(self) -> int:
        return sum(member._own_parameters for member in self.members)

    @property
    def _own_parameters(self) -> int:
        if isinstance(self.network, CompiledConvCapsNet):
            return self.network.parameters
        return sum(parameter.numel() for parameter in self.network.parameters())

    @property
    def module(self) -> nn.Module:
        """The network for torch; refused where torch is missing."""
        return self.network.module if isinstance(self.network, CompiledConvCapsNet) else self.network

    @property
    def compiled(self) -> CompiledConvCapsNet | None:
        """The network for the compiled kernels alone; None: it needs torch, or its weights are on another device."""
        if isinstance(self.network, CompiledConvCapsNet):
            return self.network if native.available() else None
        return self.network.compiled() if isinstance(self.network, Compilable) else None

    @property
    def members(self) -> tuple[TrainedModel, ...]:
        """The models whose scores are averaged, each without partners; the model itself if it has none."""
        return (replace(self, partners=(), calibration=None), *self.partners) if self.partners else (self,)

    @property
    def halo(self) -> int:
        """Pixels around a window that its classification needs."""
        return max(member.patch for member in self.members) // 2

    @property
    def title(self) -> str:
        """The method, or the methods of an average, in words."""
        return _in_words([member.method for member in self.members])

    @property
    def heading(self) -> str:
        """As ``title``, with the methods' names in full and the side of patches that are not the usual ones, for
        pictures."""
        return _in_words([_full_name(member.method, member.patch) for member in self.members])

    def to(self, device: Device) -> TrainedModel:
        """The model on a device, and in the form that computes with its precision; networks of torch are moved."""
        if device.is_plain and isinstance(self.network, CompiledConvCapsNet) and native.available():
            network: nn.Module | CompiledConvCapsNet = self.network
        else:
            network = self.module.to(device.name)
        partners = tuple(partner.to(device) for partner in self.partners)
        is_same = network is self.network and all(map(operator.is_, partners, self.partners))
        return self if is_same else replace(self, network=network, partners=partners)

    def confidences(self, scores: Tensor) -> Tensor:
        """Output of the network (..., n) as scores from 0 to 1 in the same order of classes."""
        from hypercaps.models.registry import get_method

        return get_method(self.method).confidence(scores)

    def calibrated(self, what_for: str) -> Calibration:
        """The calibration; refuses ``what_for``, which needs one, if there is none."""
        if self.calibration is None:
            raise ModelFileError(
                f"the model is not calibrated and {what_for} needs that: train it again with validation pixels (--val)"
            )
        return self.calibration

    def familiar(self, what_for: str) -> Familiarity:
        """The familiarity; refuses ``what_for``, which needs it, if the model file is too old to have it."""
        if self.familiarity is None:
            raise ModelFileError(
                f"{what_for} needs to know what ground was labelled, which this model file is too old to tell: train "
                "it again"
            )
        return self.familiarity

    def check_fits(self, scene: Scene) -> None:
        """Refuse a scene with other wavelengths or, if wavelengths are unknown, another number of bands."""
        ours, theirs = usable_wavelengths(self.wavelengths), usable_wavelengths(scene.wavelengths)
        if ours is not None and theirs is not None:
            if differing := differences(ours, theirs):
                raise ModelFileError(
                    f"the {scene.bands} bands of scene {scene.name!r} are not the {self.bands} of the model (trained "
                    f"on {self.scene!r}): {'; '.join(differing)}; resample it to the model's bands (--resample, or "
                    "resampled() from Python; docs/resampling.md), or train a model on this scene"
                )
        elif scene.bands != self.bands:
            raise ModelFileError(
                f"the model was trained on {self.bands} bands (scene {self.scene!r}) but scene {scene.name!r} has "
                f"{scene.bands}: use a scene of the same sensor and band list, or train a model on this one"
            )

    def resampled(self, scene: Scene) -> Scene:
        """The scene resampled to the model's bands, with their widths if known; it is still read by windows."""
        ours = usable_wavelengths(self.wavelengths)
        if ours is None:
            raise ModelFileError(
                f"the model does not know its wavelengths, since scene {self.scene!r} had none, and no scene can be "
                f"resampled to them: use one with its {self.bands} bands, or train it again with wavelengths"
            )
        return resample(scene, ours, self.fwhm)

    def describe(self) -> dict[str, object]:
        """Everything but the arrays, as JSON."""
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
            **({"out_of_fold": self.out_of_fold} if self.out_of_fold else {}),
            **(self._describe_average() if self.weight != 1.0 else {}),
        }

    def _describe_average(self) -> dict[str, object]:
        assert self.own_calibration is not None
        return {
            "weight": self.weight,
            "own_calibration": self.own_calibration.describe(),
            "partners": [partner.describe() for partner in self.partners],
        }


def _full_name(method: str, patch: int) -> str:
    described = get_description(method)
    return described.title if patch == described.patch else f"{described.title} (patches of {patch} x {patch})"


def _in_words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"average of {', '.join(names[:-1])} and {names[-1]}"
