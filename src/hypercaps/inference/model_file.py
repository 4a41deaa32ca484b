"""Model files: weights, preprocessing, legend, wavelengths, recipe, split and versions in one safetensors file.

The file holds arrays, and metadata as JSON. Reading it executes no code from it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hypercaps.data.labels import MAX_LABEL, Legend, LegendEntry
from hypercaps.data.splits import SplitDescription
from hypercaps.errors import HypercapsError, ModelFileError
from hypercaps.inference.calibration import Calibration
from hypercaps.inference.metrics import Json
from hypercaps.inference.model import TrainedModel
from hypercaps.io.writers.atomic import write_bytes
from hypercaps.models.history import TrainingRecord
from hypercaps.models.registry import get_method
from hypercaps.training.preprocessing import KINDS, kind_of

FORMAT_KEY = "hypercaps-model"  # the only metadata entry: safetensors writes several in no fixed order
FORMAT_VERSION = 3  # 3: averages of several networks
_WITHOUT_PARTNERS = 2
_NETWORK = "network."
_CALIBRATION = "calibration."
_OWN_CALIBRATION = "own_calibration."
_VIEWPOINTS = "network.classcaps.viewpoints"


def write_model(path: Path, model: TrainedModel) -> None:
    """Write a model file, all or nothing."""
    arrays = _arrays(model)
    about = model.describe()
    # A version that does not know averages must not take the first network of one for the whole.
    version = FORMAT_VERSION if model.partners else _WITHOUT_PARTNERS
    header = {"format_version": version, "digest": _digest(arrays, about), "description": about}
    metadata = {FORMAT_KEY: json.dumps(header)}
    write_bytes(path, safetensors.torch.save(arrays, metadata=metadata))


def _arrays(model: TrainedModel) -> dict[str, Tensor]:
    """Everything of a model but its description; arrays of partners have a prefix."""
    arrays = {_NETWORK + key: value.cpu().contiguous() for key, value in model.network.state_dict().items()}
    kind = kind_of(model.preprocessing)
    for part, array in model.preprocessing.arrays().items():
        arrays[f"{kind}.{part}"] = torch.from_numpy(np.ascontiguousarray(array))
    for name, of_bands in (("wavelengths", model.wavelengths), ("fwhm", model.fwhm)):  # older versions skip fwhm
        if of_bands is not None:
            arrays[name] = torch.from_numpy(np.ascontiguousarray(of_bands, dtype=np.float64))
    for prefix, calibration in ((_CALIBRATION, model.calibration), (_OWN_CALIBRATION, model.own_calibration)):
        if calibration is not None:
            arrays |= {prefix + part: torch.from_numpy(values) for part, values in calibration.arrays().items()}
    for number, partner in enumerate(model.partners):
        # Copies: members of an average share arrays such as the wavelengths, which safetensors refuses.
        arrays |= {_partner(number) + key: array.clone() for key, array in _arrays(partner).items()}
    return arrays


def _partner(number: int) -> str:
    return f"partner-{number}."


def read_model(path: Path) -> TrainedModel:
    """Read a model file; refuse anything but a complete hypercaps model."""
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
        if header["format_version"] not in (1, _WITHOUT_PARTNERS, FORMAT_VERSION):
            raise ModelFileError(
                f"{path} has model format {header['format_version']} and this hypercaps reads up to {FORMAT_VERSION}: "
                "use the hypercaps that wrote it, or train again"
            )
        if header["digest"] != _digest(arrays, header["description"]):
            raise ModelFileError(f"{path} is damaged or was altered: it is not as it was written; get it again")
        if header["format_version"] == 1 and _VIEWPOINTS in arrays:  # (n, a, e, c, d) in format 1
            arrays[_VIEWPOINTS] = arrays[_VIEWPOINTS].permute(3, 1, 0, 2, 4).contiguous()
        return _assemble(header["description"], arrays)
    except ModelFileError:
        raise
    except (HypercapsError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelFileError(
            f"{path} does not describe a model that can be built ({reason}): it was altered; train again"
        ) from error


def _assemble(about: Json, arrays: dict[str, Tensor]) -> TrainedModel:
    legend = Legend(tuple(_legend_entry(c) for c in about["classes"]))
    for part in ("structure", "recipe", "split", "scores", "versions"):
        if not isinstance(about[part], dict):
            raise TypeError(f"its {part} is not an object")
    bands, patch = int(about["bands"]), int(about["patch"])
    kind = about.get("preprocessing", "whitening")  # older files do not name it
    parts = {key.removeprefix(f"{kind}."): a.numpy() for key, a in arrays.items() if key.startswith(f"{kind}.")}
    preprocessing = KINDS[kind](**parts)
    if preprocessing.bands != bands:
        raise ValueError(f"its {kind} is not for {bands} bands")
    # The blueprint allocates no memory: a file that claims huge sizes is refused without using any.
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
        recipe=TrainingRecord.from_json(about["recipe"]),
        split=SplitDescription.from_json(about["split"]),
        scene=about["scene"],
        scores=about["scores"],
        out_of_fold=_object(about.get("out_of_fold", {})),
        versions=about["versions"],
        calibration=_calibration(about.get("calibration"), arrays, _CALIBRATION),
        partners=_partners(about, arrays, legend),
        weight=_weight(about.get("weight", 1.0)),
        own_calibration=_calibration(about.get("own_calibration"), arrays, _OWN_CALIBRATION),
    )


def _partners(about: Json, arrays: dict[str, Tensor], legend: Legend) -> tuple[TrainedModel, ...]:
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


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("its out-of-fold metrics are not an object")
    return value


def _weight(value: object) -> float:
    if not (isinstance(value, float) and 0 < value <= 1):
        raise TypeError(f"its weight is {value!r}")
    return value


def _calibration(about: Json | None, arrays: dict[str, Tensor], prefix: str) -> Calibration | None:
    """None for older files and for models without validation pixels."""
    if about is None:
        return None
    parts = {part: arrays[prefix + part].numpy() for part in ("at", "share", "conformity")}
    temperature, pixels = about["temperature"], about["pixels"]
    if not (isinstance(temperature, float) and isinstance(pixels, int)):
        raise TypeError("its calibration is not one")
    return Calibration(temperature, pixels, **parts)


def _legend_entry(entry: Json) -> LegendEntry:
    label, name, (r, g, b) = entry["label"], entry["name"], entry["color"]
    if not (isinstance(label, int) and 1 <= label <= MAX_LABEL and isinstance(name, str)):
        raise ValueError(f"its class {label!r} is not a class")
    if not all(isinstance(part, int) and 0 <= part <= 255 for part in (r, g, b)):
        raise ValueError(f"the colour of its class {label} is not a colour")
    return LegendEntry(label, name, (r, g, b))


def _digest(arrays: dict[str, Tensor], about: Mapping[str, object]) -> str:
    """SHA-256 of the description and of the names, types, shapes and bytes of the arrays."""
    sha = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for key in sorted(arrays):
        array = arrays[key].detach().cpu().numpy()
        sha.update(f"{key} {array.dtype} {array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
