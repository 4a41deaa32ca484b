"""Model files: weights, preprocessing, legend, wavelengths, recipe, split and versions in one safetensors file.

The file holds arrays, and metadata as JSON. Reading it executes no code from it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from hypercaps.compute import native
from hypercaps.compute.devices import import_torch
from hypercaps.compute.tensors import tensors_digest
from hypercaps.data.labels import MAX_LABEL, Legend, LegendEntry
from hypercaps.data.splits import SplitDescription
from hypercaps.data.statistics import SceneStatistics
from hypercaps.errors import HypercapsError, MissingTorchError, ModelFileError
from hypercaps.inference.calibration import Calibration
from hypercaps.inference.familiarity import Familiarity
from hypercaps.inference.metrics import Json
from hypercaps.inference.model import TrainedModel
from hypercaps.io.detect import find_model
from hypercaps.io.writers.atomic import write_bytes
from hypercaps.models.capsules.compiled import CompiledConvCapsNet
from hypercaps.models.capsules.sizes import ConvCapsSizes
from hypercaps.models.descriptions import get_description
from hypercaps.models.history import TrainingRecord
from hypercaps.training.preprocessing import KINDS, kind_of

if TYPE_CHECKING:
    from torch import nn

Arrays = dict[str, npt.NDArray[Any]]

FORMAT_KEY = "hypercaps-model"  # the only metadata entry: safetensors writes several in no fixed order
FORMAT_VERSION = 3  # 3: averages of several networks
_WITHOUT_PARTNERS = 2
_NETWORK = "network."
_CALIBRATION = "calibration."
_OWN_CALIBRATION = "own_calibration."
_STATISTICS = "scene."  # older versions skip these arrays
_FAMILIARITY = "familiarity."  # and these
_COMPILED = "convcapsnet"  # the method that the compiled kernels compute completely
_VIEWPOINTS = "network.classcaps.viewpoints"


def write_model(path: Path, model: TrainedModel) -> None:
    """Write a model file, all or nothing."""
    arrays = _arrays(model)
    about = model.describe()
    # A version that does not know averages must not take the first network of one for the whole.
    version = FORMAT_VERSION if model.partners else _WITHOUT_PARTNERS
    header = {"format_version": version, "digest": tensors_digest(arrays, about), "description": about}
    metadata = {FORMAT_KEY: json.dumps(header)}
    write_bytes(path, safetensors.numpy.save(arrays, metadata=metadata))


def _arrays(model: TrainedModel) -> Arrays:
    """Everything of a model but its description; arrays of partners have a prefix."""
    arrays = {_NETWORK + key: value for key, value in _weights(model).items()}
    kind = kind_of(model.preprocessing)
    for part, array in model.preprocessing.arrays().items():
        arrays[f"{kind}.{part}"] = np.ascontiguousarray(array)
    for name, of_bands in (("wavelengths", model.wavelengths), ("fwhm", model.fwhm)):  # older versions skip fwhm
        if of_bands is not None:
            arrays[name] = np.ascontiguousarray(of_bands, dtype=np.float64)
    if model.statistics is not None:
        arrays |= {_STATISTICS + part: values for part, values in model.statistics.arrays().items()}
    if model.familiarity is not None:
        arrays |= {_FAMILIARITY + part: values for part, values in model.familiarity.arrays().items()}
    for prefix, calibration in ((_CALIBRATION, model.calibration), (_OWN_CALIBRATION, model.own_calibration)):
        if calibration is not None:
            arrays |= {prefix + part: values for part, values in calibration.arrays().items()}
    for number, partner in enumerate(model.partners):
        arrays |= {_partner(number) + key: array for key, array in _arrays(partner).items()}
    return arrays


def _weights(model: TrainedModel) -> Arrays:
    if isinstance(model.network, CompiledConvCapsNet):
        return dict(model.network.weights)
    return {key: value.cpu().contiguous().numpy() for key, value in model.network.state_dict().items()}


def _partner(number: int) -> str:
    return f"partner-{number}."


def read_model(path: Path) -> TrainedModel:
    """Read a model file, or that of a run folder; refuse anything but a complete hypercaps model."""
    path = find_model(path)
    try:
        with safetensors.safe_open(path, framework="np") as file:
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
        if header["format_version"] not in (1, _WITHOUT_PARTNERS, FORMAT_VERSION):
            raise ModelFileError(
                f"{path} has model format {header['format_version']} and this hypercaps reads up to {FORMAT_VERSION}: "
                "use the hypercaps that wrote it, or train again"
            )
        if header["digest"] != tensors_digest(arrays, header["description"]):
            raise ModelFileError(f"{path} is damaged or was altered: it is not as it was written; get it again")
        if header["format_version"] == 1 and _VIEWPOINTS in arrays:  # (n, a, e, c, d) in format 1
            arrays[_VIEWPOINTS] = np.ascontiguousarray(arrays[_VIEWPOINTS].transpose(3, 1, 0, 2, 4))
        return _assemble(header["description"], arrays)
    except (ModelFileError, MissingTorchError):
        raise
    except (HypercapsError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelFileError(
            f"{path} does not describe a model that can be built ({reason}): it was altered; train again"
        ) from error


def _assemble(about: Json, arrays: Arrays) -> TrainedModel:
    legend = Legend(tuple(_legend_entry(c) for c in about["classes"]))
    for part in ("structure", "recipe", "split", "scores", "versions"):
        if not isinstance(about[part], dict):
            raise TypeError(f"its {part} is not an object")
    bands, patch = _whole(about, "bands"), _whole(about, "patch")
    kind = about.get("preprocessing", "whitening")  # older files do not name it
    parts = {key.removeprefix(f"{kind}."): a for key, a in arrays.items() if key.startswith(f"{kind}.")}
    preprocessing = KINDS[kind](**parts)
    if preprocessing.bands != bands:
        raise ValueError(f"its {kind} is not for {bands} bands")
    weights = {key.removeprefix(_NETWORK): value for key, value in arrays.items() if key.startswith(_NETWORK)}
    network = _network(about["method"], (bands, len(legend), patch), about["structure"], weights)
    of_bands = {name: arrays[name] for name in ("wavelengths", "fwhm") if name in arrays}
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
        recipe=TrainingRecord.from_json(about["recipe"]),
        split=SplitDescription.from_json(about["split"]),
        scene=about["scene"],
        statistics=_statistics(arrays, bands),
        familiarity=_familiarity(arrays, bands),
        scores=about["scores"],
        out_of_fold=_object(about.get("out_of_fold", {})),
        versions=about["versions"],
        calibration=_calibration(about.get("calibration"), arrays, _CALIBRATION),
        partners=_partners(about, arrays, legend),
        weight=_weight(about.get("weight", 1.0)),
        own_calibration=_calibration(about.get("own_calibration"), arrays, _OWN_CALIBRATION),
    )


def _network(
    method: str, sizes: tuple[int, int, int], structure: Json, weights: Arrays
) -> nn.Module | CompiledConvCapsNet:
    """A network for so many bands and classes and this patch; without torch if the compiled kernels suffice."""
    if get_description(method).name == _COMPILED and native.available():
        return CompiledConvCapsNet(ConvCapsSizes(*sizes, **structure), weights)
    return _torch_network(method, sizes, structure, weights)


def _torch_network(method: str, sizes: tuple[int, int, int], structure: Json, weights: Arrays) -> nn.Module:
    if method == _COMPILED:
        what, instead = f"{method} without its compiled kernels", ", or a C compiler, and then hypercaps again"
    else:
        what, instead = f"a model of method {method}", ""
    torch = import_torch(what, instead)
    from hypercaps.models.registry import get_method

    bands, classes, patch = sizes
    # The blueprint allocates no memory: a file that claims huge sizes is refused without using any.
    network = get_method(method).blueprint(bands, classes, patch=patch, structure=structure)
    tensors = {key: torch.from_numpy(value) for key, value in weights.items()}
    for key, blank in network.state_dict().items():
        if key in tensors and tensors[key].dtype != blank.dtype:
            raise TypeError(f"its {key} holds {tensors[key].dtype} and not {blank.dtype}")
    network.load_state_dict(tensors, strict=True, assign=True)
    return network.eval()


def _statistics(arrays: Arrays, bands: int) -> SceneStatistics | None:
    parts = {key.removeprefix(_STATISTICS): a for key, a in arrays.items() if key.startswith(_STATISTICS)}
    if not parts:
        return None
    statistics = SceneStatistics(**parts)
    if statistics.mean.shape != (bands,):
        raise ValueError(f"the statistics of its training scene are not for {bands} bands")
    return statistics


def _familiarity(arrays: Arrays, bands: int) -> Familiarity | None:
    parts = {key.removeprefix(_FAMILIARITY): a for key, a in arrays.items() if key.startswith(_FAMILIARITY)}
    if not parts:
        return None
    familiarity = Familiarity.from_arrays(parts)
    if familiarity.bands != bands:
        raise ValueError(f"its familiarity is not for {bands} bands")
    return familiarity


def _partners(about: Json, arrays: Arrays, legend: Legend) -> tuple[TrainedModel, ...]:
    partners = []
    for number, described in enumerate(about.get("partners", ())):
        prefix = _partner(number)
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        partner = _assemble(described, own)
        if partner.legend != legend or partner.bands != about["bands"] or partner.partners:
            raise ValueError("a network of its average is not for the same classes and bands")
        if partner.own_calibration is None:
            raise ValueError("a network of its average is not calibrated")
        partners.append(partner)
    if partners:
        if about.get("own_calibration") is None:
            raise ValueError("its average is not calibrated")
        if not math.isclose(sum((one.weight for one in partners), _weight(about["weight"])), 1.0, abs_tol=1e-6):
            raise ValueError("the weights of its average do not add up to 1")
    return tuple(partners)


def _whole(about: Json, name: str) -> int:
    value: object = about[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"its {name} is {value!r}")
    return value


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("its out-of-fold metrics are not an object")
    return value


def _weight(value: object) -> float:
    if not (isinstance(value, float) and 0 < value <= 1):
        raise TypeError(f"its weight is {value!r}")
    return value


def _calibration(about: Json | None, arrays: Arrays, prefix: str) -> Calibration | None:
    """None for older files and for models without validation pixels."""
    if about is None:
        return None
    parts = {part: arrays[prefix + part] for part in ("at", "share", "conformity")}
    temperature, pixels = about["temperature"], about["pixels"]
    if not (isinstance(temperature, float) and isinstance(pixels, int)):
        raise TypeError("its calibration is not one")
    return Calibration(temperature, pixels, **parts, keeps_scores=about.get("kind") == "none")


def _legend_entry(entry: Json) -> LegendEntry:
    label, name, (r, g, b) = entry["label"], entry["name"], entry["color"]
    if not (isinstance(label, int) and 1 <= label <= MAX_LABEL and isinstance(name, str)):
        raise ValueError(f"its class {label!r} is not a class")
    if not all(isinstance(part, int) and 0 <= part <= 255 for part in (r, g, b)):
        raise ValueError(f"the colour of its class {label} is not a colour")
    return LegendEntry(label, name, (r, g, b))
