from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.errors import DataWarning, SplitError
from hypercaps.io.open import open_labels
from hypercaps.scene import Labels
from hypercaps.splits import Split, draw, floor_share, split_by_share, split_per_class

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


def test_too_few_pixels_name_the_class_and_the_way_out() -> None:
    with pytest.raises(SplitError, match=r"class 2 \(class 2\) has 4 labelled pixels.*at least 5"):
        split_by_share(labels_of(30, 4), 0.2, 0.1)
    with pytest.raises(SplitError, match="ask for at most 26 per class"):
        split_per_class(labels_of(30, 50), 27, 0.1)


@pytest.mark.parametrize(("train", "val"), [(0, 0.1), (1.0, 0), (0.9, 0.1), (0.2, -0.1), (-1, 0.1), (0.7, 0.3)])
def test_impossible_shares_are_refused(train: float, val: float) -> None:
    with pytest.raises(SplitError, match="don't work"):
        split_by_share(labels_of(30, 30), train, val)


@pytest.mark.parametrize(("n", "val"), [(0, 0.1), (-2, 0.1), (3, 1.0)])
def test_impossible_numbers_are_refused(n: int, val: float) -> None:
    with pytest.raises(SplitError, match="don't work"):
        split_per_class(labels_of(30, 30), n, val)


def test_a_class_without_validation_pixels_is_said() -> None:
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


def test_a_described_split_can_be_drawn_again() -> None:
    labels = labels_of(40, 50)
    for split in (split_by_share(labels, 0.3, 0.2, seed=4), split_per_class(labels, 5, 0.2, seed=4)):
        again = draw(labels, split.describe())
        assert again is not None and again.digest() == split.digest() == split.describe()["digest"]
    assert draw(labels, {"kind": "file"}) is None
