"""MapContext: everything that the values and the tags of a map's rasters depend on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hypercaps import __version__
from hypercaps.data.labels import MAX_LABEL, Legend, LegendEntry
from hypercaps.data.scene import Scene
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import WindowOutputs
from hypercaps.pipeline.layers import CLASSES, CONFIDENCE, LAYERS, Layer
from hypercaps.pipeline.requests import MapRequest

_GREY = (128, 128, 128)  # unsure


@dataclass(frozen=True, eq=False)
class MapContext:
    """A model, a scene and what to map with them."""

    model: TrainedModel
    scene: Scene
    request: MapRequest
    model_sha256: str

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
        return map_legend(self.model.legend, self.request.reject)

    @property
    def tags(self) -> dict[str, str]:
        """Metadata of every raster."""
        calibration = self.model.calibration
        return {
            "TIFFTAG_SOFTWARE": f"hypercaps {__version__}",
            "HYPERCAPS_VERSION": __version__,
            "HYPERCAPS_MODEL_SHA256": self.model_sha256,
            "HYPERCAPS_METHOD": self.model.method,
            "HYPERCAPS_SCENE": self.scene.name,
            "HYPERCAPS_CALIBRATION": "none" if calibration is None else calibration.kind,
        }


def window_outputs(request: MapRequest) -> WindowOutputs:
    """What must be computed for each window to fill the layers of a request."""
    with_scores = any(LAYERS[name].needs_scores for name in request.files)
    return WindowOutputs(with_scores=with_scores, coverage=request.coverage)


def unsure_label(legend: Legend) -> int:
    """Label of unsure pixels: the first after the classes or, if there is none, the highest that is free."""
    label = int(legend.labels.max()) + 1
    return label if label <= MAX_LABEL else int(np.setdiff1d(np.arange(1, MAX_LABEL), legend.labels).max())


def map_legend(legend: Legend, reject: float | None) -> Legend:
    """The legend of a map: with an entry for unsure pixels if some are rejected."""
    if reject is None:
        return legend
    return Legend(tuple(sorted((*legend, LegendEntry(unsure_label(legend), "unsure", _GREY)))))
