"""QGIS plugin: hypercaps in the Processing toolbox.

``commands``, ``events`` and ``runner`` need neither QGIS nor hypercaps, and are tested without them.
"""

from __future__ import annotations

from typing import Any


def classFactory(iface: Any) -> Any:  # noqa: N802 - QGIS calls it by this name
    from .plugin import HypercapsPlugin

    return HypercapsPlugin()
