"""Suggest points: where to label next."""

from __future__ import annotations

from typing import Any

from qgis.core import QgsProcessing, QgsProcessingParameterNumber, QgsProcessingParameterVectorDestination

from ..commands import suggest_command
from ..runner import Outcome
from .base import HypercapsAlgorithm


class SuggestAlgorithm(HypercapsAlgorithm):
    NAME, TITLE = "suggest", "Suggest points"
    HELP = (
        "Suggests pixels to label next, in the largest areas that the model is uncertain about. "
        "Enter the class of each point in its empty field, and train with these points and the labels before."
    )

    def initAlgorithm(self, configuration: Any = None) -> None:  # noqa: N802
        self.add_model()
        self.add_scene()
        self.addParameter(
            QgsProcessingParameterNumber(
                "NUMBER", "Number of points", QgsProcessingParameterNumber.Integer, 20, minValue=1
            )
        )
        self.add_labels("Existing labels: none of them is suggested, and points keep away from them", optional=True)
        self.add_mask()
        self.add_options()
        self.addParameter(
            QgsProcessingParameterVectorDestination("OUTPUT", "Suggested points", QgsProcessing.TypeVectorPoint)
        )

    def command(self, parameters: Any, context: Any, feedback: Any) -> list[str]:
        mask = self.labels(parameters, context, feedback, "MASK")
        return suggest_command(
            self.parameterAsFile(parameters, "MODEL", context),
            self._scene,
            self.parameterAsOutputLayer(parameters, "OUTPUT", context),
            number=self.parameterAsInt(parameters, "NUMBER", context),
            labels=self.labels(parameters, context, feedback),
            mask=None if mask is None else mask.path,
            more=self.parameterAsString(parameters, "OPTIONS", context),
        )

    def results(self, outcome: Outcome, parameters: Any, context: Any) -> dict[str, Any]:
        return {"OUTPUT": outcome.files["points"]}
