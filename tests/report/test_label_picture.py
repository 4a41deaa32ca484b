"""Labels at the size of a picture."""

from __future__ import annotations

import numpy as np

from hypercaps.report.label_picture import dot_side, label_picture, pixel_picture


def test_small_scenes_are_drawn_as_they_are() -> None:
    labels = np.zeros((145, 145), dtype=np.int16)
    labels[3, 5] = 2
    np.testing.assert_array_equal(label_picture(labels, 800), labels)


def test_single_pixels_of_a_large_scene_become_dots_of_their_class() -> None:
    labels = np.zeros((600, 500), dtype=np.int16)
    labels[100, 200], labels[0, 499] = 3, 7  # one at the border
    picture = label_picture(labels, 800)
    assert dot_side(picture.shape) == 5
    assert (picture[98:103, 198:203] == 3).all() and (picture == 3).sum() == 25
    assert (picture[:3, 497:] == 7).all() and (picture == 7).sum() == 9


def test_areas_keep_their_shape_and_dots_cover_no_label() -> None:
    labels = np.zeros((600, 600), dtype=np.int16)
    labels[100:140, 100:140] = 1
    labels[300, 300], labels[300, 301] = 4, 5  # two points beside each other
    picture = label_picture(labels, 800)
    np.testing.assert_array_equal(picture == 1, labels == 1)
    assert picture[300, 300] == 4 and picture[300, 301] == 5


def test_thinning_loses_no_label() -> None:
    pixels = np.array([7 * 4000 + 11, 3999 * 4000 + 1234])
    picture = pixel_picture((4000, 4000), pixels, np.array([1, 2]), 800)
    assert picture.shape == (800, 800)
    assert picture[1, 2] == 1 and picture[799, 246] == 2
    assert (picture == 2).sum() > 1
