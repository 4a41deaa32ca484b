"""Evaluate: the accuracy of a model on labelled features."""

from __future__ import annotations

from typing import Any

from qgis.core import QgsProcessingOutputNumber, QgsProcessingParameterFileDestination

from ..commands import evaluate_command
from ..runner import Outcome
from .base import HypercapsAlgorithm

_SCORES = {"OA": "Overall accuracy", "AA": "Average accuracy", "KAPPA": "Kappa"}


class EvaluateAlgorithm(HypercapsAlgorithm):
    NAME, TITLE = "evaluate", "Evaluate"
    HELP = (
        "Scores a model on labels. On the labels that it was trained on, these are the scores of the training, on "
        "labels held out; on other labels, all of them are used.\n\nThe table of classes is in the log, all numbers "
        "are in the JSON file."
    )

    def initAlgorithm(self, configuration: Any = None) -> None:  # noqa: N802
        self.add_model()
        self.add_scene()
        self.add_labels("Labels (polygons, lines or points)")
        self.add_options()
        self.addParameter(QgsProcessingParameterFileDestination("OUTPUT", "Scores", "JSON files (*.json)"))
        for name, text in _SCORES.items():
            self.addOutput(QgsProcessingOutputNumber(name, f"{text}, in percent"))

    def command(self, parameters: Any, context: Any, feedback: Any) -> list[str]:
        labels = self.labels(parameters, context, feedback)
        assert labels is not None  # the parameter is not optional
        return evaluate_command(
            self.parameterAsFile(parameters, "MODEL", context),
            self._scene,
            labels,
            self.parameterAsFileOutput(parameters, "OUTPUT", context),
            self.parameterAsString(parameters, "OPTIONS", context),
        )

    def results(self, outcome: Outcome, parameters: Any, context: Any) -> dict[str, Any]:
        scores = {name: outcome.scores.get(name.lower()) for name in _SCORES}
        return {"OUTPUT": outcome.files.get("json"), **scores}
