"""Whole polygons, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.splits.request import SplitRequest
from hypercaps.data.splits.split import Indices
from hypercaps.errors import SplitError, warn_data

_TRIALS = 16  # random orders of a class's polygons; the selection nearest to the requested share is used
_TRAIN, _VAL, _TEST = 0, 1, 2


def draw_polygons(labels: Labels, request: SplitRequest) -> list[Indices]:
    """Put each polygon into one of the sets; shares are met as nearly as that allows."""
    groups = (connected_areas(labels.array) if labels.groups is None else labels.groups).ravel()
    flat = labels.array.ravel()
    rng = np.random.default_rng(request.seed)
    sets: tuple[list[Indices], list[Indices], list[Indices]] = ([], [], [])
    counts: list[int] = []  # polygons of each class
    earlier = np.empty(0, dtype=np.int32)
    for entry in labels.legend:
        pixels = np.flatnonzero(flat == entry.label)
        ids, polygon_of, sizes = np.unique(groups[pixels], return_inverse=True, return_counts=True)
        if np.isin(ids, earlier, assume_unique=True).any():
            raise SplitError(f"a group of {labels.name!r} holds pixels of several classes: give each class its own")
        earlier = np.concatenate([earlier, ids])
        counts.append(ids.size)
        part = _assign(sizes, request, rng)
        for which, chosen in enumerate(sets):
            chosen.append(pixels[part[polygon_of] == which])
    _check_polygons(labels, counts, with_val=request.val > 0)
    return [np.concatenate(parts) for parts in sets]


def connected_areas(array: npt.NDArray[np.int16]) -> npt.NDArray[np.int32]:
    """(rows, columns) numbers from 1 up of areas of one class whose pixels share a side or a corner; 0: unlabelled.

    Areas are numbered in the order of their first pixels.
    """
    from scipy import ndimage

    areas = np.zeros(array.shape, dtype=np.int32)
    total = 0
    for label, window in enumerate(ndimage.find_objects(array), start=1):
        if window is None:
            continue
        inside = array[window] == label
        numbers, count = ndimage.label(inside, structure=np.ones((3, 3)))
        areas[window][inside] = numbers[inside] + total
        total += count
    pixels = np.flatnonzero(areas)
    first = np.zeros(total + 1, dtype=np.int64)  # flat index of the first pixel of each area
    first[areas.ravel()[pixels[::-1]]] = pixels[::-1]  # the last assignment remains
    renumbered = np.zeros(total + 1, dtype=np.int32)
    renumbered[1 + np.argsort(first[1:])] = np.arange(1, total + 1)
    return renumbered[areas]


def _assign(sizes: Indices, request: SplitRequest, rng: np.random.Generator) -> Indices:
    """(polygons,) the set of each polygon of one class, given their sizes in pixels."""
    part = np.full(sizes.size, _TEST)
    pixels = int(sizes.sum())
    with_val = request.val > 0 and sizes.size > 2
    target = request.train * pixels if request.per_class is None else float(request.per_class)
    # At least one polygon is left for each of the other sets.
    part[_select(rng, sizes, np.arange(sizes.size), target, max(1, sizes.size - 1 - with_val))] = _TRAIN
    if with_val:
        rest = np.flatnonzero(part == _TEST)
        part[_select(rng, sizes, rest, request.val * pixels, rest.size - 1)] = _VAL
    return part


def _select(rng: np.random.Generator, sizes: Indices, among: Indices, target: float, most: int) -> Sequence[int]:
    """1 to ``most`` of the polygons ``among``, with about ``target`` pixels together."""
    best: list[int] = []
    for _ in range(_TRIALS):
        order: list[int] = rng.permutation(among).tolist()
        selected: list[int] = []
        total = 0
        for polygon in order:
            if len(selected) == most or total + 0.5 >= target:
                break
            if sizes[polygon] < 2 * (target - total):  # nearer with it than without it
                selected.append(polygon)
                total += int(sizes[polygon])
        selected = selected or [min(order, key=lambda polygon: abs(sizes[polygon] - target))]
        if not best or abs(sizes[selected].sum() - target) < abs(sizes[best].sum() - target):
            best = selected
        if abs(sizes[best].sum() - target) <= 0.5:
            break
    return best


def _check_polygons(labels: Labels, counts: list[int], *, with_val: bool) -> None:
    """Refuse labels without any test polygon; warn of classes with too few polygons for all three sets."""
    names = [entry.name for entry in labels.legend]
    single = [name for name, count in zip(names, counts, strict=True) if count == 1]
    if len(single) == len(labels.legend):
        raise SplitError(
            f"every class of {labels.name!r} has one polygon only, so that nothing would be left to test: outline more "
            "polygons of each, separate features of several parts, or split at random"
        )
    if single:
        warn_data(
            f"{', '.join(single)} {'has' if len(single) == 1 else 'have'} one polygon only, which trains, so that "
            "nothing of it is left to test: outline another one, separate a feature of several parts, or split at "
            "random"
        )
    pairs = [name for name, count in zip(names, counts, strict=True) if count == 2]
    if with_val and pairs:
        listed = ", ".join(pairs)
        warn_data(f"{listed}: two polygons leave none to validate, so that confidence is not calibrated on them")
