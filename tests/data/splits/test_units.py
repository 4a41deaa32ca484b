from __future__ import annotations

import numpy as np
import pytest

from hypercaps.data.labels import Labels
from hypercaps.data.splits import count_test_units, label_units
from hypercaps.data.window import Window
from hypercaps.errors import SplitError


def fields(rows: int = 40, cols: int = 60, side: int = 10, gap: int = 4, classes: int = 3) -> Labels:
    """Square fields of one class each, with unlabelled ground between them."""
    array = np.zeros((rows, cols), dtype=np.int16)
    for number, (r, c) in enumerate(
        (r, c) for r in range(0, rows - side + 1, side + gap) for c in range(0, cols - side + 1, side + gap)
    ):
        array[r : r + side, c : c + side] = number % classes + 1
    return Labels.from_array(array)


def test_polygons_of_a_vector_file_are_units() -> None:
    array = np.zeros((6, 6), dtype=np.int16)
    array[0, :4], array[3, 2:5] = 1, 2
    groups = np.zeros((6, 6), dtype=np.int32)
    groups[0, :2], groups[0, 2:4], groups[3, 2:5] = 9, 4, 7
    units = label_units(Labels.from_array(array, groups=groups), tiles=[Window(0, 1, 0, 6), Window(1, 6, 0, 6)])
    assert (units.kind, units.count, units.block) == ("polygons", 3, None)
    assert units.unit.tolist() == [0, 0, 1, 1, 2, 2, 2]  # in order of their first pixels
    assert units.class_of.tolist() == [0] * 4 + [1] * 3
    assert units.per_class().tolist() == [2, 1]
    np.testing.assert_array_equal(units.pixels, np.flatnonzero(array))


def test_points() -> None:
    array = np.zeros((20, 20), dtype=np.int16)
    array[::4, ::4] = 1 + np.arange(25).reshape(5, 5) % 2
    groups = np.zeros((20, 20), dtype=np.int32)
    groups[array > 0] = np.arange(1, 26)
    for labels in (Labels.from_array(array), Labels.from_array(array, groups=groups)):
        units = label_units(labels)
        assert units.kind == "points" and units.count == 25
        assert units.per_class().sum() == 25


def test_tiles_of_a_mosaic_are_units_if_two_have_labels() -> None:
    labels = fields()
    tiles = [Window(0, 40, 0, 20), Window(0, 40, 15, 40), Window(0, 40, 40, 60)]
    units = label_units(labels, tiles=tiles)
    assert (units.kind, units.count, units.block) == ("tiles", 3, None)
    col = units.pixels % 60
    # A pixel in two tiles belongs to the first.
    np.testing.assert_array_equal(units.unit, np.where(col < 20, 0, np.where(col < 40, 1, 2)))
    assert label_units(labels, tiles=tiles[:1]).kind == "areas"
    assert label_units(labels, tiles=[Window(0, 40, 0, 60), Window(0, 40, 40, 60)]).kind == "areas"


def test_connected_areas_are_cut_into_equal_pieces() -> None:
    array = np.zeros((60, 80), dtype=np.int16)
    array[0:40, 0:20], array[50:53, 60:64], array[0:20, 40:60] = 1, 2, 1
    units = label_units(Labels.from_array(array), block=16)
    assert (units.kind, units.block) == ("areas", 16)
    # 40 rows in three parts, 20 in two, 20 columns in two.
    assert units.per_class().tolist() == [10, 1]
    row, col = np.divmod(units.pixels, 80)
    for number in range(units.count):
        own = units.unit == number
        assert np.ptp(row[own]) < 16 and np.ptp(col[own]) < 16
        assert np.unique(units.class_of[own]).size == 1
    sizes = np.bincount(units.unit)
    assert sorted(sizes.tolist()) == [12, *[100] * 4, *[130] * 4, 140, 140]
    first = [int(np.flatnonzero(units.unit == number)[0]) for number in range(units.count)]
    assert first == sorted(first)
    assert label_units(fields(), block=16).count == 12
    assert label_units(fields(), block=5).count == 48


@pytest.mark.parametrize(
    ("side", "block", "pieces"),
    [
        (40, 16, 2 * 9),  # enough as they are
        (20, 8, 2 * 9),  # 2 x 4 pieces of 16 are too few
        (9, 4, 2 * 9),  # 2 of 16, 2 x 4 of 8
        (5, 4, 2 * 4),  # too few, but pieces of 4 pixels are not cut further
        (3, 4, 2),
    ],
)
def test_areas_are_cut_finer_until_there_are_ten_pieces(side: int, block: int, pieces: int) -> None:
    array = np.zeros((100, 100), dtype=np.int16)
    array[:side, :side], array[-side:, -side:] = 1, 2
    units = label_units(Labels.from_array(array), block=16)
    assert (units.kind, units.block, units.count) == ("areas", block, pieces)
    # The recorded side gives the same units again.
    np.testing.assert_array_equal(label_units(Labels.from_array(array), block=block).unit, units.unit)


def test_a_side_as_long_as_the_scene_keeps_areas_whole() -> None:
    array = np.zeros((30, 50), dtype=np.int16)
    array[:20, :20], array[:20, 30:] = 1, 2
    assert label_units(Labels.from_array(array), block=50).count == 2
    assert label_units(Labels.from_array(array), block=49).count >= 10


def test_single_pixels_in_a_mosaic_are_points_and_not_tiles() -> None:
    tiles = [Window(0, 40, 0, 30), Window(0, 40, 30, 60)]
    array = np.zeros((40, 60), dtype=np.int16)
    array[2::6, 2::6] = 1 + np.arange(70).reshape(7, 10) % 2
    units = label_units(Labels.from_array(array), tiles=tiles)
    assert (units.kind, units.count) == ("points", 70)
    # Many that touch make fields of them, a few do not.
    array[2:30:6, 3:30:6] = array[2:30:6, 2:30:6]
    assert (array > 0).sum() == 95
    assert label_units(Labels.from_array(array), tiles=tiles).kind == "tiles"
    array[8:, 3::6] = 0
    assert label_units(Labels.from_array(array), tiles=tiles).kind != "tiles"


def test_finely_mixed_labels_are_cut_into_squares() -> None:
    array = np.random.default_rng(0).integers(1, 4, (64, 70)).astype(np.int16)
    units = label_units(Labels.from_array(array), block=16)
    # 4 x 4 squares; the remainder of 6 columns belongs to the last ones.
    assert (units.kind, units.count, units.block) == ("blocks", 16, 16)
    assert np.bincount(units.unit).max() == 16 * 22
    assert units.per_class().tolist() == [16] * 3


def test_pieces_of_one_area_are_one_sample_of_squares_too() -> None:
    """A lake among mixed pixels lies in four squares, and is one independent unit."""
    array = np.random.default_rng(0).integers(1, 4, (64, 64)).astype(np.int16)
    array[20:44, 20:44] = 4
    labels = Labels.from_array(array)
    units = label_units(labels, block=16)
    assert units.kind == "blocks" and units.per_class()[3] == 4
    every = np.arange(units.pixels.size)
    assert units.independent(every, units.class_of, 4).tolist() == [*units.per_class()[:3], 1]


def test_pieces_of_one_area_are_one_sample_of_test_labels_too() -> None:
    array = np.zeros((60, 60), dtype=np.int16)
    array[:40, :20], array[:20, 40:], array[40:, 40:] = 1, 2, 2
    labels = Labels.from_array(array)
    assert (label_units(labels).per_class() > 2).all()
    assert count_test_units(labels, np.array([1, 2, 5], dtype=np.int16), None).tolist() == [1, 2, 0]


@pytest.mark.parametrize(("side", "block"), [(32, 8), (14, 4), (6, 4)])
def test_squares_are_halved_until_there_are_ten(side: int, block: int) -> None:
    array = np.random.default_rng(0).integers(1, 4, (side, side)).astype(np.int16)
    units = label_units(Labels.from_array(array), block=16)
    assert units.block == block
    # The recorded side gives the same units again.
    np.testing.assert_array_equal(label_units(Labels.from_array(array), block=block).unit, units.unit)


def test_a_block_of_no_pixels_is_refused() -> None:
    with pytest.raises(SplitError, match="a side of 1 or more"):
        label_units(fields(), block=0)


def test_specks_belong_to_the_area_that_they_touch_most() -> None:
    array = np.zeros((30, 30), dtype=np.int16)
    array[2:12, 2:12], array[2:12, 12:22] = 1, 2
    array[6, 6] = 3  # inside
    array[8:11, 11] = 3  # beside both: five sides to class 1, three to class 2
    array[25, 25] = 3  # alone
    units = label_units(Labels.from_array(array), block=30)
    assert units.count == 3 and units.per_class().tolist() == [1, 1, 2]
    unit = np.full(array.shape, -1)
    unit.ravel()[units.pixels] = units.unit
    assert unit[6, 6] == unit[9, 11] == unit[2, 2] and unit[25, 25] not in (unit[2, 2], unit[2, 20])
    array[20:22, 2:4], array[20:22, 4:6] = 1, 3  # four pixels are an area
    assert label_units(Labels.from_array(array), block=30).per_class().tolist() == [2, 1, 3]


def test_wrong_labels_do_not_change_what_is_held_out() -> None:
    clean = fields(60, 60)
    array = clean.array.copy()
    inside = np.random.default_rng(0).choice(np.flatnonzero(array), 48, replace=False)
    array.ravel()[inside] = array.ravel()[inside] % 3 + 1
    before, after = label_units(clean), label_units(Labels.from_array(array))
    assert before.kind == after.kind == "areas"
    np.testing.assert_array_equal(before.unit, after.unit)
