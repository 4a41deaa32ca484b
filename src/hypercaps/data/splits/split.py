"""Which labelled pixels train, validate and test, how they were drawn, and how far the test set leaks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.errors import SplitError

Indices = npt.NDArray[np.int64]


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

    @property
    def kind(self) -> str:
        """What was drawn: pixels at random, whole polygons, blocks of ground, or somebody's file."""
        kind = str(self.how.get("kind"))
        return "random" if kind in ("share", "per-class") else kind

    @cached_property
    def leakage(self) -> float:
        """Share (0 to 1) of test pixels whose patch holds a training pixel.

        Mirroring at the border adds nothing: a mirrored pixel is in the patch already.
        """
        if self.test.size == 0:
            return 0.0
        return float(patches_hold(self.train, self.test, self.shape, self.patch).mean())

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


def patches_hold(pixels: Indices, centres: Indices, shape: tuple[int, int], patch: int) -> npt.NDArray[np.bool_]:
    """(centres,) whether the patch around each centre holds any of the pixels; all as flat indices."""
    half = patch // 2
    rows, cols = shape
    marked = np.zeros((rows + 2 * half, cols + 2 * half), dtype=bool)
    r, c = np.divmod(pixels, cols)
    for dc in range(patch):  # a square is a row of columns: each is widened first, and then looked for up and down
        marked[r + half, c + dc] = True
    r, c = np.divmod(centres, cols)
    held = np.zeros(centres.size, dtype=bool)
    for dr in range(patch):
        held |= marked[r + dr, c + half]
    return held
