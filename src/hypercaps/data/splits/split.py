"""Which labelled pixels train, validate and test, how they were drawn, and how much the test set leaks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.splits.request import SplitDescription
from hypercaps.errors import SplitError

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint sets of labelled pixels.

    Parameters
    ----------
    train, val, test : (n,) flat pixel indices (row * columns + column), sorted here
    shape : rows and columns of the label raster
    how : how the pixels were chosen, enough to draw the split again
    patch : side in pixels of the patches for which leakage is counted

    See also
    --------
    split_by_share, split_per_class, split_polygons, split_blocks : draw a split
    Split.from_indices : a split from your own lists of pixels
    """

    train: Indices
    val: Indices
    test: Indices
    shape: tuple[int, int]
    how: SplitDescription = field(default_factory=SplitDescription)
    patch: int = 7

    def __post_init__(self) -> None:
        size = self.shape[0] * self.shape[1]
        for name in ("train", "val", "test"):
            indices = np.asarray(getattr(self, name))
            if indices.ndim != 1 or (indices.dtype.kind not in "iu" and indices.size):
                raise SplitError(
                    f"split set {name!r} is a {indices.dtype} array of shape {indices.shape}: a flat list of pixel "
                    "indices is expected"
                )
            if indices.size and (indices.min() < 0 or indices.max() >= size):
                raise SplitError(
                    f"split set {name!r} holds pixel {indices.min() if indices.min() < 0 else indices.max()}, outside "
                    f"0 to {size - 1} of a {self.shape[0]} x {self.shape[1]} scene: it belongs to another scene"
                )
            object.__setattr__(self, name, np.sort(indices.astype(np.int64)))
        together = np.concatenate([self.train, self.val, self.test])
        values, times = np.unique(together, return_counts=True)
        if values.size != together.size:
            raise SplitError(
                f"the sets of a split must not share pixels, but {(times > 1).sum()} pixels (the first is "
                f"{values[times > 1][0]}) are in it more than once"
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
        how: SplitDescription | None = None,
    ) -> Split:
        """Make a split of given pixels, checked against the labels it is for.

        Parameters
        ----------
        labels : labels on whose grid the pixels lie; every pixel must be labelled
        train, val, test : (n,) flat pixel indices (row * columns + column); ``train`` must not be empty
        patch : side in pixels of the patches for which leakage is counted
        how : where the pixels come from
        """
        sets = np.asarray(train), np.asarray(val), np.asarray(test)
        split = cls(*sets, shape=labels.shape, how=how or SplitDescription(), patch=patch)
        flat = labels.array.ravel()
        for name, indices in (("train", split.train), ("val", split.val), ("test", split.test)):
            unlabelled = int((flat[indices] == 0).sum())
            if unlabelled:
                raise SplitError(
                    f"{unlabelled} of the {indices.size} {name} pixels are unlabelled in {labels.name!r}: the split "
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
        return self.how.seed

    @property
    def kind(self) -> str:
        """random, polygons, blocks, folds or none; file or given for a split that was not drawn."""
        return self.how.kind_requested

    @cached_property
    def leakage(self) -> float:
        """Share (0 to 1) of test pixels whose patch contains a training pixel.

        Mirroring at the border adds nothing: a mirrored pixel is in the patch already.
        """
        if self.test.size == 0:
            return 0.0
        return float(patches_contain(self.train, self.test, self.shape, self.patch).mean())

    def digest(self) -> str:
        """SHA-256 of the three sets: equal for equal splits."""
        sha = hashlib.sha256()
        for indices in (self.train, self.val, self.test):
            sha.update(np.int64(indices.size).tobytes())
            sha.update(indices.astype("<i8").tobytes())
        return sha.hexdigest()

    def describe(self) -> SplitDescription:
        """How the split was drawn, its sizes, leakage and digest, for a model file."""
        return replace(
            self.how,
            n_train=self.train.size,
            n_val=self.val.size,
            n_test=self.test.size,
            leakage=self.leakage,
            patch=self.patch,
            digest=self.digest(),
        )


def patches_contain(pixels: Indices, centres: Indices, shape: tuple[int, int], patch: int) -> npt.NDArray[np.bool_]:
    """(centres,) whether the patch around each centre contains any of the pixels; all as flat indices."""
    half = patch // 2
    rows, cols = shape
    marked = np.zeros((rows + 2 * half, cols + 2 * half), dtype=bool)
    r, c = np.divmod(pixels, cols)
    for dc in range(patch):  # separable: pixels are widened along the row first, then searched along the column
        marked[r + half, c + dc] = True
    r, c = np.divmod(centres, cols)
    contained = np.zeros(centres.size, dtype=bool)
    for dr in range(patch):
        contained |= marked[r + dr, c + half]
    return contained
