"""How far held-out labels lie from training labels, compared with the ground to be mapped.

A score describes ground that is as far from labels as the pixels that it was measured on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.data.invalid import valid_mask
from hypercaps.data.scene import Scene
from hypercaps.data.splits.folds import Folds
from hypercaps.data.splits.split import Indices

_MOST = 100_000  # pixels whose distances are computed
_MOST_READ = 1 << 22  # pixels of a scene whose validity is read; those of larger ones all count as ground
_ALIKE = 1.5  # ratio of medians up to which distances are about equal
_ALIKE_PIXELS = 1.5  # difference of medians up to which they are

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DistanceComparison:
    """Median distances to the nearest training label, in pixels."""

    held_out: float  # from held-out labels, to those that they were not held out with
    ground: float | None  # from valid pixels without a label; None: there are none

    def in_words(self) -> str:
        """One sentence about what the score describes."""
        near = f"Held-out labels lie {_pixels(self.held_out)} (median) from the nearest training label"
        if self.ground is None:
            return f"{near}; the whole scene is labelled."
        tested, mapped = self.held_out, self.ground
        compared = f"{near}, the ground to be mapped {mapped:.0f}"
        if abs(tested - mapped) <= _ALIKE_PIXELS or max(tested, mapped) <= _ALIKE * min(tested, mapped):
            return f"{compared}: the score describes ground about as far from labels as the map's."
        if tested > mapped:
            further = "the score describes ground further from labels than most of the map's"
            return f"{compared}: {further}; by distance alone, expect a higher accuracy there."
        nearer = "the score describes ground nearer to labels than most of the map's"
        return f"{compared}: {nearer}; expect a lower accuracy where the map is far from labels."


def ground_of(scene: Scene) -> npt.NDArray[np.bool_] | None:
    """(rows, columns) pixels that have data; None: the scene is too large to read for that."""
    return valid_mask(scene) if scene.rows * scene.cols <= _MOST_READ else None


def compare_distances(folds: Folds, valid: npt.NDArray[np.bool_] | None = None) -> DistanceComparison:
    """Compare the distances of held-out labels and of unlabelled ground to the nearest label.

    Parameters
    ----------
    folds : the labelled pixels and their folds
    valid : (rows, columns) pixels that are mapped; None: all
    """
    rng = np.random.default_rng(folds.seed)
    share = min(1.0, _MOST / max(1, int((folds.fold >= 0).sum())))
    held_out = [
        _nearest(_sample(folds.held_out(k), share, rng), folds.training(k), folds.shape) for k in range(folds.count)
    ]
    free = np.ones(folds.shape, dtype=bool) if valid is None else valid.copy()
    free.ravel()[folds.units.pixels] = False
    ground = np.flatnonzero(free)
    ground = _sample(ground, min(1.0, _MOST / max(1, ground.size)), rng)
    return DistanceComparison(
        float(np.quantile(np.concatenate(held_out), 0.5)),
        float(np.quantile(_nearest(ground, folds.units.pixels, folds.shape), 0.5)) if ground.size else None,
    )


def _pixels(number: float) -> str:
    return f"{number:.0f} pixel{'' if round(number) == 1 else 's'}"


def _sample(pixels: Indices, share: float, rng: np.random.Generator) -> Indices:
    """A share of the pixels, drawn at random; at least one."""
    if share >= 1.0 or pixels.size == 0:
        return pixels
    return np.sort(rng.choice(pixels, max(1, int(pixels.size * share)), replace=False))


def _nearest(pixels: Indices, labelled: Indices, shape: tuple[int, int]) -> Floats:
    """(N,) distance from each pixel to the nearest labelled one."""
    from scipy.spatial import cKDTree

    places, labels = (np.stack(np.divmod(flat, shape[1]), axis=1) for flat in (pixels, labelled))
    # Pixels lie on a grid: splitting cells in the middle is as good as at the median, and faster.
    tree = cKDTree(labels, balanced_tree=False, compact_nodes=False)
    distances: Floats = tree.query(places)[0]
    return distances
