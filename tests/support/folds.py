"""Labels with folds, for tests of what is made of out-of-fold predictions."""

from __future__ import annotations

import numpy as np

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import SplitRequest, draw_requested_folds
from hypercaps.selection.out_of_fold import FoldProblem
from hypercaps.training.scene_cache import SceneCache


def polygon_problem(polygons: int, pixels: int, classes: int, *, folds: int = 5, bands: int = 4) -> FoldProblem:
    """Polygons of one row each, of the classes in turn, on a scene of noise."""
    array = np.repeat(np.arange(polygons) % classes + 1, pixels).reshape(polygons, pixels).astype(np.int16)
    groups = np.repeat(np.arange(polygons) + 1, pixels).reshape(array.shape).astype(np.int32)
    labels = Labels.from_array(array, groups=groups)
    cube = np.random.default_rng(0).standard_normal((*array.shape, bands)).astype(np.float32)
    cache = SceneCache(Scene.from_array(cube))
    return FoldProblem(cache, labels, draw_requested_folds(labels, SplitRequest("folds", folds=folds)))
