"""What the algorithms share: inputs, running hypercaps with progress and cancel, and results with their style."""

from __future__ import annotations

import os
import shlex
import time
from abc import abstractmethod
from typing import Any

from processing.core.ProcessingConfig import ProcessingConfig
from qgis.core import (
    QgsProcessing,
    QgsProcessingAlgorithm,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingLayerPostProcessorInterface,
    QgsProcessingParameterDefinition,
    QgsProcessingParameterFeatureSource,
    QgsProcessingParameterField,
    QgsProcessingParameterFile,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterString,
)

from ..commands import CommandError, Labels, child_environment, find_program
from ..events import Event
from ..layers import exported, plain_file, scene_argument
from ..runner import CancelledError, Outcome, run_command

PROGRAM_SETTING = "HYPERCAPS_PROGRAM"
_TEXT_EVERY = 30.0  # seconds between two texts about the progress of one stage


class HypercapsAlgorithm(QgsProcessingAlgorithm):
    """A hypercaps command with layers as inputs.

    Layers are looked at in ``prepareAlgorithm``, in the main thread; the command runs in the thread of the algorithm.
    """

    NAME = TITLE = HELP = ""  # of each algorithm

    def __init__(self) -> None:
        super().__init__()
        self._scene = ""
        self._files: dict[str, str | None] = {}  # of vector inputs; None: to be exported

    def name(self) -> str:
        return self.NAME

    def displayName(self) -> str:  # noqa: N802
        return self.TITLE

    def shortHelpString(self) -> str:  # noqa: N802
        return self.HELP

    def createInstance(self) -> HypercapsAlgorithm:  # noqa: N802
        return type(self)()

    def canExecute(self) -> tuple[bool, str]:  # noqa: N802
        try:
            _program()
        except CommandError as error:
            return False, str(error)
        return True, ""

    # Inputs

    def add_scene(self) -> None:
        self.addParameter(QgsProcessingParameterRasterLayer("SCENE", "Scene (hyperspectral raster)"))

    def add_model(self) -> None:
        self.addParameter(
            QgsProcessingParameterFile("MODEL", "Model (model.safetensors of a training)", extension="safetensors")
        )

    def add_labels(self, text: str, *, optional: bool = False) -> None:
        self.addParameter(
            QgsProcessingParameterFeatureSource(
                "LABELS", text, [QgsProcessing.TypeVectorAnyGeometry], optional=optional
            )
        )
        self.addParameter(
            QgsProcessingParameterField(
                "FIELD", "Field with the class", parentLayerParameterName="LABELS", optional=optional
            )
        )

    def add_mask(self) -> None:
        self.addParameter(
            QgsProcessingParameterFeatureSource(
                "MASK", "Only inside these polygons", [QgsProcessing.TypeVectorPolygon], optional=True
            )
        )

    def add_options(self) -> None:
        """The last parameter: any option of the command that has no parameter of its own."""
        self.add_advanced(
            QgsProcessingParameterString(
                "OPTIONS", f"Further options of 'hypercaps {self.NAME}', as typed in a terminal", optional=True
            )
        )

    def add_advanced(self, parameter: Any) -> None:
        parameter.setFlags(parameter.flags() | QgsProcessingParameterDefinition.FlagAdvanced)
        self.addParameter(parameter)

    def optional_number(self, parameters: Any, name: str, context: Any) -> float | None:
        return None if parameters.get(name) is None else self.parameterAsDouble(parameters, name, context)

    # Running

    def prepareAlgorithm(self, parameters: Any, context: Any, feedback: Any) -> bool:  # noqa: N802
        layer = self.parameterAsRasterLayer(parameters, "SCENE", context)
        if layer is None:
            raise QgsProcessingException(self.invalidRasterError(parameters, "SCENE"))
        try:
            self._scene = scene_argument(layer, feedback)
        except CommandError as error:
            raise QgsProcessingException(str(error)) from None
        for name in ("LABELS", "MORE_LABELS", "MASK"):
            if self.parameterDefinition(name) is not None and parameters.get(name) is not None:
                vector = self.parameterAsVectorLayer(parameters, name, context)
                self._files[name] = plain_file(parameters[name], vector, self._field(name, parameters, context))
        return True

    def labels(self, parameters: Any, context: Any, feedback: Any, name: str = "LABELS") -> Labels | None:
        """A vector input as hypercaps reads it; None if it was not given."""
        if name not in self._files:
            return None
        field = self._field(name, parameters, context)
        path = self._files[name]
        if path is not None:
            return Labels(path, field)
        source = self.parameterAsSource(parameters, name, context)
        if source is None:
            raise QgsProcessingException(self.invalidSourceError(parameters, name))
        labels = exported(source, field, context)
        feedback.pushInfo(f"{source.sourceName()}: {source.featureCount()} features written to {labels.path}")
        return labels

    def _field(self, name: str, parameters: Any, context: Any) -> str:
        """The field with the class; a mask has none."""
        return "" if name == "MASK" else str(self.parameterAsString(parameters, "FIELD", context))

    def processAlgorithm(self, parameters: Any, context: Any, feedback: Any) -> dict[str, Any]:  # noqa: N802
        try:
            outcome = self._run(self.command(parameters, context, feedback), feedback)
        except CommandError as error:
            raise QgsProcessingException(str(error)) from None
        except CancelledError:
            return {}
        return self.results(outcome, parameters, context)

    @abstractmethod
    def command(self, parameters: Any, context: Any, feedback: Any) -> list[str]:
        """The command line, without the program."""

    @abstractmethod
    def results(self, outcome: Outcome, parameters: Any, context: Any) -> dict[str, Any]:
        """The outputs of the algorithm."""

    def _run(self, arguments: list[str], feedback: Any) -> Outcome:
        command = [_program(), *arguments]
        feedback.pushCommandInfo(" ".join(map(shlex.quote, command)))

        show = _Shown(feedback)
        return run_command(command, child_environment(os.environ), show, feedback.isCanceled)

    # Results

    def style_classes(self, raster: str, outcome: Outcome, context: Any) -> None:
        """Give a class map its names and colours when QGIS loads it; ``raster`` is its path as QGIS has it."""
        style = outcome.files.get("style")
        if style and context.willLoadLayerOnCompletion(raster):
            _STYLES[raster] = ClassStyle(style)
            context.layerToLoadOnCompletionDetails(raster).setPostProcessor(_STYLES[raster])

    def load(self, path: str, title: str, output: str, context: Any) -> None:
        """Add a result that is no destination parameter to the project."""
        details = QgsProcessingContext.LayerDetails(title, context.project(), output)
        context.addLayerToLoadOnCompletion(path, details)


class _Shown:
    """Shows events in the dialog of the algorithm.

    QGIS also writes every text about progress to the log, so there are few: one when a stage begins, then now and then.
    """

    def __init__(self, feedback: Any) -> None:
        self._feedback = feedback
        self._stage = ""
        self._next_text = 0.0

    def __call__(self, event: Event) -> None:
        if event.kind == "progress":
            self._show_progress(event)
        elif event.level == "warning":
            self._feedback.pushWarning(event.text)
        else:
            self._feedback.pushInfo(event.text)

    def _show_progress(self, event: Event) -> None:
        now = time.monotonic()
        if event.stage != self._stage or now >= self._next_text:
            self._stage, self._next_text = event.stage, now + _TEXT_EVERY
            self._feedback.setProgressText(event.text)
        if event.percent is not None:
            self._feedback.setProgress(event.percent)


class ClassStyle(QgsProcessingLayerPostProcessorInterface):
    """Loads the style that hypercaps writes beside a class map."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def postProcessLayer(self, layer: Any, context: Any, feedback: Any) -> None:  # noqa: N802
        message, loaded = layer.loadNamedStyle(self.path)
        if not loaded:
            feedback.pushWarning(f"The style {self.path} can't be loaded: {message}")
        layer.triggerRepaint()


# By raster. QGIS uses them when the algorithm is gone, and does not keep them itself.
_STYLES: dict[str, ClassStyle] = {}


def _program() -> str:
    return find_program(str(ProcessingConfig.getSetting(PROGRAM_SETTING) or "").strip(), os.environ)
