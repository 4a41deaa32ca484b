"""Pixels of a scene that have no data: where they are, and the warning that they get no class."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Scene
from hypercaps.data.window import covered_pixels, tile_windows
from hypercaps.errors import warn_data

Mask = npt.NDArray[np.bool_]

_WINDOW = 256  # side of the windows that are read


def valid_mask(scene: Scene, within: Mask | None = None) -> Mask:
    """(rows, columns) pixels that have data; with ``within``, those of this mask only, and no others are read."""
    valid = np.zeros(scene.shape[:2], dtype=bool)
    for window in tile_windows(scene.whole, _WINDOW):
        inside = True if within is None else within[window.rows, window.cols]
        if np.any(inside):
            valid[window.rows, window.cols] = scene.read(window.rows, window.cols).valid & inside
    return valid


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
