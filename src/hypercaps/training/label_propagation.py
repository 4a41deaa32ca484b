"""Scores and labels that flow along a scene: through fields, not over their edges.

A pixel's class is mostly that of its neighbours, unless an edge of the scene runs between them. On the graph of a
scene's pixels, whose weights w fall with the difference of two neighbours' spectra, what is known flows by

    (L + G) X = G P

L is the graph's Laplacian, P (pixels, classes) what a network says, one-hot where a label is, and the diagonal G how
much each pixel holds on to it: firmly for a label, else by how sure the network is. It is what a random walker finds
that starts at a pixel, crosses edges seldom, and stops by G (Grady 2006). Rows of X sum to 1 as those of P do.

Everything is summed in one fixed order, without BLAS, so that the number of threads changes no bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.ndimage import distance_transform_cdt
from scipy.sparse import csr_array

from hypercaps.compute import linalg
from hypercaps.training.preprocessing import PCAWhitening

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

MOST_PIXELS = 250_000  # that take part: beyond that, those in tiles near the labels
_TILE = 32
_COMPONENTS = 3  # of the standardised bands that edges are seen in: the first hold the fields, later ones noise
_BETA = 3.0  # how fast a weight falls with the squared difference; 1 is the mean over all neighbours
_LEAST = 1e-5  # of a weight: no pixel is cut off by its own noise
_STRENGTH = 0.03  # with which a network's sure score is held on to, beside weights of about 1
_HOLD = 10.0  # with which a label is
_TOLERANCE = 1e-6  # of the residual
_MOST_ROUNDS = 3000
_CLASSES_AT_ONCE = 16  # columns of X that are solved for together: bounds the memory
_NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))  # the other four of the eight are these seen from the other side


@dataclass(frozen=True)
class PseudoLabels:
    """What the flow says of each pixel, and how surely."""

    classes: Indices  # (N,) positions
    trust: Array  # (N,) the first score less the second, 0 to 1


def region(shape: tuple[int, int], labelled: Indices, most: int = MOST_PIXELS) -> npt.NDArray[np.bool_]:
    """Which pixels (rows, columns) take part: all, or in a larger scene tiles near the labels, up to ``most`` pixels.

    Tiles that hold labels come first, those with more of them before, and then the tiles around them.
    """
    rows, cols = shape
    if rows * cols <= most:
        return np.ones(shape, dtype=bool)
    r, c = np.divmod(labelled, cols)
    down, across = -(-rows // _TILE), -(-cols // _TILE)
    labels = np.zeros((down, across), dtype=np.int64)
    np.add.at(labels, (r // _TILE, c // _TILE), 1)
    away = distance_transform_cdt(labels == 0, metric="chessboard")
    chosen = np.zeros((down, across), dtype=bool)
    chosen.ravel()[np.lexsort((-labels.ravel(), away.ravel()))[: most // _TILE**2]] = True
    return np.repeat(np.repeat(chosen, _TILE, axis=0), _TILE, axis=1)[:rows, :cols]


def guide(whitening: PCAWhitening, spectra: npt.NDArray[np.float32]) -> Array:
    """Whitened spectra (N, C) -> the leading components of the standardised bands (N, 3), in which edges are seen.

    Whitened components would not do: most of them are noise made as large as the rest.
    """
    spread = np.sqrt(whitening.variances)
    vectors = whitening.matrix * spread  # (bands, C), unit length
    covariance = linalg.product(vectors * whitening.variances, vectors.T)
    variances = covariance.diagonal()
    alive = variances > 1e-12 * variances.max()  # a dead band has what rounding left of it
    scale = np.where(alive, 1.0 / np.sqrt(np.where(alive, variances, 1.0)), 0.0)
    _, leading = linalg.eigh(covariance * scale[:, None] * scale)  # ascending
    back = linalg.product(spread[:, None] * vectors.T * scale, leading[:, -_COMPONENTS:])  # (C, 3)
    return linalg.product(spectra, back)


def laplacian(pixels: Indices, cols: int, guide: Array) -> csr_array:
    """L (N, N) of distinct pixels (N,), flat indices into a scene of ``cols`` columns, and their ``guide`` (N, k).

    Each is joined to those of its eight neighbours that are among them.
    """
    order = np.argsort(pixels, kind="stable")
    ascending = pixels[order]
    column = ascending % cols
    one, two, length = [], [], []
    for down, right in _NEIGHBOURS:
        inside = np.flatnonzero((column + right >= 0) & (column + right < cols))
        wanted = ascending[inside] + down * cols + right
        at = np.minimum(np.searchsorted(ascending, wanted), pixels.size - 1)
        there = ascending[at] == wanted
        one.append(order[inside[there]])
        two.append(order[at[there]])
        length.append(np.full(int(there.sum()), np.hypot(down, right)))
    i, j, lengths = np.concatenate(one), np.concatenate(two), np.concatenate(length)
    differences = np.square(guide[i] - guide[j]).sum(axis=1)
    mean = differences.mean() if differences.size else 0.0
    weights = np.exp(-_BETA * differences / (mean or 1.0)) / lengths + _LEAST
    joined = csr_array(
        (np.concatenate([weights, weights]), (np.concatenate([i, j]), np.concatenate([j, i]))),
        shape=(pixels.size, pixels.size),
    )
    degrees = np.asarray(joined.sum(axis=1)).ravel()
    every = np.arange(pixels.size)
    return csr_array(csr_array((degrees, (every, every)), shape=joined.shape) - joined)


def flow(scores: npt.NDArray[np.floating], edges: csr_array, seeds: Indices, classes: Indices) -> Array:
    """X (N, n) for a network's ``scores`` (N, n), from 0 to 1, and the ``classes`` of pixels number ``seeds``."""
    said = np.square(scores.astype(np.float64)) + 1e-12  # a pixel of which nothing is said has all classes alike
    said /= said.sum(axis=1, keepdims=True)
    hold = _STRENGTH * (_margin(said) + 1e-6)
    said[seeds] = 0.0
    said[seeds, classes] = 1.0
    hold[seeds] = _HOLD
    found = np.empty_like(said)
    for first in range(0, said.shape[1], _CLASSES_AT_ONCE):
        part = slice(first, first + _CLASSES_AT_ONCE)
        found[:, part] = _solve(edges, hold, said[:, part])
    return found


def bytes_to_propagate(pixels: int, classes: int) -> int:
    """Memory that ``flow`` takes at its height: what is said and found, seven arrays to solve with, and the graph."""
    return 8 * pixels * (3 * classes + 7 * min(classes, _CLASSES_AT_ONCE) + 60)


def pseudo_labels(found: Array) -> PseudoLabels:
    return PseudoLabels(found.argmax(axis=1), np.maximum(_margin(found), 0.0))


def draw(trust: Array, n: int, rng: np.random.Generator) -> Indices:
    """``n`` different pixels, each the more likely to come first the more it is trusted (Efraimidis, Spirakis 2006)."""
    late = rng.standard_exponential(trust.size) / (trust + 1e-12)
    return np.argsort(late, kind="stable")[:n]


def _margin(scores: Array) -> Array:
    """The first score of each row less the second: (N, n) -> (N,)"""
    top = np.partition(scores, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])


def _solve(edges: csr_array, hold: Array, said: Array) -> Array:
    """X of (L + G) X = G P by conjugate gradients, all columns (N, k) side by side, each with its own steps."""
    diagonal = (edges.diagonal() + hold)[:, None]  # the preconditioner: a label's is far above the others'
    wanted = hold[:, None] * said
    x = said.copy()
    rest = wanted - (edges @ x + hold[:, None] * x)
    enough = _TOLERANCE**2 * _products(wanted, wanted / diagonal)
    towards = rest / diagonal
    size = _products(rest, towards)
    for _ in range(_MOST_ROUNDS):
        if (size <= enough).all():
            break
        pushed = edges @ towards + hold[:, None] * towards
        along = _products(towards, pushed)
        step = np.divide(size, along, out=np.zeros_like(size), where=along > 0)
        x += step * towards
        rest -= step * pushed
        ready = rest / diagonal
        before, size = size, _products(rest, ready)
        towards *= np.divide(size, before, out=np.zeros_like(size), where=before > 0)
        towards += ready
    return x


def _products(one: Array, two: Array) -> Array:
    """Sums of products down each column: (N, k), (N, k) -> (k,)"""
    return np.asarray(np.einsum("nk,nk->k", one, two, optimize=False))
