"""The warning about pixels without a class: of a file all that are invalid, of tiles not the ground between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.invalid import warn_of_invalid
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.errors import DataWarning
from support.scenes import make_cube


def test_invalid_pixels_are_counted() -> None:
    scene = Scene.from_array(np.ones((10, 10, 2)), name="s")
    with pytest.warns(DataWarning, match=r"^3 of 100 pixels of scene 's' hold NaN, .* and get no class$"):
        warn_of_invalid(scene, 3, 100)
    warn_of_invalid(scene, 0, 100)


def test_ground_between_tiles_is_not_counted() -> None:
    tiles = (Window(0, 6, 0, 5), Window(4, 10, 0, 5))  # which overlap, beside 50 pixels without a tile
    scene = replace(Scene.from_array(np.ones((10, 10, 2)), name="s"), tiles=tiles)
    warn_of_invalid(scene, 50, 100)
    with pytest.warns(DataWarning, match=r"^3 of 50 pixels of scene 's' hold NaN, .* absurd values and get no class$"):
        warn_of_invalid(scene, 53, 100)
    with pytest.warns(DataWarning, match=r"^8 of 20 pixels .* absurd values, or lie between its tiles, and get no"):
        warn_of_invalid(scene, 8, 20)  # of a mask


def test_training_and_map_of_tiles_say_nothing_about_the_ground_between_them() -> None:
    cube, labels = make_cube()
    cube = cube.astype(np.float32)
    cube[:, 30:], labels[:, 30:] = np.nan, 0
    scene = replace(Scene.from_array(cube), tiles=(Window(0, cube.shape[0], 0, 30),))
    classifier = ConvCapsClassifier(method="lda").fit(scene, Labels.from_array(labels))  # warnings are errors
    assert (classifier.predict(scene)[:, 30:] == 0).all()
