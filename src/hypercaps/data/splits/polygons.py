"""Whole polygons, drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.splits.rules import check_number, check_shares, warn
from hypercaps.data.splits.split import Indices, Split
from hypercaps.errors import SplitError

_DRAWS = 16  # of which that is taken which comes nearest to the shares that were asked for


def split_polygons(
    labels: Labels, train: float = 0.2, val: float = 0.1, *, per_class: int | None = None, seed: int = 0, patch: int = 7
) -> Split:
    """Each polygon goes as a whole to training, validation or test; shares are met as nearly as that allows.

    Polygons are the labels' groups, or, where nobody said what belongs together, the connected areas of each class
    (pixels that share a side or a corner). A class with two polygons trains and tests; one with a single polygon
    trains only, and the user is told. ``per_class`` asks for about so many training pixels in place of a share.
    """
    if per_class is None:
        check_shares(train, val)
    else:
        check_number(per_class, val)
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
        warn(
            f"{', '.join(single)} {'has' if len(single) == 1 else 'have'} one polygon only, which trains, so that "
            "nothing of it is left to test: outline another one, take a feature of several parts apart, or split at "
            "random"
        )
    if val > 0 and without_val:
        warn(f"{', '.join(without_val)}: two polygons leave none to validate, confidence is calibrated without them")
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
