"""The group "hypercaps" of the Processing toolbox, and its setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from processing.core.ProcessingConfig import ProcessingConfig, Setting
from qgis.core import QgsProcessingProvider
from qgis.PyQt.QtGui import QIcon

from .algorithms.base import PROGRAM_SETTING
from .algorithms.evaluate import EvaluateAlgorithm
from .algorithms.map import MapAlgorithm
from .algorithms.suggest import SuggestAlgorithm
from .algorithms.train import TrainAlgorithm

_ICON = str(Path(__file__).with_name("icon.svg"))


class HypercapsProvider(QgsProcessingProvider):
    def id(self) -> str:
        return "hypercaps"

    def name(self) -> str:
        return "hypercaps"

    def longName(self) -> str:  # noqa: N802
        return "hypercaps (land-cover maps from hyperspectral scenes)"

    def icon(self) -> Any:
        return QIcon(_ICON)

    def load(self) -> bool:
        ProcessingConfig.settingIcons[self.name()] = self.icon()
        ProcessingConfig.addSetting(
            Setting(
                self.name(),
                PROGRAM_SETTING,
                "Program hypercaps, or the folder of its Python environment (empty: found on PATH)",
                "",
                valuetype=Setting.FILE,
            )
        )
        ProcessingConfig.readSettings()
        self.refreshAlgorithms()
        return True

    def unload(self) -> None:
        ProcessingConfig.removeSetting(PROGRAM_SETTING)

    def loadAlgorithms(self) -> None:  # noqa: N802
        for algorithm in (TrainAlgorithm, MapAlgorithm, EvaluateAlgorithm, SuggestAlgorithm):
            self.addAlgorithm(algorithm())

    def defaultRasterFileExtension(self) -> str:  # noqa: N802
        return "tif"

    def supportedOutputRasterLayerExtensions(self) -> list[str]:  # noqa: N802
        return ["tif"]

    def defaultVectorFileExtension(self, hasGeometry: bool = True) -> str:  # noqa: N802, N803
        return "gpkg"

    def supportedOutputVectorLayerExtensions(self) -> list[str]:  # noqa: N802
        return ["gpkg", "geojson"]
