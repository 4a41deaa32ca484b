"""KnownScores: scores that a network has already given to pixels of a scene.

A training scores validation pixels to calibrate the network, test pixels to judge it, and then all pixels for the map.
In the compiled kernels a pixel's scores do not depend on the other pixels, so that each needs to be computed once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.inference.model import TrainedModel
from hypercaps.models.capsules.compiled import CompiledConvCapsNet

Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float32]

MOST_BYTES = 1 << 26


class KnownScores:
    """Raw scores of the pixels of one scene by one network, as far as they were computed."""

    def __init__(self, model: TrainedModel, scene: Scene) -> None:
        self._network, self._scene, self._changes = model.network, scene, _changes(model)
        self._is_known = np.zeros(scene.shape[:2], dtype=bool)
        self._scores = np.empty((*scene.shape[:2], len(model.legend)), dtype=np.float32)

    @classmethod
    def of(cls, model: TrainedModel, scene: Scene) -> KnownScores | None:
        """None where scores may differ in the last digits from one window to another, and for large scenes."""
        is_small = 4 * scene.rows * scene.cols * len(model.legend) <= MOST_BYTES
        return cls(model, scene) if is_small and model.compiled is not None and not model.partners else None

    def fits(self, model: TrainedModel, scene: Scene) -> bool:
        """Whether the scores are of this network, as it was, and of this scene, and by the kernels as before."""
        is_same = model.network is self._network and scene is self._scene
        return is_same and model.compiled is not None and _changes(model) == self._changes

    def missing(self, at: Window, mask: Mask) -> Mask:
        """The pixels of ``mask`` (h, w), of a window, that are not known."""
        missing: Mask = mask & ~self._is_known[at.rows, at.cols]
        return missing

    def complete(self, at: Window, scores: Scores, mask: Mask) -> None:
        """Fill in what is known of the pixels of ``mask`` (h, w), and remember the others; ``scores`` are (h, w, n)."""
        is_known, stored = self._is_known[at.rows, at.cols], self._scores[at.rows, at.cols]
        is_given = ~np.isnan(scores[:, :, 0])
        before = is_known & mask
        scores[before] = stored[before]
        stored[is_given] = scores[is_given]
        is_known |= is_given


def _changes(model: TrainedModel) -> int:
    """How often the weights of a network were changed in place."""
    if isinstance(model.network, CompiledConvCapsNet):
        return 0
    return sum(weight._version for weight in model.network.parameters())
