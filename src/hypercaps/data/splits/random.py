"""Pixels drawn at random from each class: a share of them, or a number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hypercaps.data.labels import Labels, LegendEntry
from hypercaps.data.splits.request import SplitRequest
from hypercaps.data.splits.split import Indices
from hypercaps.errors import SplitError, warn_data


def draw_random(labels: Labels, request: SplitRequest) -> list[Indices]:
    """Draw training and validation pixels from each class; the rest is the test set."""
    rng = np.random.default_rng(request.seed)
    flat = labels.array.ravel()
    sets: tuple[list[Indices], list[Indices], list[Indices]] = ([], [], [])
    without_val = []
    for entry in labels.legend:
        pixels = rng.permutation(np.flatnonzero(flat == entry.label))
        n_train, n_val = _sizes(entry, pixels.size, request)
        if n_val == 0:
            without_val.append(entry.name)
        for chosen, part in zip(sets, np.split(pixels, [n_train, n_train + n_val]), strict=True):
            chosen.append(part)
    if request.val > 0 and without_val:
        warn_data(
            f"a validation share of {request.val} takes no pixel of {', '.join(without_val)}: confidence is "
            "calibrated without them"
        )
    return [np.concatenate(parts) for parts in sets]


def floor_share(share: float, count: int) -> int:
    """floor(share * count) in exact decimal arithmetic: 0.29 of 100 is 29, not 28."""
    return int(Fraction(str(share)) * count)


def _sizes(entry: LegendEntry, count: int, request: SplitRequest) -> tuple[int, int]:
    """Number of training and of validation pixels of a class with ``count`` labelled pixels."""
    n_val = floor_share(request.val, count)
    if request.per_class is None:
        n_train = floor_share(request.train, count)
        if n_train == 0:
            needed = -(-1 // Fraction(str(request.train)))  # ceil(1 / share)
            raise SplitError(
                f"class {entry.label} ({entry.name}) has {count} labelled pixels, and a training share of "
                f"{request.train} takes none of them: label at least {needed}, raise the training share, or ask for a "
                "number of pixels per class"
            )
        return n_train, n_val
    n_train = request.per_class
    if request.at_most != 1:
        n_train = min(n_train, max(1, floor_share(request.at_most, count)))
    if n_train + n_val >= count:
        raise SplitError(
            f"class {entry.label} ({entry.name}) has {count} labelled pixels, too few for {request.per_class} to "
            f"train, {n_val} to validate and at least 1 to test: ask for at most {max(count - n_val - 1, 0)} per "
            "class or label more of it"
        )
    return n_train, n_val
