"""A model as an ONNX file: whitening, network and calibration in one graph."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from hypercaps import __version__
from hypercaps.errors import ModelFileError
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.portable import PortableModel

_NEEDED = ("onnx", "onnxscript")  # torch exports with these
_BATCH = 3  # patches of the example: a batch of 1 would be taken for a constant


def to_onnx(model: TrainedModel) -> bytes:
    """The content of an ONNX file: input ``patches`` (N, D, D, C) float32, output ``probabilities`` (N, n) float32."""
    _check_installed()
    portable = PortableModel(model)
    example = _example(model, portable.side)
    portable(example)  # what networks keep after their first use must be numbers, not the exporter's stand-ins
    with _quietly():
        program = torch.onnx.export(
            portable,
            (example,),
            dynamo=True,
            input_names=["patches"],
            output_names=["probabilities"],
            dynamic_shapes={"patches": {0: torch.export.Dim("N", min=1)}},
            verbose=False,
        )
    assert program is not None
    proto: Any = program.model_proto
    for name, value in metadata(model).items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = f"hypercaps.{name}", value if isinstance(value, str) else json.dumps(value)
    content: bytes = proto.SerializeToString()
    return content


def metadata(model: TrainedModel) -> dict[str, object]:
    """What a program needs to know in addition to the graph; everything but text is written as JSON."""
    return {
        "version": __version__,
        "method": model.title,
        "patch": 2 * model.halo + 1,
        "bands": model.bands,
        "wavelengths": None if model.wavelengths is None else [float(w) for w in model.wavelengths],
        "classes": model.describe()["classes"],
        "calibration": "none" if model.calibration is None else model.calibration.kind,
        "scene": model.scene,
    }


def _check_installed() -> None:
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise ModelFileError(
            f"ONNX files are written by {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed: pip install 'hypercaps[onnx]'"
        )


def _example(model: TrainedModel, side: int) -> torch.Tensor:
    """Patches near the mean of the training scene."""
    mean = torch.from_numpy(model.preprocessing.mean).float()
    noise = torch.rand(_BATCH, side, side, model.bands, generator=torch.Generator().manual_seed(0))
    return mean * (0.9 + 0.2 * noise)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's remarks, which are not about the model."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
