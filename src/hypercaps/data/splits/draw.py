"""The functions that draw a split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits.blocks import draw_blocks
from hypercaps.data.splits.borders import are_whole_fields
from hypercaps.data.splits.distances import compare_distances, ground_of
from hypercaps.data.splits.folds import Folds, draw_folds
from hypercaps.data.splits.polygons import draw_polygons
from hypercaps.data.splits.random import draw_random
from hypercaps.data.splits.request import WITHOUT_TEST, SplitDescription, SplitRequest
from hypercaps.data.splits.split import Split
from hypercaps.data.splits.units import block_units, label_units
from hypercaps.data.window import Window
from hypercaps.errors import SplitError, warn_data

_MAX_COMPARED = 1 << 22  # pixels of a scene up to which the distances of two kinds of folds are compared
_AS_MANY_TESTED = 0.95  # share of the labels tested by pieces of areas that blocks must test, to be held out instead
_LEAST_TESTED = 0.1  # share of the labels that whole areas must be able to test, to be held out as a whole
_DRAW = {"random": draw_random, "polygons": draw_polygons, "blocks": draw_blocks}


def draw(labels: Labels, request: SplitRequest, *, tiles: Sequence[Window] = (), scene: Scene | None = None) -> Split:
    """Draw the requested split of the labelled pixels; the same request and labels give the same split.

    With the splits "folds" and "none" all labelled pixels train. ``tiles`` are the files of a mosaic, which folds hold
    out as a whole; default: those of the labels. ``scene`` tells whether labelled areas are whole fields, which folds
    then hold out as a whole, or parts of them, which may be cut.
    """
    if request.kind in WITHOUT_TEST:
        how = SplitDescription.of(request)
        if request.kind == "folds":
            folds = draw_requested_folds(labels, request, tiles=tiles, scene=scene)
            how = folds.describe()
            _warn_untested(labels, folds)
        none = np.empty(0, dtype=np.int64)
        return Split(np.flatnonzero(labels.array), none, none, shape=labels.shape, how=how, patch=request.patch)
    train, val, test = _DRAW[request.kind](labels, request)
    return Split(train, val, test, shape=labels.shape, how=SplitDescription.of(request), patch=request.patch)


def draw_requested_folds(
    labels: Labels, request: SplitRequest, *, tiles: Sequence[Window] = (), scene: Scene | None = None
) -> Folds:
    """The folds of a request of kind "folds", with ``tiles`` and ``scene`` as for :func:`draw`."""
    if request.kind != "folds":
        raise SplitError(f"the split {request.kind!r} has no folds: ask for the split 'folds'")
    units = label_units(labels, block=request.block, tiles=tiles or labels.tiles)
    deal = partial(draw_folds, labels, folds=request.folds, seed=request.seed)
    if units.kind != "areas":
        return deal(units)
    try:
        whole_areas = deal(label_units(labels, block=max(labels.shape)))
    except SplitError:  # every class has one area
        return deal(units)
    if (whole_areas.fold >= 0).mean() < _LEAST_TESTED:
        return deal(units)
    if whole_areas.units.count == units.count or labels.array.size > _MAX_COMPARED:
        return whole_areas
    pieces = deal(units)
    mismatch = partial(_distance_mismatch, ground=None if scene is None else ground_of(scene))
    if scene is not None and not are_whole_fields(scene, labels):
        return min((pieces, *_in_blocks(labels, request, pieces)), key=mismatch)
    return min((whole_areas, pieces), key=mismatch)


def _in_blocks(labels: Labels, request: SplitRequest, pieces: Folds) -> tuple[Folds, ...]:
    """Folds of whole blocks of the scene, unless they can test fewer labels than ``pieces`` of areas.

    A piece of a field is held out while other fields beside it train, and label propagation spreads their classes into
    it. Ground without labels has no such neighbours where whole parts of a scene were labelled.
    """
    try:
        blocks = draw_folds(labels, block_units(labels, request.block), folds=request.folds, seed=request.seed)
    except SplitError:  # all labels in one block, or fewer blocks than folds
        return ()
    tests_enough = (blocks.fold >= 0).mean() >= _AS_MANY_TESTED * (pieces.fold >= 0).mean()
    return (blocks,) if tests_enough else ()


def _distance_mismatch(folds: Folds, ground: npt.NDArray[np.bool_] | None) -> float:
    """How much nearer to (or further from) training labels the held-out pixels are than the ground to be mapped.

    A piece of a field that is held out beside the rest of it says little about fields without labels; a whole field
    that is held out says little about the unlabelled rest of labelled fields. Folds whose distances are those of the
    map answer the right question (nearest-neighbour distance matching, Milà et al. 2022, Linnenbrink et al. 2024).
    """
    distances = compare_distances(folds, ground)
    return 0.0 if distances.ground is None else abs(float(np.log(distances.held_out / distances.ground)))


def _warn_untested(labels: Labels, folds: Folds) -> None:
    """Name the classes that train only."""
    names = [labels.legend.entries[position].name for position in folds.untested()]
    if names:
        it = "it" if len(names) == 1 else "each"
        warn_data(
            f"{', '.join(names)} can't be tested: all pixels of {it} lie in one {folds.units.kind.removesuffix('s')}, "
            f"which must train; label more of {it} elsewhere (docs/splits.md)"
        )


def split_by_share(labels: Labels, train: float = 0.2, val: float = 0.1, *, seed: int = 0, patch: int = 7) -> Split:
    """Draw a share of each class's pixels at random, as in the paper.

    Parameters
    ----------
    labels : Labels
        The labelled pixels to divide.
    train, val : float, default 0.2 and 0.1
        Share (0 to 1) of each class for training and validation, rounded down; the rest is the test set. At least one
        pixel of each class trains.
    seed : int, default 0
        Seed of the random number generator.
    patch : int, default 7
        Side of the network's patches in pixels, for which ``Split.leakage`` is counted.

    Returns
    -------
    Split

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import Labels, split_by_share
    >>> labels = Labels.from_array(np.repeat([[1] * 20, [2] * 20], 10, axis=0))  # two fields of 10 x 20 pixels
    >>> split = split_by_share(labels, train=0.2, val=0.1)
    >>> split.train.size, split.val.size, split.test.size
    (80, 40, 280)
    """
    return draw(labels, SplitRequest("random", train, val, seed=seed, patch=patch))


def split_per_class(
    labels: Labels, n: int, val: float = 0.1, *, at_most: float = 1.0, seed: int = 0, patch: int = 7
) -> Split:
    """Draw the same number of training pixels from each class at random.

    Parameters
    ----------
    n : int
        Training pixels of each class.
    at_most : float, default 1
        Share of a class (0 to 1) that may train, so that small classes train with fewer than ``n`` pixels; 1: all of
        them but the validation pixels and one to test.
    labels, val, seed, patch
        As for :func:`split_by_share`.

    Returns
    -------
    Split

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import Labels, split_per_class
    >>> labels = Labels.from_array(np.repeat([[1] * 20, [2] * 20], 10, axis=0))  # two fields of 10 x 20 pixels
    >>> split_per_class(labels, 5).train.size
    10
    """
    return draw(labels, SplitRequest("random", val=val, per_class=n, at_most=at_most, seed=seed, patch=patch))


def split_polygons(
    labels: Labels, train: float = 0.2, val: float = 0.1, *, per_class: int | None = None, seed: int = 0, patch: int = 7
) -> Split:
    """Draw whole polygons at random: each goes to training, validation or test.

    Polygons are the labels' ``groups`` or, without groups, the connected areas of each class (pixels that share a side
    or a corner). A class with two polygons trains and tests; one with a single polygon only trains, with a warning.

    Parameters
    ----------
    train, val : float, default 0.2 and 0.1
        Share (0 to 1) of each class's pixels, met as nearly as whole polygons allow.
    per_class : int, optional
        Approximate number of training pixels of each class, instead of ``train``.
    labels, seed, patch
        As for :func:`split_by_share`.

    Returns
    -------
    Split

    Examples
    --------
    >>> from hypercaps import Labels, split_polygons
    >>> columns = [1, 1, 0, 2, 2, 0, 1, 1, 0, 2, 2]  # four stripes of 3 x 2 pixels, two of each class
    >>> split = split_polygons(Labels.from_array([columns] * 3), train=0.5, val=0)
    >>> split.train.size, split.test.size
    (12, 12)
    """
    return draw(labels, SplitRequest("polygons", train, val, per_class=per_class, seed=seed, patch=patch))


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
    """Draw whole square blocks of the scene at random, without leakage.

    No patch of a test pixel contains a labelled pixel of a training or validation block, and no patch of a validation
    pixel one of a training block. Every class is in all three sets where possible; a warning names the others.

    Parameters
    ----------
    train, val : float, default 0.2 and 0.1
        Share (0 to 1) of each class's pixels, met as nearly as whole blocks allow, before the guard band between blocks
        is removed.
    block : int, default 16
        Side of the blocks in pixels, at least ``patch``.
    per_class : int, optional
        Training pixels of each class, drawn from the training blocks; the test set does not depend on it.
    patch : int, default 7
        Side of the network's patches in pixels; the guard band is half a patch wide.
    labels, seed
        As for :func:`split_by_share`.

    Returns
    -------
    Split

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import Labels, split_blocks
    >>> labels = Labels.from_array(np.repeat([[1] * 40, [2] * 40], 20, axis=0))  # two fields of 20 x 40 pixels
    >>> split_blocks(labels, train=0.4, block=10).leakage
    0.0
    """
    return draw(labels, SplitRequest("blocks", train, val, per_class, block, seed, patch))
