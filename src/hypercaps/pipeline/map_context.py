"""MapContext: everything that the values and the tags of a map's rasters depend on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps import __version__
from hypercaps.data.labels import MAX_LABEL, Legend, LegendEntry
from hypercaps.data.scene import Scene
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import WindowOutputs
from hypercaps.inference.scene_shift import PreparedScene
from hypercaps.pipeline.layers import CLASSES, CONFIDENCE, LAYERS, Layer
from hypercaps.pipeline.requests import MapRequest

_GREY = (128, 128, 128)  # unsure
_NEARLY_BLACK = (40, 40, 40)  # unknown


@dataclass(frozen=True, eq=False)
class MapContext:
    """A model, a scene and what to map with them."""

    model: TrainedModel
    prepared: PreparedScene
    request: MapRequest
    model_sha256: str

    @property
    def scene(self) -> Scene:
        return self.prepared.scene

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Layers of the partial map: those written, and classes and confidence: resuming may add or omit these."""
        names = {CLASSES.name, CONFIDENCE.name, *self.request.files}
        return tuple(layer for name, layer in LAYERS.items() if name in names)

    @cached_property
    def unsure_label(self) -> int:
        return unsure_label(self.model.legend)

    @cached_property
    def legend(self) -> Legend:
        return map_legend(self.model.legend, self.request)

    @cached_property
    def unknown_label(self) -> int:
        return unknown_label(self.model.legend)

    @property
    def halo(self) -> int:
        """Pixels around a window that its layers need."""
        return window_outputs(self.request).halo(self.model)

    @property
    def tags(self) -> dict[str, str]:
        """Metadata of every raster."""
        return {
            "TIFFTAG_SOFTWARE": f"hypercaps {__version__}",
            "HYPERCAPS_VERSION": __version__,
            "HYPERCAPS_MODEL_SHA256": self.model_sha256,
            "HYPERCAPS_METHOD": self.model.title,
            "HYPERCAPS_SCENE": self.scene.name,
            "HYPERCAPS_CALIBRATION": self._calibration,
            "HYPERCAPS_SCENE_SHIFT": self.prepared.tag,
        }

    @property
    def _calibration(self) -> str:
        if not self.prepared.is_claimed:
            return "not valid for this scene"
        calibration = self.model.calibration
        return "none" if calibration is None else calibration.kind


def window_outputs(request: MapRequest) -> WindowOutputs:
    """What must be computed for each window to fill the layers of a request."""
    with_scores = any(LAYERS[name].needs_scores for name in request.files)
    return WindowOutputs(with_scores=with_scores, coverage=request.coverage, with_familiarity=request.needs_familiarity)


def unsure_label(legend: Legend) -> int:
    """Label of unsure pixels: the first after the classes or, if there is none, the highest that is free."""
    return _free_label(legend.labels)


def unknown_label(legend: Legend) -> int:
    """Label of unknown ground: in the same way, after that of unsure pixels, whether a map has those or not."""
    return _free_label(np.append(legend.labels, unsure_label(legend)))


def unknown_entry(legend: Legend, name: str = "unknown") -> LegendEntry:
    return LegendEntry(unknown_label(legend), name, _NEARLY_BLACK)


def _free_label(labels: npt.NDArray[np.integer[Any]]) -> int:
    label = int(labels.max()) + 1
    return label if label <= MAX_LABEL else int(np.setdiff1d(np.arange(1, MAX_LABEL), labels).max())


def map_legend(legend: Legend, request: MapRequest) -> Legend:
    """The legend of a map: with entries for unsure pixels and for unknown ground, if it marks them."""
    entries = list(legend)
    if request.reject is not None:
        entries.append(LegendEntry(unsure_label(legend), "unsure", _GREY))
    if request.unknown is not None:
        entries.append(unknown_entry(legend))
    return Legend(tuple(sorted(entries)))
