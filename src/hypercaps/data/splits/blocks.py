"""Whole blocks, drawn at random, so that test pixels lie away from training pixels.

The scene is cut into squares on a fixed grid, and each goes as a whole to training, validation or test. Along block
borders a patch would still reach into the neighbouring block: such pixels are left out (the guard band).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.splits.block_grid import NEIGHBOURS, Bits, Bools, LabelledBlocks
from hypercaps.data.splits.request import SplitRequest
from hypercaps.data.splits.split import Indices, patches_contain
from hypercaps.errors import SplitError, warn_data

_TRAIN, _VAL, _TEST = 0, 1, 2
_FREE, _EMPTY = 3, 4  # not assigned yet; without labels, never assigned
_TRIALS = 128  # random assignments, of which the best is used
_GREEDY = 1000  # blocks that are assigned one by one to meet the shares; any others are assigned at random

Assignment = npt.NDArray[np.int8]  # (blocks,) the set of each block
Floats = npt.NDArray[np.float64]


def draw_blocks(labels: Labels, request: SplitRequest) -> list[Indices]:
    """Put each block into one of the sets and remove the guard band."""
    block, patch = request.block, request.guarded_patch
    blocks = LabelledBlocks.of(labels, block, patch // 2)
    rng = np.random.default_rng(request.seed)
    shares = np.array([request.train, request.val, 1 - request.train - request.val])
    trials = max(4, _TRIALS * _GREEDY // max(_GREEDY, int(blocks.counts.any(axis=1).sum())))
    best = max(_assignments(blocks.counts, shares, rng, trials), key=lambda one: _merit(blocks, one, shares))
    part, outside_guard = best[blocks.block_of], _outside_guard(blocks, best, blocks.block_of, blocks.reached)
    sets = [outside_guard & (part == which) for which in (_TRAIN, _VAL, _TEST)]
    if not sets[_TEST].any():
        raise SplitError(
            f"blocks of {block} x {block} pixels leave nothing of {labels.name!r} to test"
            f"{' outside the guard band' if (part == _TEST).any() else ''}: {_remedy(request)}"
        )
    _warn_missing_classes(labels, blocks, sets, request)
    if request.per_class is not None:
        sets[_TRAIN] = _draw_per_class(labels, blocks, sets[_TRAIN], request.per_class, rng)
    train, val, test = drawn = [blocks.pixels[chosen] for chosen in sets]
    # The purpose of this split: a change that breaks it must not go unnoticed.
    assert not patches_contain(np.concatenate([train, val]), test, labels.shape, patch).any()
    assert not patches_contain(train, val, labels.shape, patch).any()
    return drawn


def _assignments(counts: Indices, shares: Floats, rng: np.random.Generator, trials: int) -> npt.NDArray[np.int8]:
    """(trials, blocks) random assignments: first so that rare classes are in all sets, then to meet the shares."""
    holds = counts > 0
    part = np.full((trials, len(counts)), _FREE, dtype=np.int8)
    part[:, ~holds.any(axis=1)] = _EMPTY
    priority = rng.random(part.shape)
    rarity = holds.sum(axis=0) + rng.random(counts.shape[1]) / 2  # blocks of each class, ties at random
    for k in np.argsort(rarity):
        of_class = np.flatnonzero(holds[:, k])
        for which in (_TRAIN, _TEST, _VAL):  # in this order while blocks last
            if not shares[which] > 0:
                continue
            free = part[:, of_class] == _FREE  # (trials, blocks of the class)
            lacking = np.flatnonzero(free.any(axis=1) & ~(part[:, of_class] == which).any(axis=1))
            drawn = of_class[np.where(free, priority[:, of_class], -1.0).argmax(axis=1)]
            part[lacking, drawn[lacking]] = which
    _assign_rest(part, priority, counts, shares, rng)
    return part


def _assign_rest(
    part: npt.NDArray[np.int8], priority: Floats, counts: Indices, shares: Floats, rng: np.random.Generator
) -> None:
    """Assign the free blocks of each trial (trials, blocks) in place, in order of priority."""
    trials = np.arange(len(part))
    order = np.argsort(np.where(part == _FREE, priority, 2.0), axis=1)  # assigned blocks last
    free = (part == _FREE).sum(axis=1)
    at_random = np.maximum(free - _GREEDY, 0)
    for trial, n in enumerate(at_random):
        part[trial, order[trial, :n]] = rng.choice(3, size=n, p=shares / shares.sum())
    # Pixels that each set still lacks of each class (trials, 3, classes); a block goes where it reduces them most.
    total = np.maximum(counts.sum(axis=0), 1)
    assigned = np.stack([[counts[row == which].sum(axis=0) for which in (_TRAIN, _VAL, _TEST)] for row in part])
    lacking = shares[:, None] * total - assigned
    unused = np.where(shares > 0, 0.0, -np.inf)
    for step in range(min(_GREEDY, int(free.max(initial=0)))):
        active = trials[at_random + step < free]
        chosen = order[active, (at_random + step)[active]]
        block = counts[chosen][:, None, :]  # (trials, 1, classes)
        which = (((lacking[active] - block / 2) * block / total).sum(axis=2) + unused).argmax(axis=1)
        part[active, chosen] = which
        lacking[active, which] -= block[:, 0]


def _outside_guard(blocks: LabelledBlocks, part: Assignment, block_of: Indices, reached: Bits | Indices) -> Bools:
    """Whether pixels of these blocks, whose patches reach these neighbours, lie outside the guard band."""
    rows, cols = blocks.grid
    padded = np.full((rows + 2, cols + 2), _FREE, dtype=np.int8)
    padded[1:-1, 1:-1] = part.reshape(rows, cols)
    train, train_or_val = np.zeros(rows * cols, dtype=np.uint8), np.zeros(rows * cols, dtype=np.uint8)
    for bit, (dr, dc) in enumerate(NEIGHBOURS):
        neighbour = padded[1 + dr : 1 + dr + rows, 1 + dc : 1 + dc + cols].ravel()
        train |= (neighbour == _TRAIN).astype(np.uint8) << bit
        train_or_val |= ((neighbour == _TRAIN) | (neighbour == _VAL)).astype(np.uint8) << bit
    # The neighbours that the patches of a block must not reach: by set, _TRAIN to _EMPTY.
    avoided = np.choose(part, [np.uint8(0), train, train_or_val, np.uint8(0), np.uint8(0)])
    outside: Bools = (reached & avoided[block_of]) == 0
    return outside


def _merit(blocks: LabelledBlocks, part: Assignment, shares: Floats) -> tuple[int, int, int, float]:
    """Rank of an assignment, higher is better: number of classes that train, that are also tested, that are in every
    set, and minus the mean difference from the shares."""
    block_of, class_of, reached = blocks.kinds.T
    remaining = _outside_guard(blocks, part, block_of, reached)
    classes = blocks.counts.shape[1]
    pixels = np.bincount(
        part[block_of[remaining]] * classes + class_of[remaining],
        weights=blocks.kind_counts[remaining],
        minlength=3 * classes,
    ).reshape(3, classes)
    trained, validated, tested = pixels > 0
    validated |= shares[_VAL] == 0
    error = float(np.abs(pixels / np.maximum(blocks.counts.sum(axis=0), 1) - shares[:, None]).mean())
    return int(trained.sum()), int((trained & tested).sum()), int((trained & tested & validated).sum()), -error


def _draw_per_class(labels: Labels, blocks: LabelledBlocks, trained: Bools, n: int, rng: np.random.Generator) -> Bools:
    """``n`` pixels of each class in the training blocks, or all of them where there are fewer."""
    chosen, short = np.zeros_like(trained), []
    for k, entry in enumerate(labels.legend):
        pixels = np.flatnonzero(trained & (blocks.class_of == k))
        if pixels.size < n:
            short.append(f"{entry.name} ({pixels.size})")
        chosen[rng.permutation(pixels)[:n]] = True
    if short:
        warn_data(f"the training blocks hold fewer than {n} pixels of {', '.join(short)}: all of them train")
    return chosen


def _warn_missing_classes(labels: Labels, blocks: LabelledBlocks, sets: list[Bools], request: SplitRequest) -> None:
    """Name the classes that are not in all three sets."""
    validated, tested = (np.bincount(blocks.class_of[s], minlength=len(labels.legend)) > 0 for s in sets[_VAL:])
    names = np.array([entry.name for entry in labels.legend], dtype=object)
    if not tested.all():
        warn_data(
            f"{', '.join(names[~tested])} can't be tested: too few blocks of {request.block} x {request.block} pixels "
            f"hold {'it' if (~tested).sum() == 1 else 'them'}, and those train or lie in the guard band; "
            f"{_remedy(request)}"
        )
    not_validated = tested & ~validated
    if request.val > 0 and not_validated.any():
        warn_data(
            f"{', '.join(names[not_validated])}: too few blocks leave none to validate, so that confidence is "
            "not calibrated on them"
        )


def _remedy(request: SplitRequest) -> str:
    smallest = max(request.guarded_patch, 2)
    smaller = f"use smaller blocks (down to {smallest}), " if request.block > smallest else ""
    return f"{smaller}label more of it elsewhere, or split at random"
