"""Pixels drawn at random from each class: a share of them, or a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from hypercaps.data.labels import Labels, LegendEntry
from hypercaps.data.splits.rules import check_number, check_shares, floor_share, warn
from hypercaps.data.splits.split import Indices, Split
from hypercaps.errors import SplitError

Sizes = Callable[[LegendEntry, int], tuple[int, int]]  # a class and its pixels -> how many train and validate


def split_by_share(labels: Labels, train: float = 0.2, val: float = 0.1, *, seed: int = 0, patch: int = 7) -> Split:
    """The paper's split: floor(share) of each class for training and validation, the rest for the test."""
    check_shares(train, val)

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


def split_per_class(
    labels: Labels, n: int, val: float = 0.1, *, at_most: float = 1.0, seed: int = 0, patch: int = 7
) -> Split:
    """``n`` training pixels of each class, floor(val share) of each for validation, the rest for the test.

    A class that is too small for that is refused, unless ``at_most`` says which share of a class may train: then
    small classes train with fewer pixels.
    """
    check_number(n, val)

    def sizes(entry: LegendEntry, count: int) -> tuple[int, int]:
        n_train, n_val = n if at_most == 1 else min(n, max(1, floor_share(at_most, count))), floor_share(val, count)
        if n_train + n_val >= count:
            raise SplitError(
                f"class {entry.label} ({entry.name}) has {count} labelled pixels, too few for {n} to train, {n_val} "
                f"to validate and at least 1 to test: ask for at most {max(count - n_val - 1, 0)} per class or "
                "label more of it"
            )
        return n_train, n_val

    how = {"kind": "per-class", "per_class": n, "val": val, "seed": seed}
    if at_most < 1:
        how["at_most"] = at_most
    return _draw_each_class(labels, sizes, how, seed, patch)


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
        warn(
            f"a validation share of {how['val']} takes no pixel of {', '.join(without_val)}: confidence is "
            "calibrated without them"
        )
    train, val, test = (np.concatenate(parts) for parts in sets)
    return Split(train, val, test, shape=labels.shape, how=how, patch=patch)
