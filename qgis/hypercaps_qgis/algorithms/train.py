"""Train: a model, its score and a map from a raster layer and labelled features."""

from __future__ import annotations

from typing import Any

from qgis.core import (
    QgsProcessing,
    QgsProcessingOutputFile,
    QgsProcessingOutputHtml,
    QgsProcessingOutputNumber,
    QgsProcessingOutputRasterLayer,
    QgsProcessingParameterBoolean,
    QgsProcessingParameterEnum,
    QgsProcessingParameterFeatureSource,
    QgsProcessingParameterFolderDestination,
    QgsProcessingParameterNumber,
)

from ..commands import METHODS, SPLITS, train_command
from ..runner import Outcome
from .base import HypercapsAlgorithm

_SPLIT_TEXTS = (
    "folds: every area is held out once, the final model has all labels",
    "none: all labels train, no score",
    "random pixels: optimistic",
    "polygons",
    "blocks of ground",
)


class TrainAlgorithm(HypercapsAlgorithm):
    NAME, TITLE = "train", "Train"
    HELP = (
        "Trains a classifier on the labelled polygons, lines or points of a layer, scores it on labels that it has not "
        "seen, and maps the scene.\n\nThe method 'auto' compares several on your labels and takes the best, which can "
        "take minutes; 'lda' takes seconds, 'convcapsnet' is the capsule network.\n\nThe folder gets the report, the "
        "model for Map, Evaluate and Suggest points, and all rasters. Cancel stops the training."
    )

    def initAlgorithm(self, configuration: Any = None) -> None:  # noqa: N802
        self.add_scene()
        self.add_labels("Labels (polygons, lines or points)")
        self.addParameter(
            QgsProcessingParameterFeatureSource(
                "MORE_LABELS",
                "Further labels with the same field, such as suggested points",
                [QgsProcessing.TypeVectorAnyGeometry],
                optional=True,
            )
        )
        self.addParameter(
            QgsProcessingParameterEnum(
                "METHOD", "Method", list(METHODS), defaultValue=METHODS[0], usesStaticStrings=True
            )
        )
        self.addParameter(
            QgsProcessingParameterEnum("SPLIT", "How the score is measured", list(_SPLIT_TEXTS), defaultValue=0)
        )
        integer = QgsProcessingParameterNumber.Integer
        self.add_advanced(
            QgsProcessingParameterNumber(
                "EPOCHS", "Number of epochs (empty: the method's)", integer, optional=True, minValue=1
            )
        )
        self.add_advanced(QgsProcessingParameterNumber("SEED", "Random seed", integer, 0, minValue=0))
        self.add_advanced(QgsProcessingParameterBoolean("FORCE", "Replace a run that is already in the folder", False))
        self.add_options()
        self.addParameter(QgsProcessingParameterBoolean("LOAD", "Add the map to the project", True))
        self.addParameter(QgsProcessingParameterFolderDestination("OUTPUT", "Folder for the results"))
        self.addOutput(QgsProcessingOutputRasterLayer("MAP", "Map"))
        self.addOutput(QgsProcessingOutputRasterLayer("CONFIDENCE", "Confidence"))
        self.addOutput(QgsProcessingOutputHtml("REPORT", "Report"))
        self.addOutput(QgsProcessingOutputFile("MODEL", "Model"))
        self.addOutput(QgsProcessingOutputNumber("OA", "Overall accuracy, in percent"))

    def command(self, parameters: Any, context: Any, feedback: Any) -> list[str]:
        epochs = self.optional_number(parameters, "EPOCHS", context)
        labels = self.labels(parameters, context, feedback)
        assert labels is not None  # the parameter is not optional
        further = self.labels(parameters, context, feedback, "MORE_LABELS")
        return train_command(
            self._scene,
            labels,
            self.parameterAsString(parameters, "OUTPUT", context),
            further=None if further is None else further.path,
            method=self.parameterAsEnumString(parameters, "METHOD", context),
            split=SPLITS[self.parameterAsEnum(parameters, "SPLIT", context)],
            epochs=None if epochs is None else int(epochs),
            seed=self.parameterAsInt(parameters, "SEED", context),
            force=self.parameterAsBool(parameters, "FORCE", context),
            more=self.parameterAsString(parameters, "OPTIONS", context),
        )

    def results(self, outcome: Outcome, parameters: Any, context: Any) -> dict[str, Any]:
        raster = outcome.files.get("classes")
        if raster and context.project() is not None and self.parameterAsBool(parameters, "LOAD", context):
            self.load(raster, "Map", "MAP", context)
            self.style_classes(raster, outcome, context)
        names = {"MAP": "classes", "CONFIDENCE": "confidence", "REPORT": "report", "MODEL": "model", "OUTPUT": "folder"}
        return {
            **{output: outcome.files[name] for output, name in names.items() if name in outcome.files},
            "OA": outcome.scores.get("oa"),
        }
