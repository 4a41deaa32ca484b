from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from hypercaps.data.labels import Labels
from hypercaps.data.splits import (
    Split,
    SplitDescription,
    SplitRequest,
    check_kind,
    connected_areas,
    draw,
    floor_share,
    split_by_share,
    split_per_class,
    split_polygons,
)
from hypercaps.errors import DataWarning, SplitError
from hypercaps.io.open import open_labels

# Training, validation and test pixels of every class, from the paper's tables of samples.
PAPER = {
    "indian_pines/Indian_pines_gt.mat": (
        [9, 285, 166, 47, 96, 146, 5, 95, 4, 194, 491, 118, 41, 253, 77, 18],
        [4, 142, 83, 23, 48, 73, 2, 47, 2, 97, 245, 59, 20, 126, 38, 9],
        [33, 1001, 581, 167, 339, 511, 21, 336, 14, 681, 1719, 416, 144, 886, 271, 66],
        (2045, 1018, 7186),
    ),
    "pavia_university/PaviaU_gt.mat": (
        [1326, 3729, 419, 612, 269, 1005, 266, 736, 189],
        [663, 1864, 209, 306, 134, 502, 133, 368, 94],
        [4642, 13056, 1471, 2146, 942, 3522, 931, 2578, 664],
        (8551, 4273, 29952),
    ),
    "salinas/Salinas_gt.mat": (
        [401, 745, 395, 278, 535, 791, 715, 2254, 1240, 655, 213, 385, 183, 214, 1453, 361],
        [200, 372, 197, 139, 267, 395, 357, 1127, 620, 327, 106, 192, 91, 107, 726, 180],
        [1408, 2609, 1384, 977, 1876, 2773, 2507, 7890, 4343, 2296, 749, 1350, 642, 749, 5089, 1266],
        (10818, 5403, 37908),
    ),
}


@pytest.mark.parametrize("file", PAPER)
def test_shares_are_those_of_the_papers_tables(file: str, real_data: Path) -> None:
    labels = open_labels(real_data / file)
    split = split_by_share(labels, 0.2, 0.1, seed=0)
    flat = labels.array.ravel()
    *rows, totals = PAPER[file]
    for indices, expected in zip((split.train, split.val, split.test), rows, strict=True):
        assert [int((flat[indices] == entry.label).sum()) for entry in labels.legend] == expected
    assert (split.train.size, split.val.size, split.test.size) == totals


def test_the_demo_scene_splits_as_in_the_paper() -> None:
    split = split_by_share(open_labels("indian-pines"))
    assert (split.train.size, split.val.size, split.test.size) == (2045, 1018, 7186)


def labels_of(*counts: int) -> Labels:
    flat = np.concatenate([np.full(n, k + 1) for k, n in enumerate(counts)])
    return Labels.from_array(np.random.default_rng(0).permutation(flat)[None, :])


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(20, 60), min_size=1, max_size=4),
    train=st.sampled_from([0.05, 0.1, 0.2, 0.5]),
    val=st.sampled_from([0.05, 0.1, 0.3]),
    seed=st.integers(0, 99),
)
def test_a_split_is_a_partition_of_the_labelled_pixels(counts: list[int], train: float, val: float, seed: int) -> None:
    labels = labels_of(*counts)
    split = split_by_share(labels, train, val, seed=seed)
    together = np.sort(np.concatenate([split.train, split.val, split.test]))
    np.testing.assert_array_equal(together, np.flatnonzero(labels.array.ravel()))
    again, other = split_by_share(labels, train, val, seed=seed), split_by_share(labels, train, val, seed=seed + 1)
    assert again.digest() == split.digest() != other.digest()


def test_floor_is_exact_in_decimals() -> None:
    assert floor_share(0.29, 100) == 29  # 0.29 * 100 is 28.999... in binary
    assert floor_share(0.1, 30) == 3
    assert floor_share(0.2, 28) == 5


def test_n_of_each_class() -> None:
    labels = labels_of(30, 50)
    split = split_per_class(labels, 10, 0.1, seed=3)
    flat = labels.array.ravel()
    assert np.bincount(flat[split.train]).tolist() == [0, 10, 10]
    assert np.bincount(flat[split.val]).tolist() == [0, 3, 5]
    assert np.bincount(flat[split.test]).tolist() == [0, 17, 35]
    assert split.seed == 3


def drawn(labels: Labels, split: Split) -> list[list[int]]:
    """Pixels of each class in each set."""
    flat, classes = labels.array.ravel(), len(labels.legend)
    sets = (split.train, split.val, split.test)
    return [np.bincount(flat[part], minlength=classes + 1)[1:].tolist() for part in sets]


def test_small_classes_train_with_at_least_one_pixel() -> None:
    labels = labels_of(30, 4, 2, 1)
    with pytest.warns(DataWarning) as caught:
        split = split_by_share(labels, 0.2, 0.1)
    assert drawn(labels, split) == [[6, 1, 1, 1], [3, 0, 0, 0], [21, 3, 1, 0]]
    texts = [str(one.message) for one in caught]
    assert "0.2 takes no pixel of some classes, so one trains: 1 of class 2 (4 labelled), 1 of class 3 (2" in texts[0]
    assert "class 4 can't be tested: the only labelled pixel trains" in texts[1]
    assert texts[2].endswith("takes no pixel of class 2, class 3, class 4: confidence is not calibrated on them")


def test_classes_too_small_for_a_number_of_pixels_train_with_fewer() -> None:
    labels = labels_of(50, 30, 2, 1)
    with pytest.warns(DataWarning) as caught:
        split = split_per_class(labels, 27, 0.1)
    assert "27 training pixels, so fewer train: 26 of class 2 (30 labelled), 1 of" in str(caught[0].message)
    assert drawn(labels, split) == [[27, 26, 1, 1], [5, 3, 0, 0], [18, 1, 1, 0]]
    with pytest.warns(DataWarning):
        split = split_per_class(labels, 27, 0.9, at_most=0.5)  # the share of validation is reduced too
    assert [part[2:] for part in drawn(labels, split)] == [[1, 1], [0, 0], [1, 0]]


def test_a_number_of_pixels_that_no_class_has() -> None:
    with pytest.raises(SplitError, match=r"no class of .* for 46 to train.*ask for at most 44 per class"):
        split_per_class(labels_of(50, 30), 46)


def test_labels_of_one_pixel_per_class_leave_nothing_to_test() -> None:
    for draw_split in (split_by_share, lambda labels: split_per_class(labels, 3)):
        with pytest.raises(SplitError, match=r"one labelled pixel only.*--split none"):
            draw_split(labels_of(1, 1))


@pytest.mark.parametrize(("train", "val"), [(0, 0.1), (1.0, 0), (0.9, 0.1), (0.2, -0.1), (-1, 0.1), (0.7, 0.3)])
def test_impossible_shares_are_refused(train: float, val: float) -> None:
    with pytest.raises(SplitError, match="don't work"):
        split_by_share(labels_of(30, 30), train, val)


@pytest.mark.parametrize(("n", "val"), [(0, 0.1), (-2, 0.1), (3, 1.0)])
def test_impossible_numbers_are_refused(n: int, val: float) -> None:
    with pytest.raises(SplitError, match="don't work"):
        split_per_class(labels_of(30, 30), n, val)


def test_a_class_without_validation_pixels_gives_a_warning() -> None:
    with pytest.warns(DataWarning, match="no pixel of class 2"):
        split_by_share(labels_of(30, 6), 0.2, 0.1)


def test_sets_must_be_disjoint_inside_the_scene_and_flat() -> None:
    labels = Labels.from_array(np.ones((3, 4), int))
    make = lambda train, val, test: Split.from_indices(labels, train, val, test)  # noqa: E731
    with pytest.raises(SplitError, match="more than once"):
        make([0, 1], [1], [2])
    with pytest.raises(SplitError, match="more than once"):
        make([0, 0], [1], [2])
    with pytest.raises(SplitError, match="holds pixel 12, outside 0 to 11"):
        make([0], [1], [12])
    with pytest.raises(SplitError, match="holds pixel -1"):
        make([0], [-1], [2])
    with pytest.raises(SplitError, match="flat list"):
        make([[0, 1]], [2], [3])
    with pytest.raises(SplitError, match="flat list"):
        make([0.5], [1], [2])
    with pytest.raises(SplitError, match="no training pixel"):
        make([], [1], [2])


def test_unlabelled_pixels_in_a_split_are_refused() -> None:
    labels = Labels.from_array([[1, 0, 1, 1]])
    with pytest.raises(SplitError, match="1 of the 2 test pixels are unlabelled"):
        Split.from_indices(labels, [0], [], [1, 2])


def by_hand_leakage(split: Split) -> float:
    half = split.patch // 2
    cols = split.shape[1]
    near = 0
    for pixel in split.test:
        r, c = divmod(int(pixel), cols)
        near += any(abs(r - t // cols) <= half and abs(c - t % cols) <= half for t in split.train.tolist())
    return near / split.test.size


@pytest.mark.parametrize("patch", [1, 3, 7])
def test_leakage_counts_test_patches_that_hold_a_training_pixel(patch: int) -> None:
    labels = Labels.from_array(np.ones((9, 11), int))
    split = split_by_share(labels, 0.05, 0.05, seed=1, patch=patch)
    assert split.leakage == pytest.approx(by_hand_leakage(split))
    assert split.with_patch(3).leakage == pytest.approx(by_hand_leakage(split.with_patch(3)))


def test_leakage_does_not_wrap_around_the_border() -> None:
    labels = Labels.from_array(np.ones((5, 10), int))
    split = Split.from_indices(labels, train=[9], val=[], test=[10, 40], patch=3)  # (0, 9); (1, 0), (4, 0)
    assert split.leakage == 0
    assert Split.from_indices(labels, [9], [], [18, 40], patch=3).leakage == 0.5


def redraw(labels: Labels, description: SplitDescription) -> Split:
    request = description.request(patch=7)
    assert request is not None
    return draw(labels, request)


def test_a_described_split_can_be_drawn_again() -> None:
    labels = labels_of(40, 50)
    for split in (split_by_share(labels, 0.3, 0.2, seed=4), split_per_class(labels, 5, 0.2, seed=4)):
        again = redraw(labels, split.describe())
        assert again.digest() == split.digest() == split.describe().digest
    assert SplitDescription("file").request(patch=7) is None


@pytest.mark.parametrize(
    ("request_", "record"),
    [
        (SplitRequest(train=0.3, seed=4), {"kind": "share", "train": 0.3, "val": 0.1, "seed": 4}),
        (SplitRequest(per_class=5, val=0.2), {"kind": "per-class", "per_class": 5, "val": 0.2, "seed": 0}),
        (
            SplitRequest(per_class=5, at_most=0.5),
            {"kind": "per-class", "per_class": 5, "val": 0.1, "seed": 0, "at_most": 0.5},
        ),
        (SplitRequest("polygons"), {"kind": "polygons", "train": 0.2, "val": 0.1, "seed": 0}),
        (SplitRequest("polygons", per_class=9), {"kind": "polygons", "per_class": 9, "val": 0.1, "seed": 0}),
        (
            SplitRequest("blocks", per_class=9, patch=5),
            {"kind": "blocks", "train": 0.2, "per_class": 9, "val": 0.1, "block": 16, "guard": 2, "seed": 0},
        ),
    ],
)
def test_a_description_has_the_keys_of_a_model_file(request_: SplitRequest, record: dict[str, object]) -> None:
    description = SplitDescription.of(request_)
    assert description.to_json() == record
    assert SplitDescription.from_json(record) == description
    again = description.request(patch=request_.patch)
    assert again is not None and SplitDescription.of(again) == description


def test_a_drawn_split_describes_its_sizes() -> None:
    split = split_by_share(labels_of(40, 50), seed=1)
    record = split.describe().to_json()
    assert list(record)[4:] == ["n_train", "n_val", "n_test", "leakage", "patch", "digest"]
    assert (record["n_train"], record["n_val"], record["n_test"], record["patch"]) == (18, 9, 63, 7)


def test_descriptions_of_older_and_of_damaged_model_files() -> None:
    old = SplitDescription.from_json({"kind": "share", "train": 0.3, "digest": "ab", "later": [1]})
    assert (old.train, old.val, old.digest, old.labels) == (0.3, None, "ab", None)
    assert old.request(patch=5) == SplitRequest(train=0.3, patch=5)
    assert SplitDescription.from_json({}) == SplitDescription("given")
    for damaged in ({"train": "much"}, {"kind": 3}, {"n_val": [1]}):
        with pytest.raises(TypeError, match="its split has the"):
            SplitDescription.from_json(damaged)


def test_a_number_per_class_replaces_the_training_share_except_for_blocks() -> None:
    for kind in ("random", "polygons"):
        assert not SplitRequest(kind, train=5, per_class=3).uses_train  # and the share is not checked
    with pytest.raises(SplitError, match="shares of 5 for training"):
        SplitRequest("blocks", train=5, per_class=3)


# Whole polygons


def fields(*sizes: list[int], rows: int = 200) -> Labels:
    """One list of polygon sizes (in pixels, each in a row of its own, apart from each other) for each class."""
    array = np.zeros((rows, 400), dtype=np.int16)
    row = 0
    for label, polygons in enumerate(sizes, start=1):
        for size in polygons:
            array[row, :size] = label
            row += 2
    return Labels.from_array(array, name="fields")


def rows_of(split: Split, which: str) -> set[int]:
    return set((getattr(split, which) // split.shape[1]).tolist())


def test_polygons_stay_whole_and_shares_are_met() -> None:
    labels = fields([10] * 30, [5, 10, 20, 40, 7, 9, 11, 13, 17, 19])
    split = split_polygons(labels, 0.2, 0.1, seed=1)
    assert not (rows_of(split, "train") & rows_of(split, "val"))
    assert not (rows_of(split, "train") | rows_of(split, "val")) & rows_of(split, "test")
    together = np.sort(np.concatenate([split.train, split.val, split.test]))
    np.testing.assert_array_equal(together, np.flatnonzero(labels.array))
    flat = labels.array.ravel()
    for label, of_class in ((1, 300), (2, 151)):
        assert (flat[split.train] == label).sum() == pytest.approx(0.2 * of_class, abs=2)
        assert (flat[split.val] == label).sum() == pytest.approx(0.1 * of_class, abs=3)
    assert split.kind == "polygons" and split.leakage > 0.2  # patches of 7 reach over the gaps of one row ...
    assert split.with_patch(3).leakage == 0  # ... and those of 3 don't


def test_polygon_splits_repeat_by_seed_and_are_drawn_again_from_their_description() -> None:
    labels = fields([10] * 20, [3, 4, 5, 6, 7, 8])
    for options in ({}, {"per_class": 12}):
        one, other = split_polygons(labels, seed=4, **options), split_polygons(labels, seed=5, **options)
        again = redraw(labels, one.describe())
        assert again.digest() == one.digest() != other.digest()


def test_a_number_per_class_is_nearly_met() -> None:
    labels = fields([10] * 20, [3, 4, 5, 6, 7, 8])
    split = split_polygons(labels, per_class=12, seed=0)
    counts = np.bincount(labels.array.ravel()[split.train])
    assert counts[1] == 10 and counts[2] == 12
    with pytest.raises(SplitError, match="don't work"):
        split_polygons(labels, per_class=0)
    with pytest.raises(SplitError, match="don't work"):
        split_polygons(labels, 0.9, 0.1)


def test_classes_with_one_two_and_three_polygons() -> None:
    labels = fields([8], [90, 3], [50, 60, 70], [1] * 40)
    with pytest.warns(DataWarning) as caught:
        split = split_polygons(labels, 0.2, 0.1)
    texts = [str(one.message) for one in caught]
    assert [text.split(",")[0] for text in texts] == [
        "class 1 has one polygon only",
        "class 2: two polygons leave none to validate",
    ]
    assert texts[1].endswith("so that confidence is not calibrated on them")  # perhaps on no pixel at all
    flat = labels.array.ravel()
    held = {name: set(flat[getattr(split, name)].tolist()) for name in ("train", "val", "test")}
    assert held == {"train": {1, 2, 3, 4}, "val": {3, 4}, "test": {2, 3, 4}}
    assert (flat[split.train] == 2).sum() == 3  # 19 were requested: 3 is nearer than 90
    with pytest.raises(SplitError, match="every class of 'fields' has one polygon only"):
        split_polygons(fields([8], [3]))


def test_areas_that_meet_at_a_corner_are_one_and_classes_are_not_joined() -> None:
    areas = connected_areas(np.array([[1, 0, 1, 2], [0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 0, 3]], dtype=np.int16))
    assert areas.dtype == np.int32
    np.testing.assert_array_equal(areas, [[1, 0, 1, 2], [0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 0, 4]])


@settings(max_examples=80, deadline=None)
@given(rows=st.integers(1, 9), cols=st.integers(1, 9), classes=st.integers(1, 3), seed=st.integers(0, 999))
def test_areas_are_the_connected_areas_of_each_class(rows: int, cols: int, classes: int, seed: int) -> None:
    array = np.random.default_rng(seed).integers(0, classes + 1, (rows, cols)).astype(np.int16)
    areas = connected_areas(array)
    assert ((areas > 0) == (array > 0)).all()
    for label in range(1, classes + 1):
        expected, count = ndimage.label(array == label, structure=np.ones((3, 3)))
        pairs = {*zip(expected[array == label].tolist(), areas[array == label].tolist(), strict=True)}
        assert len(pairs) == count == len({area for _, area in pairs})
    numbers = areas[areas > 0]
    assert numbers[np.sort(np.unique(numbers, return_index=True)[1])].tolist() == list(range(1, areas.max() + 1))


def test_groups_of_labels_are_kept_whole() -> None:
    array = np.ones((4, 12), dtype=int)
    groups = np.repeat(np.arange(1, 5, dtype=np.int32), 12).reshape(4, 12)  # rows that touch, yet four polygons
    split = split_polygons(Labels.from_array(array, groups=groups), 0.25, 0.25, seed=3)
    assert [len(rows_of(split, name)) for name in ("train", "val", "test")] == [1, 1, 2]
    assert split.leakage > 0.2
    array[0, :6] = 2
    with pytest.raises(SplitError, match="several classes"):
        split_polygons(Labels.from_array(array, groups=groups))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 60), min_size=2, max_size=9), min_size=1, max_size=4),
    train=st.sampled_from([0.05, 0.2, 0.5, 0.7]),
    val=st.sampled_from([0.0, 0.1, 0.25]),
    seed=st.integers(0, 99),
)
@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
def test_every_class_trains_and_tests_whatever_its_polygons(
    sizes: list[list[int]], train: float, val: float, seed: int
) -> None:
    labels = fields(*sizes)
    split = split_polygons(labels, train, val, seed=seed)
    flat = labels.array.ravel()
    parts = {name: rows_of(split, name) for name in ("train", "val", "test")}
    assert not parts["train"] & parts["test"] and not parts["val"] & (parts["train"] | parts["test"])
    for label, polygons in enumerate(sizes, start=1):
        held = {name: int((flat[getattr(split, name)] == label).sum()) for name in parts}
        assert held["train"] and held["test"] and sum(held.values()) == sum(polygons)
        assert bool(held["val"]) == (val > 0 and len(polygons) > 2)


def test_an_unknown_kind_of_split() -> None:
    with pytest.raises(SplitError, match="no split 'rows': random, polygons, blocks, folds or none"):
        check_kind("rows")
