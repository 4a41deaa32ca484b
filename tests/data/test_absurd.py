"""Single absurd values: such a pixel counts as invalid, and ruins nothing."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels
from hypercaps.data.resampling import resample
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning
from support.scenes import make_cube


def wild_cube(value: float = 1e30, at: tuple[int, int] = (7, 11)) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    cube, labels = make_cube()
    cube = cube.astype(np.float32)
    cube[*at, 5] = value
    return cube, labels


@pytest.mark.parametrize("value", [1e30, -1e30, 1e12, np.float32(3.4e38)])
def test_a_training_survives_one_absurd_value(value: float) -> None:
    calm, labels = make_cube()
    truth = Labels.from_array(labels)
    expected = ConvCapsClassifier(method="lda").fit(Scene.from_array(calm.astype(np.float32)), truth).scores_.oa
    scene = Scene.from_array(wild_cube(value)[0], name="wild")
    with pytest.warns(DataWarning) as caught:
        classifier = ConvCapsClassifier(method="lda").fit(scene, Labels.from_array(labels))
        mapped = classifier.map(scene)
    said = {str(one.message) for one in caught if "absurd" in str(one.message) and "labelled" not in str(one.message)}
    assert any(
        "(1 pixel beyond 100,000 times the typical value of the scene; it is row 7, column 11" in s for s in said
    )
    assert len(said) == 1 and all(s.endswith("and get no class") for s in said)  # training and map say the same
    assert abs(classifier.scores_.oa - expected) < 3
    assert mapped.classes[7, 11] == 0 and (mapped.classes == 0).sum() == 1


def test_it_counts_as_invalid_in_every_window() -> None:
    cube, _ = wild_cube()
    cube[7, 12] = np.nan
    scene = Scene.from_array(cube)
    whole = scene.read()
    assert not whole.valid[7, 11] and not whole.valid[7, 12] and whole.valid.sum() == whole.valid.size - 2
    for row, col in ((7, 11), (7, 12), (0, 0), (7, 10)):
        alone = Scene.from_array(cube).read(slice(row, row + 1), slice(col, col + 1))
        assert alone.valid[0, 0] == whole.valid[row, col]
    assert list(scene.absurd.values) == [(7, 11)]


def test_evaluate_leaves_it_out() -> None:
    cube, labels = make_cube()
    classifier = ConvCapsClassifier(method="lda").fit(
        Scene.from_array(cube.astype(np.float32)), Labels.from_array(labels)
    )
    row, col = np.argwhere(labels > 0)[0].tolist()
    scene, truth = Scene.from_array(wild_cube(at=(row, col))[0]), Labels.from_array(labels)
    left_out = f"1 labelled pixels .* it is row {row}, column {col}.*left out"
    with pytest.warns(DataWarning, match="the score is too high"), pytest.warns(DataWarning, match=left_out):
        assert classifier.evaluate(scene, truth).n_test == (labels > 0).sum() - 1


@pytest.mark.parametrize("times", [10, 1000, 50_000])
def test_bright_targets_are_kept(times: float) -> None:
    cube, _ = wild_cube(0.0)
    cube[3, 3] = times * np.median(cube)
    assert Scene.from_array(cube).read().valid.all()


def test_no_pixel_of_a_sensor_with_16_bits_is_absurd() -> None:
    dark = np.ones((20, 20, 4), dtype=np.uint16)
    dark[4, 4] = 65_535
    assert Scene.from_array(dark).read().valid.all()
    assert Scene.from_array(dark.astype(np.float32)).read().valid.all()


def test_background_of_zeros_and_nodata_says_nothing_about_the_limit() -> None:
    cube = np.zeros((60, 60, 4), dtype=np.float32)
    cube[40:50, 40:50] = 100.0
    cube[45, 45, 2] = 1e20
    for nodata in (None, 0.0):
        valid = Scene.from_array(cube, nodata=nodata).read().valid
        assert not valid[45, 45] and valid[44, 44]
    assert Scene.from_array(np.zeros((9, 9, 2))).read().valid.all()


@pytest.mark.parametrize(("value", "rows"), [(1e30, 30), (1e30, 55), (-9.96921e36, 55), (1e12, 25)])
def test_large_areas_of_fill_values_do_not_set_the_limit(value: float, rows: int) -> None:
    """They begin in the first corner, as those around a rotated image do."""
    cube = np.random.default_rng(0).uniform(100, 200, (60, 60, 4)).astype(np.float32)
    cube[:rows, :, 2] = value
    valid = Scene.from_array(cube).read().valid
    assert not valid[:rows].any() and valid[rows:].all()


def test_a_scene_of_large_numbers_alone_is_valid() -> None:
    assert Scene.from_array(np.full((9, 9, 2), 1e25)).read().valid.all()


def test_many_are_counted_up_to_a_limit() -> None:
    cube = np.ones((100, 100, 2), dtype=np.float32)
    cube[10:30] = 1e20
    scene = Scene.from_array(cube)
    assert scene.why_invalid() == "NaN, infinity, nodata or absurd values"
    scene.read()
    assert "1,000 or more pixels" in scene.why_invalid() and "the first is row 10, column 0" in scene.why_invalid()


def test_a_resampled_scene_knows_them() -> None:
    cube, _ = wild_cube()
    scene = replace(Scene.from_array(cube), wavelengths=np.arange(26) * 10.0 + 400)
    made = resample(scene, np.arange(12) * 20.0 + 405)
    assert not made.read().valid[7, 11] and "row 7, column 11" in made.why_invalid()


def test_an_ordinary_scene_is_read_without_a_word() -> None:
    cube, _ = make_cube()
    scene = Scene.from_array(cube.astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(scene.read().values, scene.reader(slice(0, 99), slice(0, 99)).values)
