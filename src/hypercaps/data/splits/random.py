"""Pixels drawn at random from each class: a share of them, or a number."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from hypercaps.data.labels import Labels
from hypercaps.data.splits.request import SplitRequest
from hypercaps.data.splits.split import Indices
from hypercaps.errors import SplitError, warn_data

_MOST_NAMES = 8  # classes that a message names


def draw_random(labels: Labels, request: SplitRequest) -> list[Indices]:
    """Draw training and validation pixels from each class; the rest is the test set.

    Every class trains with at least one pixel. A class that is too small for the request trains with fewer pixels than
    requested, so that one is left to test, with a warning.
    """
    rng = np.random.default_rng(request.seed)
    flat = labels.array.ravel()
    sets: tuple[list[Indices], list[Indices], list[Indices]] = ([], [], [])
    sizes: list[_Sizes] = []
    for entry in labels.legend:
        pixels = rng.permutation(np.flatnonzero(flat == entry.label))
        one = _sizes(entry.name, pixels.size, request)
        sizes.append(one)
        for chosen, part in zip(sets, np.split(pixels, [one.train, one.train + one.val]), strict=True):
            chosen.append(part)
    if not any(one.test for one in sizes):
        raise SplitError(
            f"every class of {labels.name!r} has one labelled pixel only, so that nothing would be left to test: label "
            "more of each, or train without a score (--split none)"
        )
    if request.per_class is not None and request.at_most == 1 and all(one.is_small for one in sizes):
        raise SplitError(
            f"no class of {labels.name!r} has enough labelled pixels for {request.per_class} to train, a share of "
            f"{request.val} to validate and 1 to test: ask for at most {max(one.train for one in sizes)} per class"
        )
    _warn_small_classes(sizes, request)
    return [np.concatenate(parts) for parts in sets]


def floor_share(share: float, count: int) -> int:
    """floor(share * count) in exact decimal arithmetic: 0.29 of 100 is 29, not 28."""
    return int(Fraction(str(share)) * count)


class _Sizes(NamedTuple):
    """Number of pixels of one class in each set."""

    name: str
    train: int
    val: int
    test: int
    is_small: bool  # too few labelled pixels for the request

    def __str__(self) -> str:
        return f"{self.name} ({self.train + self.val + self.test} labelled)"


def _sizes(name: str, count: int, request: SplitRequest) -> _Sizes:
    """The sets of a class with ``count`` labelled pixels."""
    n_val = min(floor_share(request.val, count), max(0, count - 2))
    if request.per_class is None:
        requested = floor_share(request.train, count)
    elif request.at_most != 1:
        requested = min(request.per_class, max(1, floor_share(request.at_most, count)))
    else:
        requested = request.per_class
    n_train = max(1, min(requested, count - n_val - 1))
    return _Sizes(name, n_train, n_val, count - n_train - n_val, n_train != requested)


def _warn_small_classes(sizes: Sequence[_Sizes], request: SplitRequest) -> None:
    """Name the classes with too few pixels for the request, for a test, and for validation."""
    small = [f"{one.train} of {one}" for one in sizes if one.is_small]
    if small and request.per_class is None:
        warn_data(f"a training share of {request.train} takes no pixel of some classes, so one trains: {_list(small)}")
    elif small:
        warn_data(f"some classes are too small for {request.per_class} training pixels, so fewer train: {_list(small)}")
    untested = [one.name for one in sizes if one.test == 0]
    if untested:
        warn_data(f"{_list(untested)} can't be tested: the only labelled pixel trains; label more of it")
    without_val = [one.name for one in sizes if one.val == 0]
    if request.val > 0 and without_val:
        warn_data(
            f"a validation share of {request.val} takes no pixel of {', '.join(without_val)}: confidence is "
            "not calibrated on them"
        )


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
