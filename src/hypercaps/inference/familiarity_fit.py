"""Fit of familiarity to the labelled pixels of a scene.

Components are those of robust whitening, scaled by the scatter within the classes: directions in which ground of one
class varies count less. The window is the one by which classes that are left out of the prototypes in turn are told
best from known ground.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from hypercaps.compute import linalg, native
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.data.splits.folds import Folds
from hypercaps.inference.familiarity import WINDOWS, Familiarity
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PCAWhitening
from hypercaps.training.scene_cache import SceneCache

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PROTOTYPES = 512  # windows in all
_LEAST = 8  # of each class
_SAMPLED = 1024  # training pixels that the scatter within the classes is computed from
_HELD_OUT = 1000  # pixels from which the distances of known ground are taken
_FEW = 20  # validation pixels that are too few for that
_SHRINKAGE = 0.3  # share of the mean variance that is added to the scatter within the classes
_GROUPS = 10  # of units: a scaling is fitted without each, for its own pixels
_TIE = 0.005  # difference in AUROC below which the smaller window is taken
_AT_ONCE = 16  # patches: they stay in the cache


def fit_familiarity(cache: SceneCache, labels: Labels, split: Split, folds: Folds | None, seed: int) -> Familiarity:
    """Fit to the training pixels of a split, and to its validation pixels or, if these are few, to the folds' units.

    ``cache`` is that of the scene.
    """
    sample = _draw(labels, split, folds, np.random.default_rng(seed))
    whitening = cache.robust_whitening
    alive = whitening.variances > 0
    means = _window_means(cache.scene, whitening, sample.pixels)
    # Each decomposition is on one thread, and many wait for none of the others.
    with linalg.one_thread(), ThreadPoolExecutor(native.threads()) as pool:
        fits = list(pool.map(lambda side: _fit_window(side, means[side][:, alive], sample), means))
    best = fits[0]
    for fitted in fits[1:]:  # ascending windows
        if fitted.auroc > best.auroc + _TIE:
            best = fitted
    matrix = linalg.product(whitening.matrix[:, alive], best.scaling)
    return Familiarity(best.window, whitening.mean, matrix, best.prototypes, best.known)


def stored_bytes(bands: int, classes: int) -> int:
    """Upper estimate of the part of a model file that familiarity takes."""
    return 8 * (bands * (bands + 1 + max(_PROTOTYPES, _LEAST * classes)) + _HELD_OUT)


@dataclass(frozen=True, eq=False)
class _Sample:
    """Labelled pixels and what they are used for."""

    pixels: Indices  # (N,) flat, ascending
    classes: Indices  # (N,) positions in the legend
    units: Indices  # (N,) a held-out pixel is not compared with prototypes of its unit
    is_train: Mask  # (N,)
    is_prototype: Mask  # (N,)
    is_held_out: Mask  # (N,)


def _draw(labels: Labels, split: Split, folds: Folds | None, rng: np.random.Generator) -> _Sample:
    flat = labels.array.ravel()
    train = rng.permutation(split.train)
    rank = _rank_in_class(flat[train])
    classes = np.unique(flat[train]).size
    sampled, prototypes = (train[rank < max(most // classes, _LEAST)] for most in (_SAMPLED, _PROTOTYPES))
    has_val = split.val.size >= _FEW
    held_out = rng.permutation(split.val if has_val else split.train)[:_HELD_OUT]
    pixels = np.unique(np.concatenate([sampled, prototypes, held_out]))
    sample = _Sample(
        pixels,
        np.searchsorted(labels.legend.labels, flat[pixels]),
        units=np.arange(pixels.size),  # leave one out
        is_train=np.isin(pixels, split.train),
        is_prototype=np.isin(pixels, prototypes),
        is_held_out=np.isin(pixels, held_out),
    )
    return sample if has_val or folds is None else _with_units(sample, folds)


def _rank_in_class(classes: npt.NDArray[np.int16]) -> Indices:
    """(N,) how many pixels of the same class come before each"""
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    rank = np.empty(classes.size, dtype=np.int64)
    rank[order] = np.arange(classes.size) - np.searchsorted(ordered, ordered)
    return rank


def _with_units(sample: _Sample, folds: Folds) -> _Sample:
    """The sample with the spatial units of the folds; as it is if no class has prototypes in two of them."""
    at = np.searchsorted(folds.units.pixels, sample.pixels).clip(max=folds.units.pixels.size - 1)
    is_listed = folds.units.pixels[at] == sample.pixels
    units = np.where(is_listed, folds.units.unit[at], folds.units.count + sample.units)
    changed = _Sample(**{**vars(sample), "units": units})
    return changed if _has_own_prototype(changed).any() else sample


def _has_own_prototype(sample: _Sample) -> Mask:
    """(Q,) which held-out pixels have a prototype of their class outside of their unit"""
    prototype, held_out = sample.is_prototype, sample.is_held_out
    is_own = sample.classes[held_out][:, None] == sample.classes[prototype]
    return np.asarray((is_own & ~_in_same_unit(sample)).any(axis=1))


def _in_same_unit(sample: _Sample) -> Mask:
    """(Q, P)"""
    return np.asarray(sample.units[sample.is_held_out][:, None] == sample.units[sample.is_prototype])


def _window_means(scene: Scene, whitening: PCAWhitening, pixels: Indices) -> dict[int, Array]:
    """Mean components (N, k) of the windows around pixels, by the window's side."""
    sides = [side for side in WINDOWS if side <= max(1, min(scene.rows, scene.cols))]
    largest = sides[-1]
    store = PatchStore(scene, whitening, pixels, largest)
    means: dict[int, list[npt.NDArray[np.float32]]] = {side: [] for side in sides}
    with linalg.one_thread():
        for start in range(0, pixels.size, _AT_ONCE):
            patches = store.gather(torch.arange(start, min(start + _AT_ONCE, pixels.size)))  # (B, D, D, k)
            for side in sides:
                inner = slice((largest - side) // 2, (largest + side) // 2)
                means[side].append(patches[:, inner, inner].mean(dim=(1, 2)).numpy())
    return {side: np.concatenate(parts).astype(np.float64) for side, parts in means.items()}


@dataclass(frozen=True, eq=False)
class _Fitted:
    """What one window gives."""

    window: int
    auroc: float  # mean over classes that are left out of the prototypes
    scaling: Array  # (k, k)
    prototypes: Array  # (P, k)
    known: Array  # (Q,) ascending


def _fit_window(window: int, components: Array, sample: _Sample) -> _Fitted:
    scaling = _within_scaling(components[sample.is_train], sample.classes[sample.is_train])
    distances = _held_out_distances(components, sample, scaling)
    distances[_in_same_unit(sample)] = np.inf
    of_prototypes, of_held_out = sample.classes[sample.is_prototype], sample.classes[sample.is_held_out]
    usable = _has_own_prototype(sample)
    if not usable.any():  # one pixel of each class: the other classes are all there is
        usable = np.asarray(np.isfinite(distances).any(axis=1))
    # Distance to the nearest prototype of each class: (Q, classes)
    nearest = np.stack([distances[:, of_prototypes == one].min(axis=1) for one in np.unique(of_prototypes)], axis=1)
    ascending = np.sort(nearest[usable].min(axis=1))
    auroc = _left_out_auroc(nearest, np.unique(of_prototypes), of_held_out, usable)
    return _Fitted(window, auroc, scaling, _scaled(components[sample.is_prototype], scaling), ascending)


def _held_out_distances(components: Array, sample: _Sample, scaling: Array) -> Array:
    """Squared distances (Q, P) of held-out pixels to prototypes, from components (N, k).

    A training pixel would look too near in a scaling that was fitted to it, most of all where labels are few. So the
    distances of training pixels are taken in a scaling that was fitted without their unit and a tenth of the others.
    """
    held_out, prototypes = components[sample.is_held_out], components[sample.is_prototype]
    distances = _squared_distances(_scaled(held_out, scaling), _scaled(prototypes, scaling))
    if not (sample.is_held_out & sample.is_train).any():
        return distances
    group = np.unique(sample.units, return_inverse=True)[1] % _GROUPS
    for one in np.unique(group[sample.is_held_out]):
        others = sample.is_train & (group != one)
        if not _has_scatter(sample.classes[others]):
            continue
        without = _within_scaling(components[others], sample.classes[others])
        of_group = group[sample.is_held_out] == one
        distances[of_group] = _squared_distances(_scaled(held_out[of_group], without), _scaled(prototypes, without))
    return distances


def _has_scatter(classes: Indices) -> bool:
    """Whether a class has two pixels."""
    return np.unique(classes).size < classes.size


def _scaled(components: Array, scaling: Array) -> Array:
    """(N, k), (k, k) -> (N, k)"""
    with linalg.one_thread():
        return np.asarray(components @ scaling)


def _within_scaling(components: Array, classes: Indices) -> Array:
    """(k, k) by which the scatter of components (N, k) within the classes becomes nearly unity."""
    centred = components.copy()
    for one in np.unique(classes):
        centred[classes == one] -= components[classes == one].mean(axis=0)
    scatter = linalg.gram(centred) / max(1, len(centred) - np.unique(classes).size)
    mean_variance = float(scatter.diagonal().mean())
    if mean_variance <= 0:  # one pixel of each class
        return np.eye(len(scatter))
    variances, vectors = linalg.eigh(scatter + _SHRINKAGE * mean_variance * np.eye(len(scatter)))
    return np.asarray(vectors / np.sqrt(variances))


def _squared_distances(rows: Array, columns: Array) -> Array:
    """(N, k), (M, k) -> (N, M)"""
    with linalg.one_thread():
        products = rows @ columns.T
    squares = np.square(rows).sum(axis=1)[:, None] - 2 * products + np.square(columns).sum(axis=1)
    return np.asarray(np.maximum(squares, 0.0))


def _left_out_auroc(nearest: Array, classes: Indices, of_held_out: Indices, usable: Mask) -> float:
    """Mean over classes: how well the held-out pixels of one without prototypes are told from those of the others.

    ``nearest`` (Q, classes) are the distances of held-out pixels to the prototypes of each class.
    """
    aurocs = []
    for number, one in enumerate(classes):
        others = np.delete(nearest, number, axis=1)
        is_unknown = of_held_out == one
        is_known = ~is_unknown & usable
        if others.shape[1] and is_unknown.any() and is_known.any():
            least = others.min(axis=1)
            aurocs.append(auroc(least[is_known], least[is_unknown]))
    return float(np.mean(aurocs)) if aurocs else 0.0


def auroc(known: Array, unknown: Array) -> float:
    """Probability that an unknown pixel has the higher of two values; equal ones count half."""
    ordered = np.sort(known)
    below = np.searchsorted(ordered, unknown, side="left") + np.searchsorted(ordered, unknown, side="right")
    return float(below.mean() / (2 * known.size))
