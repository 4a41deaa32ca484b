"""Whether labelled areas end at field boundaries or inside fields.

If spectra change at the border between labels and unlabelled ground, whole fields were labelled, and the ground to be
mapped consists of other fields. If they do not, the ground beside the labels belongs to the same fields.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.window import VALUES_AT_ONCE

# Share of smooth borders, below which areas are whole fields. Indian Pines: fields 0.15 to 0.20, blocks 0.28 to 0.33.
WHOLE_FIELDS = 0.24
_PAIRS = ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1]))  # neighbours below and to the right

Floats = npt.NDArray[np.float64]


def are_whole_fields(scene: Scene, labels: Labels) -> bool:
    """Whether most labelled areas end at an edge of the scene."""
    inside, border = _differences(scene, labels)
    if not (inside.size and border.size):
        return False
    return float((border <= np.median(inside)).mean()) < WHOLE_FIELDS


def _differences(scene: Scene, labels: Labels) -> tuple[Floats, Floats]:
    """Squared differences of neighbouring spectra inside areas of one class, and across their borders, (N,) each."""
    strip = max(2, VALUES_AT_ONCE // (scene.cols * scene.bands))
    scale = _band_scale(scene, labels, strip)
    inside, border = [np.empty(0)], [np.empty(0)]
    for r0 in range(0, scene.rows, strip):
        rows = slice(r0, min(r0 + strip + 1, scene.rows))  # one row of the next strip
        classes = labels.array[rows]
        if not classes.any():
            continue
        read = scene.read(rows)
        spectra = read.values * scale
        for one, other in _PAIRS:
            difference = np.square(spectra[one] - spectra[other]).sum(axis=2, dtype=np.float64)
            both = read.valid[one] & read.valid[other]
            first, second = classes[one], classes[other]
            inside.append(difference[both & (first > 0) & (first == second)])
            border.append(difference[both & ((first > 0) != (second > 0))])
    return np.concatenate(inside), np.concatenate(border)


def _band_scale(scene: Scene, labels: Labels, strip: int) -> npt.NDArray[np.float32]:
    """(bands,) 1 / standard deviation over the labelled pixels; 0 for constant bands."""
    count, total, squares = 0, np.zeros(scene.bands), np.zeros(scene.bands)
    for r0 in range(0, scene.rows, strip):
        rows = slice(r0, r0 + strip)
        if labels.array[rows].any():
            read = scene.read(rows)
            own = read.values[read.valid & (labels.array[rows] > 0)].astype(np.float64)
            count, total, squares = count + len(own), total + own.sum(axis=0), squares + np.square(own).sum(axis=0)
    variance = squares / max(count, 1) - np.square(total / max(count, 1))
    alive = variance > 1e-12 * max(float(np.max(squares)) / max(count, 1), 1e-300)
    return np.where(alive, 1 / np.sqrt(np.where(alive, variance, 1.0)), 0.0).astype(np.float32)
