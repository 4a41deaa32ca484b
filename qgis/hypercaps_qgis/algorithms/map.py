"""Map: the class of every pixel of a raster layer."""

from __future__ import annotations

from typing import Any

from qgis.core import (
    QgsProcessingParameterBoolean,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterDestination,
)

from ..commands import map_command
from ..runner import Outcome
from .base import HypercapsAlgorithm

_FURTHER = {
    "CONFIDENCE": ("confidence", "Confidence, 0 to 1"),
    "FAMILIARITY": ("familiarity", "Familiarity: how far the ground is like what was labelled"),
}


class MapAlgorithm(HypercapsAlgorithm):
    NAME, TITLE = "map", "Map"
    HELP = (
        "Classifies every pixel of a scene with a model that Train has made. The map has class names and colours.\n\n"
        "'Unsure' and 'unknown' are classes of their own in the map: pixels whose confidence is low, and ground that "
        "is unlike anything that was labelled."
    )

    def initAlgorithm(self, configuration: Any = None) -> None:  # noqa: N802
        self.add_model()
        self.add_scene()
        self.add_mask()
        for name, text in (
            ("REJECT", "Mark pixels below this confidence as unsure"),
            ("UNKNOWN", "Mark unknown ground, losing this share of known ground"),
        ):
            self.add_advanced(
                QgsProcessingParameterNumber(
                    name, text, QgsProcessingParameterNumber.Double, optional=True, minValue=0, maxValue=1
                )
            )
        self.add_advanced(
            QgsProcessingParameterBoolean("RESAMPLE", "Resample the scene to the model's bands if they differ", False)
        )
        self.add_options()
        self.addParameter(QgsProcessingParameterRasterDestination("OUTPUT", "Map"))
        for name, (_, text) in _FURTHER.items():
            self.addParameter(QgsProcessingParameterRasterDestination(name, text, optional=True, createByDefault=False))

    def command(self, parameters: Any, context: Any, feedback: Any) -> list[str]:
        paths = {option: self._output(parameters, name, context) for name, (option, _) in _FURTHER.items()}
        mask = self.labels(parameters, context, feedback, "MASK")
        return map_command(
            self.parameterAsFile(parameters, "MODEL", context),
            self._scene,
            self._output(parameters, "OUTPUT", context),
            layers=paths,
            options={
                "mask": None if mask is None else mask.path,
                "reject": self.optional_number(parameters, "REJECT", context),
                "unknown": self.optional_number(parameters, "UNKNOWN", context),
                "resample": self.parameterAsBool(parameters, "RESAMPLE", context),
            },
            more=self.parameterAsString(parameters, "OPTIONS", context),
        )

    def _output(self, parameters: Any, name: str, context: Any) -> str:
        return str(self.parameterAsOutputLayer(parameters, name, context) or "")

    def results(self, outcome: Outcome, parameters: Any, context: Any) -> dict[str, Any]:
        files = outcome.files
        self.style_classes(self._output(parameters, "OUTPUT", context), outcome, context)
        further = {name: files[option] for name, (option, _) in _FURTHER.items() if option in files}
        return {"OUTPUT": files["classes"], **further}
