"""split.npz: what a run wrote is read back, and what does not fit the labels is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import SplitDescription, split_by_share
from hypercaps.errors import SplitError
from hypercaps.io.open import open_split
from hypercaps.io.writers.atomic import write_npz

Made = tuple[Scene, Labels]


@pytest.fixture
def labels() -> Labels:
    """Rows of classes 1 and 2; the last column is unlabelled."""
    array = np.repeat([[1, 2, 1, 2, 0]], 4, axis=0)
    return Labels.from_array(array)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_there_and_back(made: Made, tmp_path: Path) -> None:
    _, truth = made
    drawn = split_by_share(truth, 0.2, 0.1, seed=3)
    write_npz(tmp_path / "split.npz", train=drawn.train, val=drawn.val, test=drawn.test)
    read = open_split(tmp_path / "split.npz", truth)
    for name in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(read, name), getattr(drawn, name))
    assert read.digest() == drawn.digest()
    assert read.leakage == drawn.leakage
    assert read.how == SplitDescription("file", file="split.npz")


def test_the_patch_counts_for_leakage(labels: Labels, tmp_path: Path) -> None:
    write_npz(tmp_path / "split.npz", train=ints(0, 1), val=ints(), test=ints(3, 18))
    assert open_split(tmp_path / "split.npz", labels, patch=3).leakage == 0.0
    assert open_split(tmp_path / "split.npz", labels, patch=5).leakage == 0.5


@pytest.mark.parametrize("dtype", ["int16", "int32", "uint32", "uint64", ">i4"])
def test_every_kind_of_whole_number(dtype: str, labels: Labels, tmp_path: Path) -> None:
    write_npz(
        tmp_path / "split.npz", train=ints(1, 0).astype(dtype), val=ints(2).astype(dtype), test=ints(8, 6).astype(dtype)
    )
    read = open_split(tmp_path / "split.npz", labels)
    assert (read.train.tolist(), read.val.tolist(), read.test.tolist()) == ([0, 1], [2], [6, 8])


def test_more_arrays_do_no_harm(labels: Labels, tmp_path: Path) -> None:
    write_npz(tmp_path / "s.npz", train=ints(0, 1), val=ints(2), test=ints(3), seed=np.array(5))
    assert open_split(tmp_path / "s.npz", labels).test.tolist() == [3]


@pytest.mark.parametrize("there", [[], ["train"], ["train", "test"], ["val", "test"]])
def test_missing_sets_are_named(there: list[str], labels: Labels, tmp_path: Path) -> None:
    write_npz(tmp_path / "s.npz", something=ints(9), **{name: ints(i) for i, name in enumerate(there)})
    missing = ", ".join(name for name in ("train", "val", "test") if name not in there)
    with pytest.raises(SplitError, match=rf"s\.npz is not a split: it lacks {missing};.*train, val and test"):
        open_split(tmp_path / "s.npz", labels)


@pytest.mark.parametrize(
    ("train", "val", "test", "message"),
    [
        (ints(0, 1), ints(2), ints(1, 3), r"must not share pixels, but 1 pixels \(the first is 1\)"),
        (ints(0, 1), ints(1, 2), ints(3), "must not share pixels"),
        (ints(0, 1, 1), ints(2), ints(3), "more than once"),
        (ints(0, 20), ints(2), ints(3), "holds pixel 20, outside 0 to 19 of a 4 x 5 scene"),
        (ints(0, 1), ints(-1), ints(3), "'val' holds pixel -1, outside"),
        (ints(0, 1), ints(2), np.array([2**64 - 1], dtype=np.uint64), "'test' holds pixel 18446744073709551615"),
        (np.array([0.0, 1.0]), ints(2), ints(3), "'train' is a float64 array"),
        (ints(0, 1), ints(2), np.array([True, False]), "'test' is a bool array"),
        (ints(0, 1), ints(2), np.array(["3"]), "'test' is a <U1 array"),
        (ints(0, 1).reshape(1, 2), ints(2), ints(3), r"shape \(1, 2\).*flat list"),
        (np.array(0), ints(2), ints(3), "flat list"),
        (ints(0, 4), ints(2), ints(3), "1 of the 2 train pixels are unlabelled"),
        (ints(0, 1), ints(4, 9), ints(3), "2 of the 2 val pixels are unlabelled"),
        (ints(0, 1), ints(2), ints(3, 14), "1 of the 2 test pixels are unlabelled"),
        (ints(), ints(2), ints(3), "no training pixel"),
    ],
)
def test_what_does_not_fit_the_labels(
    train: np.ndarray, val: np.ndarray, test: np.ndarray, message: str, labels: Labels, tmp_path: Path
) -> None:
    write_npz(tmp_path / "s.npz", train=train, val=val, test=test)
    with pytest.raises(SplitError, match=message):
        open_split(tmp_path / "s.npz", labels)


def test_a_file_that_is_no_npz(labels: Labels, tmp_path: Path) -> None:
    (tmp_path / "split.csv").write_text("train,val,test\n0,1,2\n")
    with pytest.raises(SplitError, match=r"split\.csv"):
        open_split(tmp_path / "split.csv", labels)
    np.save(tmp_path / "split.npy", ints(0, 1, 2))
    with pytest.raises(SplitError, match="lacks train, val, test"):
        open_split(tmp_path / "split.npy", labels)


def test_no_file_at_all(labels: Labels, tmp_path: Path) -> None:
    with pytest.raises(SplitError, match=re.escape(f"there is no file {tmp_path / 'split.npz'}")):
        open_split(tmp_path / "split.npz", labels)
    with pytest.raises(SplitError, match=re.escape(str(tmp_path))):
        open_split(tmp_path, labels)


@pytest.mark.parametrize("keep", [0, 3, 30, 200, -1])
def test_truncated(keep: int, labels: Labels, tmp_path: Path) -> None:
    write_npz(tmp_path / "whole.npz", train=ints(0, 1), val=ints(2), test=ints(3))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:keep])
    with pytest.raises(SplitError, match=r"cut\.npz"):
        open_split(tmp_path / "cut.npz", labels)


def test_pickled_sets_are_refused(labels: Labels, tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", train=np.array([0, 1], dtype=object), val=ints(2), test=ints(3))
    with pytest.raises(SplitError, match=r"s\.npz"):
        open_split(tmp_path / "s.npz", labels)
