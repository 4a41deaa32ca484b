"""One self-contained file: weights, preprocessing, legend, wavelengths, recipe, split, versions.

A safetensors file: arrays, and metadata in JSON. Reading one runs nothing that is in it.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from hypercaps.calibration import Calibration
from hypercaps.errors import HypercapsError, ModelFileError
from hypercaps.io.write import write_bytes
from hypercaps.models.registry import count_parameters, get_method
from hypercaps.resampling import differences, known, resample
from hypercaps.scene import MAX_LABEL, Legend, LegendEntry, Scene
from hypercaps.whitening import KINDS, Preprocessing, kind_of

FORMAT_KEY = "hypercaps-model"  # the one metadata entry: safetensors writes several in no fixed order
FORMAT_VERSION = 2
_NETWORK = "network."
_CALIBRATION = "calibration."
_VIEWPOINTS = "network.classcaps.viewpoints"


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
    recipe: dict[str, Any] = field(default_factory=dict)  # how it was trained
    split: dict[str, Any] = field(default_factory=dict)  # what it was trained on
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
        ours, theirs = known(self.wavelengths), known(scene.wavelengths)
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
        ours = known(self.wavelengths)
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
            "recipe": self.recipe,
            "split": self.split,
            "scores": self.scores,
            "versions": self.versions,
            "calibration": None if self.calibration is None else self.calibration.describe(),
        }


def current_versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in ("hypercaps", "torch", "numpy")}


def write_model(path: Path, model: TrainedModel) -> None:
    """Write a model file, all or nothing."""
    arrays = {_NETWORK + key: value.cpu().contiguous() for key, value in model.network.state_dict().items()}
    kind = kind_of(model.preprocessing)
    for part, array in model.preprocessing.arrays().items():
        arrays[f"{kind}.{part}"] = torch.from_numpy(np.ascontiguousarray(array))
    for name, of_bands in (("wavelengths", model.wavelengths), ("fwhm", model.fwhm)):  # older readers skip the second
        if of_bands is not None:
            arrays[name] = torch.from_numpy(np.ascontiguousarray(of_bands, dtype=np.float64))
    if model.calibration is not None:
        for part, values in model.calibration.arrays().items():
            arrays[_CALIBRATION + part] = torch.from_numpy(values)
    about = model.describe()
    header = {"format_version": FORMAT_VERSION, "digest": _digest(arrays, about), "description": about}
    metadata = {FORMAT_KEY: json.dumps(header)}
    write_bytes(path, safetensors.torch.save(arrays, metadata=metadata))


def read_model(path: Path) -> TrainedModel:
    """Read a model file; anything but a whole hypercaps model is refused."""
    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}: give a run's model.safetensors")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} ({path.stat().st_size:,} bytes) is not a whole model file ({error}): it is truncated or of "
            "another kind; give a model.safetensors that hypercaps wrote"
        ) from error
    if FORMAT_KEY not in metadata:
        raise ModelFileError(
            f"{path} is a safetensors file but not a hypercaps model: give a model.safetensors that hypercaps wrote"
        )
    try:
        header = json.loads(metadata[FORMAT_KEY])
        if header["format_version"] not in (1, FORMAT_VERSION):
            raise ModelFileError(
                f"{path} has model format {header['format_version']} and this hypercaps reads up to {FORMAT_VERSION}: "
                "use the hypercaps that wrote it, or train again"
            )
        if header["digest"] != _digest(arrays, header["description"]):
            raise ModelFileError(f"{path} is damaged or was altered: it is not as it was written; get it again")
        if header["format_version"] == 1 and _VIEWPOINTS in arrays:  # (n, a, e, c, d) then
            arrays[_VIEWPOINTS] = arrays[_VIEWPOINTS].permute(3, 1, 0, 2, 4).contiguous()
        return _assemble(header["description"], arrays)
    except ModelFileError:
        raise
    except (HypercapsError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelFileError(
            f"{path} does not describe a model that can be built ({_first_line(error)}): it was altered; train again"
        ) from error


def _assemble(about: dict[str, Any], arrays: dict[str, Tensor]) -> TrainedModel:
    legend = Legend(tuple(_legend_entry(c) for c in about["classes"]))
    for part in ("structure", "recipe", "split", "scores", "versions"):
        if not isinstance(about[part], dict):
            raise TypeError(f"its {part} is not an object")
    bands, patch = int(about["bands"]), int(about["patch"])
    kind = about.get("preprocessing", "whitening")  # the only one when files did not name it
    parts = {key.removeprefix(f"{kind}."): a.numpy() for key, a in arrays.items() if key.startswith(f"{kind}.")}
    preprocessing = KINDS[kind](**parts)
    if preprocessing.bands != bands:
        raise ValueError(f"its {kind} is not for {bands} bands")
    # Weights are put into a blueprint: a description that lies about sizes costs nothing.
    network = get_method(about["method"]).blueprint(bands, len(legend), patch=patch, structure=about["structure"])
    weights = {key.removeprefix(_NETWORK): value for key, value in arrays.items() if key.startswith(_NETWORK)}
    for key, blank in network.state_dict().items():
        if key in weights and weights[key].dtype != blank.dtype:
            raise TypeError(f"its {key} holds {weights[key].dtype} and not {blank.dtype}")
    network.load_state_dict(weights, strict=True, assign=True)
    network.eval()
    of_bands = {name: arrays[name].numpy() for name in ("wavelengths", "fwhm") if name in arrays}
    for name, values in of_bands.items():
        if values.shape != (bands,) or values.dtype != np.float64:
            raise ValueError(f"its {name} are not for {bands} bands")
    return TrainedModel(
        method=about["method"],
        patch=patch,
        structure=about["structure"],
        network=network,
        preprocessing=preprocessing,
        legend=legend,
        wavelengths=of_bands.get("wavelengths"),
        fwhm=of_bands.get("fwhm"),
        recipe=about["recipe"],
        split=about["split"],
        scene=about["scene"],
        scores=about["scores"],
        versions=about["versions"],
        calibration=_calibration(about.get("calibration"), arrays),
    )


def _calibration(about: dict[str, Any] | None, arrays: dict[str, Tensor]) -> Calibration | None:
    """Older files and those of models without validation pixels have none."""
    if about is None:
        return None
    parts = {part: arrays[_CALIBRATION + part].numpy() for part in ("at", "share", "conformity")}
    temperature, pixels = about["temperature"], about["pixels"]
    if not (isinstance(temperature, float) and isinstance(pixels, int)):
        raise TypeError("its calibration is not one")
    return Calibration(temperature, pixels, **parts)


def _legend_entry(entry: dict[str, Any]) -> LegendEntry:
    label, name, (r, g, b) = entry["label"], entry["name"], entry["color"]
    if not (isinstance(label, int) and 1 <= label <= MAX_LABEL and isinstance(name, str)):
        raise ValueError(f"its class {label!r} is not a class")
    if not all(isinstance(part, int) and 0 <= part <= 255 for part in (r, g, b)):
        raise ValueError(f"the colour of its class {label} is not a colour")
    return LegendEntry(label, name, (r, g, b))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _digest(arrays: dict[str, Tensor], about: dict[str, Any]) -> str:
    """A fingerprint of the description and of the arrays' names, shapes and bytes: a flipped bit is noticed."""
    sha = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for key in sorted(arrays):
        array = arrays[key].detach().cpu().numpy()
        sha.update(f"{key} {array.dtype} {array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
