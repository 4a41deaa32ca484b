from __future__ import annotations

import numpy as np
from scipy import ndimage

from hypercaps.data.labels import Labels
from hypercaps.data.splits import draw_folds, label_units
from hypercaps.data.splits.distances import DistanceComparison, compare_distances


def squares(step: int, side: int, size: int = 120) -> Labels:
    array = np.zeros((size, size), dtype=np.int16)
    for number, (r, c) in enumerate((r, c) for r in range(0, size, step) for c in range(0, size, step)):
        array[r : r + side, c : c + side] = number % 2 + 1
    return Labels.from_array(array)


def test_distances_are_those_of_a_distance_transform() -> None:
    labels = squares(24, 5)
    folds = draw_folds(labels, label_units(labels))
    valid = np.ones(labels.shape, dtype=bool)
    valid[60:] = False
    found = compare_distances(folds, valid)
    expected = np.zeros(folds.fold.size)
    for k in range(folds.count):
        away = np.ones(labels.shape, dtype=bool)
        away.ravel()[folds.training(k)] = False
        expected[folds.fold == k] = ndimage.distance_transform_edt(away).ravel()[folds.held_out(k)]
    ground = ndimage.distance_transform_edt(labels.array == 0)[valid & (labels.array == 0)]
    for distances, wanted in ((found.held_out, expected), (found.ground, ground)):
        assert distances == np.quantile(wanted, 0.5)


def test_large_scenes_are_sampled() -> None:
    labels = squares(50, 21, size=1000)
    found = compare_distances(draw_folds(labels, label_units(labels, block=30)))
    assert found.ground is not None and 5 < found.ground < 20
    assert 25 < found.held_out < 60


def test_a_scene_that_is_labelled_everywhere() -> None:
    labels = Labels.from_array(np.random.default_rng(0).integers(1, 4, (40, 40)))
    found = compare_distances(draw_folds(labels, label_units(labels)))
    assert found.ground is None and found.in_words().endswith("the whole scene is labelled.")


def test_words() -> None:
    def words(held_out: float, ground: float) -> str:
        return DistanceComparison(held_out, ground).in_words()

    assert words(12, 9) == (
        "Held-out labels lie 12 pixels (median) from the nearest training label, the ground to be mapped 9: the score "
        "describes ground about as far from labels as the map's."
    )
    assert "1 pixel (median)" in words(1, 2.2) and "about as far" in words(1, 2.2)
    assert words(30, 9).endswith("by distance alone, expect a higher accuracy there.")
    assert words(3, 40).endswith("expect a lower accuracy where the map is far from labels.")
