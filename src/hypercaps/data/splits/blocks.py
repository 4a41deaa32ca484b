"""Whole blocks of ground, drawn at random: what is tested lies away from what was learned.

The scene is cut into squares on a fixed grid, and each goes as a whole to training, validation or test. Along their
borders a patch would still reach into the neighbouring block: such pixels are left out (the guard band).
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.splits.rules import check_number, check_shares, warn
from hypercaps.data.splits.split import Indices, Split, patches_hold
from hypercaps.errors import SplitError

TRAIN, VAL, TEST = 0, 1, 2
NONE, _EMPTY = 3, 4  # not dealt yet, and without labels: never dealt
_DEALS = 128  # of which the one that serves most classes is taken
_BY_HAND = 1000  # blocks that are dealt one by one to come near the shares; where there are more, those by lot

Bools = npt.NDArray[np.bool_]
Parts = npt.NDArray[np.int8]  # of each block: one of these
# The eight neighbours of a block, as steps of rows and columns; each has a bit.
_AROUND = tuple((dr, dc) for dr in (-1, 0, 1) for dc in (-1, 0, 1) if dr or dc)


class _Ground(NamedTuple):
    """The labelled pixels by block, and all that a deal is judged by."""

    pixels: Indices  # (N,) flat
    block_of: Indices  # (N,)
    class_of: Indices  # (N,) positions in the legend
    near: npt.NDArray[np.uint8]  # (N,) bits of the neighbouring blocks that have a labelled pixel in its patch
    grid: tuple[int, int]  # rows and columns of blocks
    counts: Indices  # (blocks, classes): labelled pixels
    # The same pixels counted: those of one block, class and neighbourhood live and die together.
    alike: Indices  # (kinds, 3): block, class, near
    times: Indices  # (kinds,)


def split_blocks(
    labels: Labels,
    train: float = 0.2,
    val: float = 0.1,
    *,
    block: int = 16,
    per_class: int | None = None,
    seed: int = 0,
    patch: int = 7,
) -> Split:
    """Blocks of ``block`` x ``block`` pixels go as a whole to training, validation or test: no leakage.

    No patch of a test pixel holds a labelled pixel of a training or validation block, and no patch of a validation
    pixel one of a training block. Shares are of each class's pixels, met as nearly as whole blocks allow, before the
    guard band is taken. ``per_class`` takes so many training pixels of each class from the training blocks; the test
    set is then that of all of them. Every class that can be is in all three sets; the user is told of those that can't.
    """
    check_shares(train, val)
    if per_class is not None:
        check_number(per_class, val)
    block = _side(block, patch)
    ground = _survey(labels, block, patch // 2)
    rng = np.random.default_rng(seed)
    shares = np.array([train, val, 1 - train - val])
    deals = max(4, _DEALS * _BY_HAND // max(_BY_HAND, int(ground.counts.any(axis=1).sum())))
    best = max(_deal(ground, shares, rng, deals), key=lambda part: _merit(ground, part, shares))
    part, kept = best[ground.block_of], _kept(ground, best, ground.block_of, ground.near)
    sets = [kept & (part == which) for which in (TRAIN, VAL, TEST)]
    if not sets[TEST].any():
        raise SplitError(
            f"blocks of {block} x {block} pixels leave nothing of {labels.name!r} to test"
            f"{' outside the guard band' if (part == TEST).any() else ''}: {_remedy(block, patch)}"
        )
    _tell(labels, ground, sets, block, patch, with_val=val > 0)
    if per_class is not None:
        sets[TRAIN] = _draw_from(labels, ground, sets[TRAIN], per_class, rng)
    how: dict[str, Any] = {"kind": "blocks", "train": train, "val": val, "block": block, "guard": patch // 2}
    how |= {"seed": seed} if per_class is None else {"per_class": per_class, "seed": seed}
    first, second, third = (ground.pixels[chosen] for chosen in sets)
    split = Split(first, second, third, shape=labels.shape, how=how, patch=patch)
    # What this split is for; a change that breaks it must not go unnoticed.
    assert not patches_hold(np.concatenate([first, second]), third, labels.shape, patch).any()
    assert not patches_hold(first, second, labels.shape, patch).any()
    return split


def _side(block: int, patch: int) -> int:
    try:
        side = operator.index(block)
    except TypeError:
        side = 0
    if side < max(patch, 2):
        raise SplitError(
            f"blocks of {block!r} pixels can't keep patches of {patch} x {patch} apart: give a whole number of at "
            f"least {max(patch, 2)}"
        )
    return side


def _survey(labels: Labels, block: int, half: int) -> _Ground:
    """Where the labelled pixels are, and which neighbouring blocks their patches reach."""
    rows, cols = labels.shape
    pixels = np.flatnonzero(labels.array)
    r, c = np.divmod(pixels, cols)
    # The last block of a row or column is as large as it comes out, from half a side to one and a half: never
    # narrower than a patch reaches, so that a patch reaches no further than to the neighbours.
    n_rows, n_cols = (max(1, (size + block // 2) // block) for size in (rows, cols))
    row_of, col_of = (np.minimum(np.arange(n) // block, m - 1) for n, m in ((rows, n_rows), (cols, n_cols)))
    near = _near(labels.array, row_of, col_of, half).ravel()[pixels]
    block_of = row_of[r] * n_cols + col_of[c]
    class_of = np.searchsorted(labels.legend.labels, labels.array.ravel()[pixels])
    classes = len(labels.legend)
    counts = np.bincount(block_of * classes + class_of, minlength=n_rows * n_cols * classes)
    codes, times = np.unique((block_of * classes + class_of) * 256 + near, return_counts=True)
    alike = np.stack([codes // 256 // classes, codes // 256 % classes, codes % 256], axis=1)
    return _Ground(
        pixels, block_of, class_of, near, (n_rows, n_cols), counts.reshape(n_rows * n_cols, classes), alike, times
    )


def _near(
    array: npt.NDArray[np.int16], row_of: Indices, col_of: Indices, half: int
) -> npt.NDArray[np.uint8]:  # (rows, columns)
    """Bits of the neighbouring blocks that have a labelled pixel in each pixel's patch."""
    near = np.zeros(array.shape, dtype=np.uint8)
    above_to_below, left_to_right = _reach(row_of, half), _reach(col_of, half)
    for row in range(int(row_of[-1]) + 1):  # a row of blocks at a time: the sums below are larger than the labels
        first, stop = np.searchsorted(row_of, [row, row + 1])
        top, bottom = max(first - half, 0), min(stop + half, len(row_of))
        down = _sums(array[top:bottom] > 0, axis=0)
        bit = 0
        for dr, (lo, hi) in zip((-1, 0, 1), above_to_below, strict=True):
            held = down[hi[first:stop] - top] > down[lo[first:stop] - top]
            along = _sums(held, axis=1)
            for dc, (left, right) in zip((-1, 0, 1), left_to_right, strict=True):
                if dr or dc:
                    near[first:stop] |= (along[:, right] > along[:, left]).astype(np.uint8) << bit
                    bit += 1
    return near


def _reach(block_of: Indices, half: int) -> list[tuple[Indices, Indices]]:
    """Of each row (or column): where its patch begins and ends in the block before, its own and the one behind."""
    at = np.arange(len(block_of))
    first, stop = np.searchsorted(block_of, block_of), np.searchsorted(block_of, block_of, side="right")
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, len(at))
    return [
        (np.minimum(low, first), first),
        (np.maximum(low, first), np.minimum(high, stop)),
        (stop, np.maximum(high, stop)),
    ]


def _sums(held: Bools, axis: int) -> npt.NDArray[np.int32]:
    """Running sums from 0: how many lie between two places is the difference of two of them."""
    return np.concatenate(
        [np.zeros_like(held.take([0], axis=axis), dtype=np.int32), held.cumsum(axis=axis, dtype=np.int32)], axis=axis
    )


def _deal(ground: _Ground, shares: npt.NDArray[np.float64], rng: np.random.Generator, deals: int) -> Parts:
    """(deals, blocks) every labelled block to a set: first so that rare classes are in all, then by the shares."""
    counts, holds = ground.counts, ground.counts > 0
    part = np.full((deals, len(counts)), NONE, dtype=np.int8)
    part[:, ~holds.any(axis=1)] = _EMPTY
    each = np.arange(deals)
    lot = rng.random(part.shape)
    wanted = [which for which in (TRAIN, TEST, VAL) if shares[which] > 0]  # in this order while blocks last
    rarity = holds.sum(axis=0) + rng.random(counts.shape[1]) / 2  # blocks of each class, ties by lot
    for k in np.argsort(rarity):
        of_class = np.flatnonzero(holds[:, k])
        for which in wanted:
            free = part[:, of_class] == NONE  # (deals, blocks of the class)
            needs = free.any(axis=1) & ~(part[:, of_class] == which).any(axis=1)
            drawn = of_class[np.where(free, lot[:, of_class], -1.0).argmax(axis=1)]
            part[each[needs], drawn[needs]] = which
    # The rest in an order by lot, those that are dealt already at the end.
    order = np.argsort(np.where(part == NONE, lot, 2.0), axis=1)
    left = (part == NONE).sum(axis=1)
    by_lot = np.maximum(left - _BY_HAND, 0)
    for deal, n in enumerate(by_lot):
        part[deal, order[deal, :n]] = rng.choice(3, size=n, p=shares / shares.sum())
    # What each set still lacks of each class (deals, 3, classes); a block goes where it does most good.
    total = np.maximum(counts.sum(axis=0), 1)
    has = np.stack([[counts[row == which].sum(axis=0) for which in (TRAIN, VAL, TEST)] for row in part])
    lacks = shares[:, None] * total - has
    never = np.where(shares > 0, 0.0, -np.inf)
    for step in range(min(_BY_HAND, int(left.max(initial=0)))):
        now = each[by_lot + step < left]
        chosen = order[now, (by_lot + step)[now]]
        block = counts[chosen][:, None, :]  # (deals, 1, classes)
        which = (((lacks[now] - block / 2) * block / total).sum(axis=2) + never).argmax(axis=1)
        part[now, chosen] = which
        lacks[now, which] -= block[:, 0]
    return part


def _kept(ground: _Ground, part: Parts, block_of: Indices, near: npt.NDArray[Any]) -> Bools:
    """Of pixels of these blocks and neighbourhoods: those outside the guard band of a deal."""
    rows, cols = ground.grid
    around = np.full((rows + 2, cols + 2), NONE, dtype=np.int8)
    around[1:-1, 1:-1] = part.reshape(rows, cols)
    training, others = np.zeros(rows * cols, dtype=np.uint8), np.zeros(rows * cols, dtype=np.uint8)
    for bit, (dr, dc) in enumerate(_AROUND):
        there = around[1 + dr : 1 + dr + rows, 1 + dc : 1 + dc + cols].ravel()
        training |= (there == TRAIN).astype(np.uint8) << bit
        others |= ((there == TRAIN) | (there == VAL)).astype(np.uint8) << bit
    # Bits of the neighbours that a block has to keep away from.
    shunned = np.choose(part, [np.uint8(0), training, others, np.uint8(0), np.uint8(0)])
    kept: Bools = (near & shunned[block_of]) == 0
    return kept


def _merit(ground: _Ground, part: Parts, shares: npt.NDArray[np.float64]) -> tuple[int, int, int, float]:
    """Of a deal, more is better: classes that train, are tested too, are in every set, and how near the shares are."""
    block_of, class_of, near = ground.alike.T
    kept = _kept(ground, part, block_of, near)
    classes = ground.counts.shape[1]
    left = np.bincount(
        part[block_of[kept]] * classes + class_of[kept], weights=ground.times[kept], minlength=3 * classes
    ).reshape(3, classes)
    trained, validated, tested = left > 0
    asked = validated | (shares[VAL] == 0)
    error = float(np.abs(left / np.maximum(ground.counts.sum(axis=0), 1) - shares[:, None]).mean())
    return int(trained.sum()), int((trained & tested).sum()), int((trained & tested & asked).sum()), -error


def _draw_from(labels: Labels, ground: _Ground, trained: Bools, n: int, rng: np.random.Generator) -> Bools:
    """``n`` training pixels of each class, or as many as there are."""
    chosen, short = np.zeros_like(trained), []
    for k, entry in enumerate(labels.legend):
        found = np.flatnonzero(trained & (ground.class_of == k))
        if found.size < n:
            short.append(f"{entry.name} ({found.size})")
        chosen[rng.permutation(found)[:n]] = True
    if short:
        warn(f"the training blocks hold fewer than {n} pixels of {', '.join(short)}: all of them train")
    return chosen


def _tell(labels: Labels, ground: _Ground, sets: list[Bools], block: int, patch: int, *, with_val: bool) -> None:
    """Name the classes that are not in all three sets, and say what can be done."""
    validated, tested = (np.bincount(ground.class_of[s], minlength=len(labels.legend)) > 0 for s in sets[VAL:])
    names = np.array([entry.name for entry in labels.legend], dtype=object)
    if not tested.all():
        warn(
            f"{', '.join(names[~tested])} can't be tested: too few blocks of {block} x {block} pixels hold "
            f"{'it' if (~tested).sum() == 1 else 'them'}, and those train or lie in the guard band; "
            f"{_remedy(block, patch)}"
        )
    unseen = tested & ~validated
    if with_val and unseen.any():
        warn(f"{', '.join(names[unseen])}: too few blocks leave none to validate, confidence is calibrated without")


def _remedy(block: int, patch: int) -> str:
    smaller = f"take smaller blocks (down to {max(patch, 2)}), " if block > max(patch, 2) else ""
    return f"{smaller}label more of it elsewhere, or split at random"
