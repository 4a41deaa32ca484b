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
    train, val, test : (n,) int array
        Flat pixel indices (row * columns + column), sorted here.
    shape : (int, int)
        Rows and columns of the label raster.
    how : SplitDescription
        How the pixels were chosen, enough to draw the split again.
    patch : int, default 7
        Side in pixels of the patches for which leakage is counted.

    See Also
    --------
    split_by_share, split_per_class, split_polygons, split_blocks : Draw a split.
    Split.from_indices : A split from your own lists of pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import Split
    >>> split = Split(np.array([0, 1]), np.array([2]), np.array([3, 59]), shape=(6, 10), patch=7)
    >>> split.leakage  # pixel 3 is near training pixels, the last one of the raster is not
    0.5
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

    def test_mask(self, labels: Labels) -> npt.NDArray[np.bool_]:
        """The test pixels as a mask (rows, columns).

        Parameters
        ----------
        labels : Labels
            Of the same scene.
        """
        if self.shape != labels.shape:
            raise SplitError(
                f"the split is of a scene of {self.shape[0]} x {self.shape[1]} pixels, and labels {labels.name!r} have "
                f"{labels.shape[0]} x {labels.shape[1]}: it belongs to another scene"
            )
        if self.test.size == 0:
            raise SplitError("the split has no test pixel to evaluate on: put some into its test set")
        mask = np.zeros(self.shape, dtype=bool)
        mask.ravel()[self.test] = True
        return mask

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
        labels : Labels
            On their grid the pixels lie; every pixel must be labelled.
        train, val, test : (n,) array of int
            Flat pixel indices (row * columns + column); ``train`` must not be empty.
        patch : int, default 7
            Side in pixels of the patches for which leakage is counted.
        how : SplitDescription, optional
            Where the pixels come from.

        Returns
        -------
        Split

        Examples
        --------
        >>> import numpy as np
        >>> from hypercaps import Labels, Split
        >>> labels = Labels.from_array(np.ones((2, 3), dtype=int))
        >>> Split.from_indices(labels, train=[0, 4], val=[], test=[5]).test
        array([5])
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
        """The same pixels, with leakage counted for another patch size.

        Parameters
        ----------
        patch : int
            Side of the patch in pixels.
        """
        return self if patch == self.patch else replace(self, patch=patch)

    @property
    def seed(self) -> int | None:
        """Seed of a split that was drawn."""
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
