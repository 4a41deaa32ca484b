"""Block splits: no test patch contains a training pixel."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps import ConvCapsClassifier, Labels, Scene, load_model, open_labels, split_blocks
from hypercaps.data.splits import Split, SplitDescription, draw
from hypercaps.errors import DataWarning, SplitError


def quietly(labels: Labels, *args: float, **kwargs: int | None) -> Split:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return split_blocks(labels, *args, **kwargs)  # type: ignore[arg-type]


def redraw(labels: Labels, description: SplitDescription, patch: int) -> Split:
    request = description.request(patch=patch)
    assert request is not None
    return draw(labels, request)


def fields(rows: int = 96, cols: int = 96, side: int = 8, classes: int = 4, seed: int = 0) -> Labels:
    """Square fields of one class each, a fifth of them unlabelled."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(1, classes + 1, (-(-rows // side), -(-cols // side))) * (
        rng.random((-(-rows // side), -(-cols // side))) < 0.8
    )
    return Labels.from_array(
        np.kron(drawn, np.ones((side, side), dtype=int))[:rows, :cols].astype(np.int16), name="fields"
    )


def distances_below(split: Split, one: np.ndarray, two: np.ndarray, half: int) -> int:
    """Pixels of ``one`` that are within ``half`` rows and columns of one of ``two``, by comparing all pairs."""
    (r1, c1), (r2, c2) = np.divmod(one, split.shape[1]), np.divmod(two, split.shape[1])
    near = (abs(r1[:, None] - r2) <= half) & (abs(c1[:, None] - c2) <= half)
    return int(near.any(axis=1).sum())


@settings(max_examples=25, deadline=None)
@given(
    st.integers(20, 60), st.integers(20, 60), st.integers(7, 20), st.sampled_from([1, 3, 7]), st.integers(0, 5),
    st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([None, 1, 4]),
)  # fmt: skip
def test_no_test_patch_holds_a_training_or_validation_pixel(
    rows: int, cols: int, block: int, patch: int, seed: int, val: float, n: int | None
) -> None:
    labels = fields(rows, cols, side=5, classes=3, seed=seed)
    try:
        split = quietly(labels, 0.3, val, block=block, patch=patch, seed=seed, per_class=n)
    except SplitError:
        return  # nothing left to test
    half = patch // 2
    assert distances_below(split, split.test, np.concatenate([split.train, split.val]), half) == 0
    assert distances_below(split, split.val, split.train, half) == 0
    assert split.leakage == 0.0 and split.kind == "blocks" and split.test.size > 0
    flat = labels.array.ravel()
    assert set(flat[split.train]) == set(flat[flat > 0])  # every class trains
    assert (split.val.size > 0) <= (val > 0)
    if n is not None:
        assert max(np.bincount(flat[split.train])) <= n
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        again = redraw(labels, split.describe(), patch)
    assert again.digest() == split.digest()


def test_blocks_stay_whole_and_the_shares_are_nearly_met() -> None:
    labels = fields(160, 160, classes=3)
    split = split_blocks(labels, 0.3, 0.2, block=16, seed=1)
    block = np.arange(160)[:, None] // 16 * 10 + np.arange(160) // 16
    sets = [set(block.ravel()[indices].tolist()) for indices in (split.train, split.val, split.test)]
    assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    labelled = labels.array.ravel()
    for k in (1, 2, 3):
        assert abs((labelled[split.train] == k).sum() / (labelled == k).sum() - 0.3) < 0.05
        # All labelled pixels of the training blocks train: the guard band is removed from the others.
        assert (labelled[split.train] == k).sum() == ((labelled == k) & np.isin(block.ravel(), list(sets[0]))).sum()


def test_splits_repeat_by_seed() -> None:
    labels = fields()
    one, two, other = (quietly(labels, seed=seed) for seed in (3, 3, 4))
    assert one.digest() == two.digest() != other.digest()


def test_the_test_set_does_not_depend_on_the_number_of_labels() -> None:
    labels = fields()
    few, many = (quietly(labels, 0.3, per_class=n, seed=2) for n in (3, 20))
    assert np.array_equal(few.test, many.test) and np.array_equal(few.val, many.val)
    counts = [np.bincount(labels.array.ravel()[split.train])[1:].tolist() for split in (few, many)]
    assert counts == [[3] * 4, [20] * 4]


def test_the_guard_band_does_not_depend_on_the_patch_a_split_is_redrawn_for() -> None:
    labels = fields()
    split = quietly(labels, 0.3, patch=5)
    again = redraw(labels, split.how, 9)
    assert again.digest() == split.digest() and again.patch == 9 and again.leakage > 0


def blobs(*places: tuple[int, int]) -> Labels:
    """Class 1 everywhere but in small squares of class 2 at these places."""
    array = np.ones((64, 64), dtype=np.int16)
    for r, c in places:
        array[r : r + 4, c : c + 4] = 2
    return Labels.from_array(array, name="blobs")


def test_classes_of_one_and_of_two_blocks_are_named() -> None:
    with pytest.warns(DataWarning, match=r"class 2 can't be tested: too few blocks of 16 x 16.*hold it.*down to 7"):
        split = split_blocks(blobs((6, 6)), 0.3, 0.1)
    flat = blobs((6, 6)).array.ravel()
    assert (flat[split.train] == 2).sum() == 16 and (flat[split.test] == 2).sum() == 0
    two = blobs((6, 6), (38, 38))
    with pytest.warns(DataWarning, match="class 2: too few blocks leave none to validate"):
        split = split_blocks(two, 0.3, 0.1)
    flat = two.array.ravel()
    assert [(flat[i] == 2).sum() for i in (split.train, split.val, split.test)] == [16, 0, 16]
    three = blobs((6, 6), (38, 38), (6, 38))
    split = split_blocks(three, 0.3, 0.1)  # without a warning
    assert all(np.isin([1, 2], three.array.ravel()[i]).all() for i in (split.train, split.val, split.test))


def test_too_few_pixels_in_the_training_blocks_are_named() -> None:
    labels = blobs((6, 6), (38, 38), (6, 38))
    with pytest.warns(DataWarning, match=r"fewer than 50 pixels of class 2 \(16\): all of them train"):
        split = split_blocks(labels, 0.3, 0.1, per_class=50)
    assert split.train.size == 66


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"block": 6}, "blocks of 6 pixels can't keep patches of 7 x 7 apart.*at least 7"),
        ({"block": 16.5}, "whole number of at least 7"),
        ({"block": 100}, "blocks of 100 x 100 pixels leave nothing of 'fields' to test: use smaller"),
        ({"train": 0.9, "val": 0.2}, "shares of 0.9"),
        ({"per_class": 0}, "0 training pixels per class"),
    ],
)
def test_impossible_block_splits_are_refused(wrong: dict[str, float], match: str) -> None:
    with pytest.raises(SplitError, match=match):
        split_blocks(fields(), **wrong)  # type: ignore[arg-type]


def test_indian_pines_has_every_class_in_all_sets_where_possible() -> None:
    labels = open_labels("indian-pines")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        split = split_blocks(labels, 0.4, 0.1, seed=0)
    flat = labels.array.ravel()
    assert [np.unique(flat[i]).size for i in (split.train, split.val, split.test)] == [16, 12, 14]
    assert abs(split.train.size / (flat > 0).sum() - 0.4) < 0.08
    first, second = (str(warning.message) for warning in caught)
    assert first.startswith("Alfalfa, Grass-pasture-mowed can't be tested")
    assert second == "Oats, Wheat: too few blocks leave none to validate, so that confidence is not calibrated on them"


@pytest.mark.timeout(60)  # an assignment that looked at pixels instead of blocks would take far longer
def test_a_large_raster() -> None:
    labels = fields(1000, 1000, side=20, classes=9)
    split = split_blocks(labels)
    assert abs(split.train.size / (labels.array > 0).sum() - 0.2) < 0.02


def test_a_classifier_splits_by_blocks_and_its_model_file_records_it(tmp_path: Path) -> None:
    labels = fields(60, 60, classes=3)
    rng = np.random.default_rng(0)
    cube = rng.standard_normal((60, 60, 12)) + 4 * np.eye(4, 12)[labels.array]
    scene = Scene.from_array(cube.astype(np.float32), name="made")
    classifier = ConvCapsClassifier(method="rbf-svm", patch=1, split_by="blocks", block=12, train=0.3, seed=1)
    classifier.fit(scene, labels)
    split = classifier.split_
    assert (split.kind, split.how.block, split.how.guard, split.leakage) == ("blocks", 12, 0, 0.0)
    classifier.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert (loaded.split_by, loaded.block, loaded.train, loaded.per_class) == ("blocks", 12, 0.3, None)
    assert loaded.draw_split(labels).digest() == split.digest()
    few = ConvCapsClassifier(method="rbf-svm", split_by="blocks", block=12, train=0.3, per_class=5).draw_split(labels)
    assert few.train.size == 15
