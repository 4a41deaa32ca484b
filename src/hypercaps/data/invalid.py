"""The warning about pixels of a scene that get no class."""

from __future__ import annotations

from hypercaps.data.scene import Scene
from hypercaps.data.window import covered_pixels
from hypercaps.errors import warn_data


def warn_of_invalid(scene: Scene, invalid: int, total: int) -> None:
    """Warn of invalid pixels among ``total``, the whole scene or a part of it; the ground between tiles is expected."""
    why = scene.why_invalid()
    if scene.tiles:
        between = scene.rows * scene.cols - covered_pixels(scene.tiles)
        if total == scene.rows * scene.cols:
            invalid, total = invalid - between, total - between
        elif between:
            why = f"{why}, or lie between its tiles,"
    if invalid:
        warn_data(f"{invalid} of {total} pixels of scene {scene.name!r} hold {why} and get no class")
