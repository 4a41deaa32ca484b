from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.data.labels import Labels
from hypercaps.data.splits import (
    Split,
    SplitDescription,
    SplitRequest,
    Units,
    draw,
    draw_folds,
    draw_requested_folds,
    label_units,
)
from hypercaps.data.window import Window
from hypercaps.errors import DataWarning, SplitError
from hypercaps.training.checks import check_split


def of_polygons(sizes: list[list[int]]) -> Labels:
    """Labels in one row: for each class, polygons of these sizes."""
    label = np.concatenate([np.full(n, k + 1) for k, own in enumerate(sizes) for n in own])
    group = np.repeat(np.arange(sum(map(len, sizes))) + 1, [n for own in sizes for n in own])
    return Labels.from_array(label[None], groups=group[None].astype(np.int32))


def of_units(classes: list[list[int]]) -> tuple[Labels, Units]:
    """Labels in one row and units that contain one pixel of each of the listed classes (from 1)."""
    label = np.concatenate([np.array(own) for own in classes])
    groups = np.repeat(np.arange(len(classes)) + 1, [len(own) for own in classes]).astype(np.int32)
    labels = Labels.from_array(label[None], groups=groups[None])
    return labels, label_units(labels)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=9), min_size=2, max_size=5),
    seed=st.integers(0, 99),
)
def test_every_polygon_is_held_out_once_and_every_class_keeps_training(sizes: list[list[int]], seed: int) -> None:
    labels = of_polygons(sizes)
    units = label_units(labels)
    if max(map(len, sizes)) == 1:
        with pytest.raises(SplitError, match=r"has one (polygon|point) only"):
            draw_folds(labels, units, seed=seed)
        return
    folds = draw_folds(labels, units, seed=seed)
    tested = [k for k, own in enumerate(sizes) if len(own) > 1]
    assert folds.count == min(5, sum(len(sizes[k]) for k in tested))
    assert folds.untested().tolist() == [k for k in range(len(sizes)) if k not in tested]
    held_out = np.concatenate([folds.held_out(k) for k in range(folds.count)])
    np.testing.assert_array_equal(np.sort(held_out), units.pixels[np.isin(units.class_of, tested)])
    for k in range(folds.count):
        assert folds.held_out(k).size
        both = np.sort(np.concatenate([folds.held_out(k), folds.training(k)]))
        np.testing.assert_array_equal(both, units.pixels)
        assert set(units.class_of[folds.fold != k]) == set(range(len(sizes)))
    for number in range(units.count):
        assert np.unique(folds.fold[units.unit == number]).size == 1
    for k in tested:  # in as many folds as possible
        assert np.unique(folds.fold[units.class_of == k]).size == min(folds.count, len(sizes[k]))
    again, other = (draw_folds(labels, units, seed=s) for s in (seed, seed + 1))
    assert again.digest() == folds.digest()
    assert other.count == folds.count


def test_folds_have_about_equal_numbers_of_pixels_of_each_class() -> None:
    rng = np.random.default_rng(0)
    labels = of_polygons([rng.integers(5, 60, 40).tolist(), rng.integers(1, 20, 25).tolist(), [9, 9, 9, 9, 9]])
    folds = draw_folds(labels, label_units(labels))
    for k in range(3):
        pixels = np.bincount(folds.fold[folds.units.class_of == k], minlength=5)
        assert pixels.max() <= 1.15 * pixels.mean(), pixels
    seeds = {draw_folds(labels, label_units(labels), seed=seed).digest() for seed in range(5)}
    assert len(seeds) == 5


def test_units_of_several_classes() -> None:
    rng = np.random.default_rng(1)
    array = rng.integers(1, 5, (64, 64)).astype(np.int16)
    array[40:60, 40:60] = 3
    array[3, 5] = 5  # one unit only: it is never held out, but the rest of its block is
    labels = Labels.from_array(array)
    units = label_units(labels)
    assert units.kind == "blocks"
    folds = draw_folds(labels, units)
    assert folds.untested().tolist() == [4]
    assert (folds.fold == -1).sum() == 1
    for k in range(4):
        pixels = np.bincount(folds.fold[units.class_of == k], minlength=5)
        assert pixels.max() < 1.5 * pixels.mean()


def test_three_tiles_of_two_classes_each_in_two_folds() -> None:
    """Two of three classes can't be in both folds: one unit of theirs trains always."""
    labels, units = of_units([[1, 2], [2, 3], [1, 3]])
    folds = draw_folds(labels, units, folds=2)
    for k in range(2):
        assert set(units.class_of[folds.fold != k]) == {0, 1, 2}
    assert folds.untested().size == 0
    assert draw_folds(labels, units).count == 3
    assert (draw_folds(labels, units).fold >= 0).all()


@pytest.mark.parametrize(("folds", "sentence"), [(1, "1 folds can't.*from 2 to 6"), (7, "7 folds"), (0, "0 folds")])
def test_impossible_numbers_of_folds(folds: int, sentence: str) -> None:
    labels = of_polygons([[3, 4, 5], [2, 2, 2], [8]])
    with pytest.raises(SplitError, match=sentence):
        draw_folds(labels, label_units(labels), folds=folds)
    assert draw_folds(labels, label_units(labels), folds=6).count == 6


def test_labels_of_which_nothing_can_be_held_out() -> None:
    array = np.zeros((12, 12), dtype=np.int16)
    array[:, :6], array[:, 8:] = 1, 2
    labels = Labels.from_array(array)
    with pytest.raises(SplitError, match=r"every class .* one area only.*label more areas.*--split none"):
        draw_folds(labels, label_units(labels))
    one = Labels.from_array(array[:, :6])
    with pytest.raises(SplitError, match=r"lie in one area.*label more areas.*--split none"):
        draw_folds(one, label_units(one))
    points = of_polygons([[1], [1]])
    with pytest.raises(SplitError, match=r"every class .* one point only.*label more points of each class"):
        draw_folds(points, label_units(points))


@pytest.mark.parametrize("count", [20_000, 60_000])
def test_many_units(count: int) -> None:
    rng = np.random.default_rng(0)
    sizes = np.split(rng.integers(1, 9, count), np.sort(rng.integers(0, count, 11)))
    labels = of_polygons([own.tolist() for own in sizes if own.size])
    folds = draw_folds(labels, label_units(labels))
    for k in range(len(labels.legend)):
        pixels = np.bincount(folds.fold[folds.units.class_of == k], minlength=5)
        assert pixels.max() < 1.1 * pixels.mean() + 8


def test_a_fold_as_a_split() -> None:
    labels = of_polygons([[5, 6, 7, 8], [4, 4, 4]])
    folds = draw_folds(labels, label_units(labels), folds=3, seed=4)
    split = folds.split(1, 5)
    np.testing.assert_array_equal(split.test, folds.held_out(1))
    np.testing.assert_array_equal(split.train, folds.training(1))
    assert split.val.size == 0 and split.patch == 5 and split.kind == "folds"
    assert split.how == SplitDescription("folds", seed=4, folds=3, units="polygons")
    check_split(split, labels)


# ---- requests --------------------------------------------------------------------------------------------------------


def mixed() -> Labels:
    return Labels.from_array(np.random.default_rng(0).integers(1, 4, (32, 32)))


def test_folds_are_drawn_again_from_their_description() -> None:
    for labels in (mixed(), of_polygons([[5, 6, 7, 8], [4, 4, 4]])):
        request = SplitRequest("folds", block=16, seed=3, patch=5)
        split = draw(labels, request)
        np.testing.assert_array_equal(split.train, np.flatnonzero(labels.array))
        assert (split.val.size, split.test.size, split.kind) == (0, 0, "folds")
        check_split(split, labels)
        how = SplitDescription.from_json(split.describe().to_json())
        assert how == split.describe() and (how.folds, how.train, how.val) == (5, None, None)
        again = how.request(patch=5)
        assert again is not None and again.folds == 5
        assert draw_requested_folds(labels, again).digest() == draw_requested_folds(labels, request).digest()
    assert draw(mixed(), SplitRequest("folds")).how.units == "blocks"
    assert draw(mixed(), SplitRequest("folds")).how.block == 8


def test_folds_of_tiles() -> None:
    tiles = (Window(0, 32, 0, 10), Window(0, 32, 10, 20), Window(0, 32, 20, 32))
    assert draw(mixed(), SplitRequest("folds"), tiles=tiles).how == SplitDescription(
        "folds", seed=0, folds=3, units="tiles"
    )
    with_tiles = Labels.from_array(mixed().array, tiles=tiles)
    assert draw(with_tiles, SplitRequest("folds")).how.units == "tiles"


def test_classes_that_are_never_tested_are_named() -> None:
    with pytest.warns(DataWarning, match=r"class 3 can't be tested: all pixels of it lie in one polygon"):
        draw(of_polygons([[3, 3], [3, 3], [5]]), SplitRequest("folds"))


def test_no_split_trains_on_all_labels() -> None:
    labels = mixed()
    split = draw(labels, SplitRequest("none", train=5.0, val=-1.0))  # shares are not used
    np.testing.assert_array_equal(split.train, np.flatnonzero(labels.array))
    assert (split.val.size, split.test.size, split.how) == (0, 0, SplitDescription("none"))
    check_split(split, labels)
    again = SplitDescription.from_json(split.describe().to_json()).request(patch=7)
    assert again is not None and again.kind == "none"
    given = Split(split.train, split.val, split.test, shape=split.shape)
    with pytest.raises(SplitError, match="no test pixel"):
        check_split(given, labels)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "folds", "folds": 1}, "2 or more"), ({"kind": "folds", "folds": 2.5}, "whole number"),
        ({"kind": "random", "folds": 3}, "with the split 'folds'"), ({"kind": "folds", "block": 1}, "at least 2"),
        ({"kind": "none", "per_class": 3}, "all labelled pixels train"),
    ],
)  # fmt: skip
def test_impossible_requests(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SplitError, match=sentence):
        SplitRequest(**options)  # type: ignore[arg-type]


def test_only_folds_have_folds() -> None:
    with pytest.raises(SplitError, match="has no folds"):
        draw_requested_folds(mixed(), SplitRequest("none"))


def two_fields_of_each_class(side: int, apart: int) -> Labels:
    """Square fields of two classes in one row, with unlabelled ground below and between."""
    array = np.zeros((2 * side + apart, 4 * (side + apart)), dtype=np.int16)
    for number in range(4):
        left = number * (side + apart)
        array[:side, left : left + side] = number % 2 + 1
    return Labels.from_array(array)


def test_whole_areas_are_held_out_where_the_map_is_far_from_labels() -> None:
    """Fields far apart, and most ground as far from them: a piece that is held out beside the rest says too little."""
    labels = two_fields_of_each_class(side=8, apart=40)
    folds = draw_requested_folds(labels, SplitRequest("folds", block=4))
    assert folds.units.kind == "areas" and folds.units.count == 4 and folds.count == 4


def test_pieces_of_areas_are_held_out_where_the_map_is_near_to_labels() -> None:
    """Large fields with a narrow strip of ground around them: most of the map is beside labels."""
    labels = two_fields_of_each_class(side=40, apart=2)
    array = labels.array.copy()
    array[44:] = array[:38]  # hardly any ground is left but the strips
    labels = Labels.from_array(array)
    pieces = label_units(labels, block=10).count
    folds = draw_requested_folds(labels, SplitRequest("folds", block=10))
    assert folds.units.count == pieces > 4 * 8


def test_areas_are_cut_where_every_class_has_one() -> None:
    array = np.zeros((60, 60), dtype=np.int16)
    array[:12, :12], array[40:52, 40:52] = 1, 2
    folds = draw_requested_folds(Labels.from_array(array), SplitRequest("folds", block=4))
    assert folds.units.count == 18 and folds.untested().size == 0


def test_the_recorded_folds_are_drawn_again() -> None:
    for labels in (two_fields_of_each_class(side=8, apart=40), two_fields_of_each_class(side=40, apart=2)):
        request = SplitRequest("folds", block=10, seed=4)
        folds = draw_requested_folds(labels, request)
        again = folds.describe().request(patch=7)
        assert again is not None
        assert draw_requested_folds(labels, again).digest() == folds.digest()


def test_classes_whose_labels_are_one_area_are_known() -> None:
    array = np.zeros((40, 60), dtype=np.int16)
    array[:, :20] = 1  # one area, cut into pieces
    array[:16, 22:38] = array[24:, 22:38] = 2  # two areas
    array[:3, 40:43] = 3  # one area that can't be cut: not tested
    labels = Labels.from_array(array)
    folds = draw_folds(labels, label_units(labels, block=16))
    assert folds.within_one_area().tolist() == [0] and folds.untested().tolist() == [2]
    polygons = of_polygons([[20, 30], [40]])  # polygons are units of their own, whatever they touch
    assert draw_folds(polygons, label_units(polygons)).within_one_area().size == 0


def test_pixels_that_are_held_out_beside_training_pixels_of_their_unit_are_counted() -> None:
    """A class that is in one tile only trains there, also while the other classes of the tile are held out."""
    array = np.zeros((20, 40), dtype=np.int16)
    for left in (0, 10, 20, 30):
        array[:10, left : left + 10], array[10:, left : left + 10] = 1, 2
    array[4:7, 4:7] = 3  # in the first tile only
    labels = Labels.from_array(array)
    tiles = [Window(0, 20, left, left + 10) for left in (0, 10, 20, 30)]
    folds = draw_folds(labels, label_units(labels, tiles=tiles), folds=4)
    assert folds.units.kind == "tiles" and folds.untested().tolist() == [2]
    assert folds.partly_seen() == 200 - 9
    own = int(folds.fold[folds.units.pixels == 0][0])
    beside = folds.split(own, 3)  # patches of 3 x 3 reach the class that trains in the middle of the tile
    assert beside.leakage > 0 and np.isin(np.flatnonzero(array == 3), beside.train).all()
    without = Labels.from_array(np.where(array == 3, 1, array))
    assert draw_folds(without, label_units(without, tiles=tiles), folds=4).partly_seen() == 0
