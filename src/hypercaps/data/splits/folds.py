"""Spatial cross-validation: every unit of labelled pixels is held out once, while the others train."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.splits.polygons import connected_areas
from hypercaps.data.splits.request import SplitDescription
from hypercaps.data.splits.split import Indices, Split
from hypercaps.data.splits.units import Units
from hypercaps.errors import SplitError

DEFAULT_FOLDS = 5
_TRIALS = 16  # random deals; the best is used
_GREEDY = 4000  # units that are dealt one by one; the smallest ones beyond are dealt in turn
_JITTER = 0.3  # relative change of a unit's size in the order of a deal, so that deals differ
_NEVER = -1

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Folds:
    """The fold in which each labelled pixel is held out."""

    units: Units
    fold: Indices  # (N,) fold of each labelled pixel, from 0; -1: never held out (its class has one unit only)
    count: int  # number of folds
    shape: tuple[int, int]  # rows and columns of the label raster
    seed: int

    def held_out(self, k: int) -> Indices:
        """Flat pixels of fold ``k``."""
        pixels: Indices = self.units.pixels[self.fold == k]
        return pixels

    def training(self, k: int) -> Indices:
        """Flat pixels of all other folds, those never held out included."""
        pixels: Indices = self.units.pixels[self.fold != k]
        return pixels

    def describe(self) -> SplitDescription:
        """How the folds were drawn: enough to draw them again."""
        units = self.units
        return SplitDescription("folds", block=units.block, seed=self.seed, folds=self.count, units=units.kind)

    def split(self, k: int, patch: int) -> Split:
        """The split that tests fold ``k`` and trains on the others, with leakage counted for ``patch``."""
        none = np.empty(0, dtype=np.int64)
        return Split(self.training(k), none, self.held_out(k), shape=self.shape, how=self.describe(), patch=patch)

    def untested(self) -> Indices:
        """Positions in the legend of the classes that are labelled but never held out."""
        return np.setdiff1d(self.units.class_of, self.units.class_of[self.fold != _NEVER])

    def within_one_area(self) -> Indices:
        """Positions in the legend of the tested classes whose labels are a single connected area, cut into pieces."""
        if self.units.kind not in ("areas", "blocks"):
            return np.empty(0, dtype=np.int64)
        classes = np.zeros(self.shape, dtype=np.int16)
        classes.ravel()[self.units.pixels] = self.units.class_of + 1
        areas = connected_areas(classes).ravel()[self.units.pixels]
        pairs = np.unique(np.stack([self.units.class_of, areas], axis=1), axis=0)
        alone = np.flatnonzero(np.bincount(pairs[:, 0]) == 1)
        return np.setdiff1d(alone, self.untested())

    def partly_seen(self) -> int:
        """Number of pixels that are held out while other pixels of their unit train: those of a class that is in no
        other unit."""
        trains = np.unique(self.units.unit[self.fold == _NEVER])
        return int((np.isin(self.units.unit, trains) & (self.fold != _NEVER)).sum())

    def digest(self) -> str:
        """SHA-256 of the pixels and their folds: equal for equal folds."""
        sha = hashlib.sha256(repr((self.shape, self.count)).encode())
        sha.update(self.units.pixels.astype("<i8").tobytes())
        sha.update(self.fold.astype("<i8").tobytes())
        return sha.hexdigest()


def draw_folds(labels: Labels, units: Units, *, folds: int | None = None, seed: int = 0) -> Folds:
    """Deal the units to folds, so that every class is in as many folds as possible, in about equal numbers of pixels.

    A class with two or more units has training pixels whichever fold is held out.

    Parameters
    ----------
    labels : the labels that ``units`` were made of
    units : from :func:`label_units`
    folds : number of folds; None: 5, or one for each unit if there are fewer
    seed : of the random number generator
    """
    counts = units.pixel_counts()  # (units, classes)
    tested = (counts > 0).sum(axis=0) > 1  # (classes,)
    dealt = np.flatnonzero(counts[:, tested].any(axis=1))
    _check(labels, units, dealt.size, folds)
    number = min(DEFAULT_FOLDS, dealt.size) if folds is None else folds
    best = _deal(counts[np.ix_(dealt, np.flatnonzero(tested))], number, np.random.default_rng(seed))
    fold_of = np.full(units.count, _NEVER)
    fold_of[dealt] = best
    fold = np.where(tested[units.class_of], fold_of[units.unit], _NEVER)
    _keep_training(units, fold)
    return Folds(units, fold, number, labels.shape, seed)


def _check(labels: Labels, units: Units, dealt: int, folds: int | None) -> None:
    """Refuse labels of which nothing can be held out, and an impossible number of folds."""
    noun, more = units.kind.removesuffix("s"), units.kind if units.kind in ("points", "polygons") else "areas"
    helps = f"label more {more} of each class, or train on all labels without a score (--split none)"
    if units.count == 1:
        raise SplitError(f"all labels of {labels.name!r} lie in one {noun}, so that none can be held out: {helps}")
    if dealt == 0:
        raise SplitError(
            f"every class of {labels.name!r} has one {noun} only, which must train, so that none can be held out: "
            f"{helps}"
        )
    if folds is not None and not 2 <= folds <= dealt:
        raise SplitError(
            f"{folds} folds can't be made of the {dealt} {units.kind} in {labels.name!r} that can be held out: give a "
            f"number from 2 to {dealt}"
        )


def _deal(counts: Indices, folds: int, rng: np.random.Generator) -> Indices:
    """(units,) the fold of each unit, given its pixels of each class (units, classes): the best of several deals."""
    shares = counts / counts.sum(axis=0)  # (units, classes) of each class's pixels
    # The largest share of any class: large units and those of rare classes are dealt first, while all folds are open.
    size = shares.max(axis=1)
    order = np.argsort(-size * rng.uniform(1 - _JITTER, 1 + _JITTER, (_TRIALS, size.size)), axis=1, kind="stable")
    fold = np.empty((_TRIALS, size.size), dtype=np.int64)
    for trial, rest in enumerate(order[:, _GREEDY:]):  # small units of common classes
        in_turn = rest[np.lexsort((size[rest], shares[rest].argmax(axis=1)))]
        fold[trial, in_turn] = (np.arange(rest.size) + rng.integers(folds)) % folds
    _deal_greedily(fold, order[:, :_GREEDY], shares, folds, rng)
    merits = [_merit(shares, trial, folds) for trial in fold]
    best: Indices = fold[max(range(_TRIALS), key=lambda trial: merits[trial])]
    return best


def _deal_greedily(fold: Indices, order: Indices, shares: Floats, folds: int, rng: np.random.Generator) -> None:
    """Deal the units of ``order`` (trials, steps) one by one into ``fold`` (trials, units), in place."""
    trials = np.arange(_TRIALS)
    rarity = 1.0 / (shares > 0).sum(axis=0)  # (classes,)
    load = np.zeros((_TRIALS, folds, shares.shape[1]))  # share of each class in each fold
    units_in = np.zeros((_TRIALS, folds), dtype=np.int64)
    steps = order.shape[1]
    ties = rng.random((_TRIALS, steps, folds)) * 1e-9
    for step in range(steps):
        unit = order[:, step]
        own = shares[unit]  # (trials, classes)
        # First the fold that lacks the rarest classes of the unit, then the one with the least of them.
        lacking = np.einsum("tc,tfc->tf", (own > 0) * rarity, load == 0)
        cost = np.einsum("tc,tfc->tf", own, load) + 1e-6 * load.sum(axis=2) - 1e3 * lacking + ties[:, step]
        empty = units_in == 0
        forced = empty.sum(axis=1) >= steps - step  # the remaining units are needed for folds without any
        cost[forced[:, None] & ~empty] = np.inf
        chosen = cost.argmin(axis=1)
        fold[trials, unit] = chosen
        load[trials, chosen] += own
        units_in[trials, chosen] += 1


def _merit(shares: Floats, fold: Indices, folds: int) -> tuple[int, int, float]:
    """Rank of a deal, higher is better: classes that are in two or more folds, the folds of all classes, and minus the
    mean difference from equal shares."""
    load = np.stack([shares[fold == k].sum(axis=0) for k in range(folds)])  # (folds, classes)
    present = (load > 0).sum(axis=0)
    return int((present > 1).sum()), int(present.sum()), -float(np.abs(load - 1 / folds).mean())


def _keep_training(units: Units, fold: Indices) -> None:
    """Keep the smallest unit of a class for training, in place, where all units of the class came into one fold.

    Only units of several classes can make that unavoidable: three classes in two of three tiles each, in two folds.
    """
    classes = int(units.class_of.max()) + 1
    for k in range(classes):
        own = np.flatnonzero((units.class_of == k) & (fold != _NEVER))
        if own.size and (fold[own] == fold[own[0]]).all():
            numbers, sizes = np.unique(units.unit[own], return_counts=True)
            fold[own[units.unit[own] == numbers[sizes.argmin()]]] = _NEVER
