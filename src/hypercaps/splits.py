"""Which labelled pixels train, validate and test, how they were drawn, and how far the test set leaks."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.errors import DataWarning, SplitError
from hypercaps.scene import Labels, LegendEntry

Indices = npt.NDArray[np.int64]
Sizes = Callable[[LegendEntry, int], tuple[int, int]]  # a class and its pixels -> how many train and validate


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint sets of pixels, as flat indices (row * columns + column), ascending.

    ``how`` is the recipe it was drawn by, enough for :func:`draw` to draw it again.
    """

    train: Indices
    val: Indices
    test: Indices
    shape: tuple[int, int]  # of the label raster
    how: Mapping[str, Any]
    patch: int = 7  # side of the patches that leakage is counted with

    def __post_init__(self) -> None:
        size = self.shape[0] * self.shape[1]
        for name in ("train", "val", "test"):
            given = np.asarray(getattr(self, name))
            if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
                raise SplitError(
                    f"split set {name!r} is a {given.dtype} array of shape {given.shape}: a flat list of pixel "
                    "indices is expected"
                )
            if given.size and (given.min() < 0 or given.max() >= size):
                raise SplitError(
                    f"split set {name!r} holds pixel {given.min() if given.min() < 0 else given.max()}, outside "
                    f"0 to {size - 1} of a {self.shape[0]} x {self.shape[1]} scene: it belongs to another scene"
                )
            object.__setattr__(self, name, np.sort(given.astype(np.int64)))
        together = np.concatenate([self.train, self.val, self.test])
        values, times = np.unique(together, return_counts=True)
        if values.size != together.size:
            raise SplitError(
                f"the sets of a split must not share pixels, but {int((times > 1).sum())} pixels (the first is "
                f"{int(values[times > 1][0])}) are in it more than once"
            )

    @classmethod
    def from_indices(
        cls,
        labels: Labels,
        train: npt.ArrayLike,
        val: npt.ArrayLike,
        test: npt.ArrayLike,
        *,
        patch: int = 7,
        how: Mapping[str, Any] | None = None,
    ) -> Split:
        """A split somebody chose: checked against the labels it is for."""
        split = cls(
            np.asarray(train),
            np.asarray(val),
            np.asarray(test),
            shape=labels.shape,
            how=how or {"kind": "given"},
            patch=patch,
        )
        flat = labels.array.ravel()
        for name, indices in (("train", split.train), ("val", split.val), ("test", split.test)):
            bare = int((flat[indices] == 0).sum())
            if bare:
                raise SplitError(
                    f"{bare} of the {indices.size} {name} pixels are unlabelled in {labels.name!r}: the split "
                    "belongs to other labels"
                )
        if split.train.size == 0:
            raise SplitError("the split has no training pixel: at least one of each class is needed")
        return split

    def with_patch(self, patch: int) -> Split:
        """The same pixels, with leakage counted for another patch size."""
        return self if patch == self.patch else replace(self, patch=patch)

    @property
    def seed(self) -> int | None:
        return self.how.get("seed")

    @cached_property
    def leakage(self) -> float:
        """Share (0 to 1) of test pixels whose patch holds a training pixel.

        Mirroring at the border adds nothing: a mirrored pixel is in the patch already.
        """
        if self.test.size == 0:
            return 0.0
        half = self.patch // 2
        rows, cols = self.shape
        trained = np.zeros((rows + 2 * half, cols + 2 * half), dtype=bool)
        train_r, train_c = np.divmod(self.train, cols)
        trained[train_r + half, train_c + half] = True
        r, c = np.divmod(self.test, cols)
        seen = np.zeros(self.test.size, dtype=bool)
        for dr in range(self.patch):
            for dc in range(self.patch):
                seen |= trained[r + dr, c + dc]
        return float(seen.mean())

    def digest(self) -> str:
        """A fingerprint of the three sets, to tell whether a redrawn split is the same."""
        sha = hashlib.sha256()
        for indices in (self.train, self.val, self.test):
            sha.update(np.int64(indices.size).tobytes())
            sha.update(indices.astype("<i8").tobytes())
        return sha.hexdigest()

    def describe(self) -> dict[str, Any]:
        """What a model file remembers of the split."""
        return {
            **self.how,
            "n_train": int(self.train.size),
            "n_val": int(self.val.size),
            "n_test": int(self.test.size),
            "leakage": self.leakage,
            "patch": self.patch,
            "digest": self.digest(),
        }


def floor_share(share: float, count: int) -> int:
    """floor(share * count) in exact decimal arithmetic: 0.29 of 100 is 29, not 28."""
    return int(Fraction(str(share)) * count)


def split_by_share(labels: Labels, train: float = 0.2, val: float = 0.1, *, seed: int = 0, patch: int = 7) -> Split:
    """The paper's split: floor(share) of each class for training and validation, the rest for the test."""
    if not 0 < train < 1 or not 0 <= val < 1 or Fraction(str(train)) + Fraction(str(val)) >= 1:
        raise SplitError(
            f"shares of {train} for training and {val} for validation don't work: training must be above 0, and "
            "together they must stay below 1 so that pixels are left for the test"
        )

    def sizes(entry: LegendEntry, count: int) -> tuple[int, int]:
        n_train = floor_share(train, count)
        if n_train == 0:
            need = -(-1 // Fraction(str(train)))  # ceil(1 / share)
            raise SplitError(
                f"class {entry.label} ({entry.name}) has {count} labelled pixels, and a training share of {train} "
                f"takes none of them: label at least {need}, raise the training share, or ask for a number of "
                "pixels per class"
            )
        return n_train, floor_share(val, count)

    how = {"kind": "share", "train": train, "val": val, "seed": seed}
    return _draw_each_class(labels, sizes, how, seed, patch)


def split_per_class(labels: Labels, n: int, val: float = 0.1, *, seed: int = 0, patch: int = 7) -> Split:
    """``n`` training pixels of each class, floor(val share) of each for validation, the rest for the test."""
    if n < 1 or not 0 <= val < 1:
        raise SplitError(
            f"{n} training pixels per class and a validation share of {val} don't work: at least 1 pixel and a "
            "share from 0 up to, but not, 1 are expected"
        )

    def sizes(entry: LegendEntry, count: int) -> tuple[int, int]:
        n_val = floor_share(val, count)
        if n + n_val >= count:
            raise SplitError(
                f"class {entry.label} ({entry.name}) has {count} labelled pixels, too few for {n} to train, {n_val} "
                f"to validate and at least 1 to test: ask for at most {max(count - n_val - 1, 0)} per class or "
                "label more of it"
            )
        return n, n_val

    how = {"kind": "per-class", "per_class": n, "val": val, "seed": seed}
    return _draw_each_class(labels, sizes, how, seed, patch)


def draw(labels: Labels, how: Mapping[str, Any], *, patch: int = 7) -> Split | None:
    """Draw again a split described by ``how``; None where that description can't be drawn from."""
    if how.get("kind") == "share":
        return split_by_share(labels, how["train"], how["val"], seed=how["seed"], patch=patch)
    if how.get("kind") == "per-class":
        return split_per_class(labels, how["per_class"], how["val"], seed=how["seed"], patch=patch)
    return None


def _draw_each_class(labels: Labels, sizes: Sizes, how: Mapping[str, Any], seed: int, patch: int) -> Split:
    rng = np.random.default_rng(seed)
    flat = labels.array.ravel()
    sets: tuple[list[Indices], list[Indices], list[Indices]] = ([], [], [])
    without_val = []
    for entry in labels.legend:
        pixels = rng.permutation(np.flatnonzero(flat == entry.label))
        n_train, n_val = sizes(entry, pixels.size)
        if n_val == 0:
            without_val.append(entry.name)
        for chosen, part in zip(sets, np.split(pixels, [n_train, n_train + n_val]), strict=True):
            chosen.append(part)
    if how["val"] > 0 and without_val:
        warnings.warn(
            f"a validation share of {how['val']} takes no pixel of {', '.join(without_val)}: the best epoch is "
            "chosen without them",
            DataWarning,
            stacklevel=3,
        )
    train, val, test = (np.concatenate(parts) for parts in sets)
    return Split(train, val, test, shape=labels.shape, how=how, patch=patch)
