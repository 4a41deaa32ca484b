"""Which labelled pixels train, validate and test, how they were drawn, and how far the test set leaks."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
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

KINDS = ("random", "polygons")  # ways to draw that a user can ask for
_DRAWS = 16  # of which that is taken which comes nearest to the shares that were asked for


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
        """What was drawn from: pixels at random, whole polygons, or somebody's file."""
        kind = str(self.how.get("kind"))
        return "random" if kind in ("share", "per-class") else kind

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
    _check_shares(train, val)

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
    _check_number(n, val)

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


def split_polygons(
    labels: Labels, train: float = 0.2, val: float = 0.1, *, per_class: int | None = None, seed: int = 0, patch: int = 7
) -> Split:
    """Each polygon goes as a whole to training, validation or test; shares are met as nearly as that allows.

    Polygons are the labels' groups, or, where nobody said what belongs together, the connected areas of each class
    (pixels that share a side or a corner). A class with two polygons trains and tests; one with a single polygon
    trains only, and the user is told. ``per_class`` asks for about so many training pixels in place of a share.
    """
    if per_class is None:
        _check_shares(train, val)
    else:
        _check_number(per_class, val)
    groups = (connected_areas(labels.array) if labels.groups is None else labels.groups).ravel()
    flat = labels.array.ravel()
    rng = np.random.default_rng(seed)
    sets: tuple[list[Indices], list[Indices], list[Indices]] = ([], [], [])
    single, without_val, seen = [], [], np.empty(0, dtype=np.int32)
    for entry in labels.legend:
        pixels = np.flatnonzero(flat == entry.label)
        ids, polygon_of, sizes = np.unique(groups[pixels], return_inverse=True, return_counts=True)
        if np.isin(ids, seen, assume_unique=True).any():
            raise SplitError(f"a group of {labels.name!r} holds pixels of several classes: give each class its own")
        seen = np.concatenate([seen, ids])
        part = np.full(ids.size, 2)  # 0: training, 1: validation, 2: test
        wanted = train * pixels.size if per_class is None else float(per_class)
        with_val = val > 0 and ids.size > 2
        # At least one polygon is left for each of the other sets.
        part[_take(rng, sizes, np.arange(ids.size), wanted, max(1, ids.size - 1 - with_val))] = 0
        if with_val:
            rest = np.flatnonzero(part == 2)
            part[_take(rng, sizes, rest, val * pixels.size, rest.size - 1)] = 1
        if ids.size == 1:
            single.append(entry.name)
        elif not with_val:
            without_val.append(entry.name)
        for which, chosen in enumerate(sets):
            chosen.append(pixels[part[polygon_of] == which])
    if len(single) == len(labels.legend):
        raise SplitError(
            f"every class of {labels.name!r} has one polygon only, so that nothing would be left to test: outline more "
            "polygons of each, take features of several parts apart, or split at random"
        )
    if single:
        _warn(
            f"{', '.join(single)} {'has' if len(single) == 1 else 'have'} one polygon only, which trains, so that "
            "nothing of it is left to test: outline another one, take a feature of several parts apart, or split at "
            "random"
        )
    if val > 0 and without_val:
        _warn(f"{', '.join(without_val)}: two polygons leave none to validate, the best epoch is chosen without them")
    how = {"kind": "polygons", "train": train, "val": val, "seed": seed}
    if per_class is not None:
        how = {"kind": "polygons", "per_class": per_class, "val": val, "seed": seed}
    first, second, third = (np.concatenate(parts) for parts in sets)
    return Split(first, second, third, shape=labels.shape, how=how, patch=patch)


def connected_areas(array: npt.NDArray[np.int16]) -> npt.NDArray[np.int32]:
    """(rows, columns) numbers from 1 up of areas of one class whose pixels share a side or a corner; 0: unlabelled.

    Runs of one class within a row are joined with those of the next row, so that the work grows with the outlines of
    areas and not with their pixels. Areas are numbered by their first pixel.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    cols = array.shape[1]
    first, last = array > 0, array > 0
    first[:, 1:] &= array[:, 1:] != array[:, :-1]
    last[:, :-1] &= array[:, 1:] != array[:, :-1]
    starts, stops = np.flatnonzero(first), np.flatnonzero(last) + 1  # flat, (runs,), the end excluded
    row, label = starts // cols, array.ravel()[starts]
    # Runs of the next row that begin before the diagonal neighbour of a run's end, and end after that of its start.
    low, high = np.searchsorted(stops, starts + cols), np.searchsorted(starts, stops + cols, side="right")
    counts = np.maximum(high - low, 0)
    one = np.repeat(np.arange(starts.size), counts)
    other = np.arange(one.size) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    joined = (row[other] == row[one] + 1) & (label[other] == label[one])  # a row may reach into its neighbours' ends
    one, other = one[joined], other[joined]
    links = coo_array((np.ones(one.size, dtype=bool), (one, other)), shape=(starts.size, starts.size))
    _, area = connected_components(links, directed=False)  # (runs,)
    _, places, area = np.unique(area, return_index=True, return_inverse=True)
    number = np.empty(places.size, dtype=np.int32)
    number[np.argsort(places)] = np.arange(1, places.size + 1)
    areas = np.zeros(array.shape, dtype=np.int32)
    areas[array > 0] = np.repeat(number[area], stops - starts)
    return areas


def check_kind(kind: str) -> None:
    """Refuse a way to draw that there is not."""
    if kind not in KINDS:
        raise SplitError(f"there is no split {kind!r}: {' or '.join(KINDS)} is expected")


def draw(labels: Labels, how: Mapping[str, Any], *, patch: int = 7) -> Split | None:
    """Draw again a split described by ``how``; None where that description can't be drawn from."""
    if how.get("kind") == "polygons":
        shares = {key: how[key] for key in ("train", "val", "per_class", "seed") if key in how}
        return split_polygons(labels, **shares, patch=patch)
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
        _warn(
            f"a validation share of {how['val']} takes no pixel of {', '.join(without_val)}: the best epoch is "
            "chosen without them"
        )
    train, val, test = (np.concatenate(parts) for parts in sets)
    return Split(train, val, test, shape=labels.shape, how=how, patch=patch)


def _take(rng: np.random.Generator, sizes: Indices, among: Indices, wanted: float, most: int) -> Sequence[int]:
    """Some of the polygons ``among``, 1 to ``most`` of them, that hold about the wanted number of pixels."""
    best: list[int] = []
    for _ in range(_DRAWS):
        order: list[int] = rng.permutation(among).tolist()
        taken: list[int] = []
        total = 0
        for polygon in order:
            if len(taken) == most or total + 0.5 >= wanted:
                break
            if sizes[polygon] < 2 * (wanted - total):  # nearer with it than without it
                taken.append(polygon)
                total += int(sizes[polygon])
        taken = taken or [min(order, key=lambda polygon: abs(sizes[polygon] - wanted))]
        if not best or abs(sizes[taken].sum() - wanted) < abs(sizes[best].sum() - wanted):
            best = taken
        if abs(sizes[best].sum() - wanted) <= 0.5:
            break
    return best


def _check_shares(train: float, val: float) -> None:
    if not 0 < train < 1 or not 0 <= val < 1 or Fraction(str(train)) + Fraction(str(val)) >= 1:
        raise SplitError(
            f"shares of {train} for training and {val} for validation don't work: training must be above 0, and "
            "together they must stay below 1 so that pixels are left for the test"
        )


def _check_number(n: int, val: float) -> None:
    if n < 1 or not 0 <= val < 1:
        raise SplitError(
            f"{n} training pixels per class and a validation share of {val} don't work: at least 1 pixel and a "
            "share from 0 up to, but not, 1 are expected"
        )


def _warn(what: str) -> None:
    warnings.warn(what, DataWarning, stacklevel=4)
