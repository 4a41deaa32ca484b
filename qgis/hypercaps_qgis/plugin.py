"""The plugin as QGIS loads it: it registers the Processing provider, and nothing else."""

from __future__ import annotations

from qgis.core import QgsApplication

from .provider import HypercapsProvider


class HypercapsPlugin:
    def __init__(self) -> None:
        self._provider: HypercapsProvider | None = None

    def initProcessing(self) -> None:  # noqa: N802 - called by qgis_process instead of initGui
        self._provider = HypercapsProvider()
        QgsApplication.processingRegistry().addProvider(self._provider)

    def initGui(self) -> None:  # noqa: N802
        self.initProcessing()

    def unload(self) -> None:
        if self._provider is not None:
            QgsApplication.processingRegistry().removeProvider(self._provider)
            self._provider = None
