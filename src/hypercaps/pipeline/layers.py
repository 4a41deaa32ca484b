"""The rasters that a map can consist of, one ``Layer`` each.

The map on one machine or on a cluster, the partial map, the run folder, the report and the command line all read
``LAYERS``. A new layer is an entry here and its command-line options; see CONTRIBUTING.md. This module loads neither
numpy nor torch: ``--help`` shows its descriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypercaps.io.writers.raster_kind import RasterKind, class_kind, confidence_kind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hypercaps.inference.predict import MappedWindow
    from hypercaps.pipeline.map_context import MapContext

_NAN = float("nan")


@dataclass(frozen=True)
class Layer:
    """One raster of a map: its values in the partial map, and the GeoTIFF they are written to."""

    name: str  # key of MapRequest.files
    file: str  # name in a run folder
    description: str  # one line for the report, --help and the list of files
    dtype: str  # in the partial map, little-endian
    blank: float  # in the partial map, of pixels without a class
    compute: Callable[[MappedWindow, MapContext], npt.NDArray[Any]]  # (h, w) or (h, w, bands) of a classified window
    raster: Callable[[MapContext], RasterKind]
    per_class: bool = False  # one band per class of the model; otherwise one band
    in_every_run: bool = False  # `hypercaps train` writes it without an option
    has_legend: bool = False  # class names and colours for GDAL and QGIS stand beside the GeoTIFF
    needs_scores: bool = False  # compute reads MappedWindow.scores
    option: str | None = None  # the field of MapRequest that must be set if, and only if, the layer is written


def _classes(window: MappedWindow, context: MapContext) -> npt.NDArray[np.int16]:
    """Labels, with pixels below --reject and --unknown set to the classes "unsure" and "unknown"."""
    reject, unknown = context.request.reject, context.request.unknown
    classes = window.classes.copy()
    if reject is not None:
        classes[window.confidence < reject] = context.unsure_label  # not where confidence is NaN
    if unknown is not None:  # a classifier may be sure of ground that it does not know
        assert window.familiarity is not None  # requested
        classes[window.familiarity < unknown] = context.unknown_label
    return classes


def _class_raster(context: MapContext) -> RasterKind:
    legend, request = context.legend, context.request
    thresholds = {"HYPERCAPS_REJECT": request.reject, "HYPERCAPS_UNKNOWN": request.unknown}
    tags = {tag: str(value) for tag, value in thresholds.items() if value is not None}
    return class_kind(legend, context.tags | tags)


def _confidence_raster(context: MapContext) -> RasterKind:
    if context.request.confidence_dtype == "uint8":  # 0 to 250 for 0 to 1
        return RasterKind("uint8", 255, "average", ("confidence",), scale=0.004, tags=context.tags)
    return confidence_kind(context.tags)


def _familiarity_raster(context: MapContext) -> RasterKind:
    return RasterKind("float32", _NAN, "average", ("familiarity",), tags=context.tags)


def _familiarity(window: MappedWindow, context: MapContext) -> npt.NDArray[np.float32]:
    assert window.familiarity is not None  # the layer is requested
    return window.familiarity


def _probability_raster(context: MapContext) -> RasterKind:
    names = tuple(entry.name for entry in context.model.legend)
    return RasterKind("float32", _NAN, "average", names, tags=context.tags)


def _probabilities(window: MappedWindow, context: MapContext) -> npt.NDArray[np.float32]:
    assert window.scores is not None  # needs_scores
    return window.scores


def _set_raster(context: MapContext) -> RasterKind:
    tags = context.tags | {"HYPERCAPS_COVERAGE": str(context.request.coverage)}
    return RasterKind("uint8", 0, "average", ("classes in the set",), tags=tags)


def _set_sizes(window: MappedWindow, context: MapContext) -> npt.NDArray[np.uint8]:
    assert window.sets is not None  # the request has a coverage
    return window.sets


CLASSES = Layer(
    "classes",
    "map.tif",
    "the class of each pixel, with colours, for a GIS",
    dtype="<i2",
    blank=0,
    compute=_classes,
    raster=_class_raster,
    in_every_run=True,
    has_legend=True,
)
CONFIDENCE = Layer(
    "confidence",
    "confidence.tif",
    "confidence in the class of each pixel, 0 to 1",
    dtype="<f4",
    blank=_NAN,
    compute=lambda window, context: window.confidence,
    raster=_confidence_raster,
    in_every_run=True,
)
FAMILIARITY = Layer(
    "familiarity",
    "familiarity.tif",
    "similarity of each pixel to the labelled ground, 0 to 1",
    dtype="<f4",
    blank=_NAN,
    compute=_familiarity,
    raster=_familiarity_raster,
    in_every_run=True,
)
PROBABILITIES = Layer(
    "probabilities",
    "probabilities.tif",
    "probability of each class, one band per class",
    dtype="<f4",
    blank=_NAN,
    compute=_probabilities,
    raster=_probability_raster,
    per_class=True,
    needs_scores=True,
)
SETS = Layer(
    "sets",
    "sets.tif",
    "size of the conformal prediction set of each pixel",
    dtype="u1",
    blank=0,
    compute=_set_sizes,
    raster=_set_raster,
    option="coverage",
)

LAYERS = {layer.name: layer for layer in (CLASSES, CONFIDENCE, FAMILIARITY, PROBABILITIES, SETS)}
