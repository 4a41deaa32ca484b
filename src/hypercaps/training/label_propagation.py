"""Label propagation on the pixel graph (random walker, Grady 2006).

Neighbouring pixels mostly have the same class, unless an edge of the scene runs between them. On the graph of a scene's
pixels, whose edge weights w fall with the difference between two neighbours' spectra, the propagated scores X solve

    (L + G) X = G P

L is the Laplacian of the graph, P (pixels, classes) the scores of a network, one-hot at labelled pixels, and the
diagonal G is the weight with which each pixel keeps its row of P: large for labels, for other pixels by the margin of
the network's scores. X is the probability that a random walker, which starts at a pixel and rarely crosses edges, stops
at a pixel of a class. Rows of X sum to 1 as those of P do.

All sums have one fixed order, without BLAS, so that the number of threads changes no bit.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from hypercaps.compute import linalg, native
from hypercaps.training.preprocessing import PCAWhitening

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

MAX_PIXELS = 250_000  # size of the graph; in larger scenes, pixels of tiles near the labels
_TILE = 32  # pixels
_COMPONENTS = 3  # principal components of the standardised bands that edges are seen in; later ones are mostly noise
_BETA = 3.0  # how fast a weight falls with the squared difference, whose mean over all neighbours is 1
_MIN_WEIGHT = 1e-5  # so that noise cannot disconnect a pixel
_SCORE_STRENGTH = 0.03  # entry of G for a network's score with margin 1; edge weights are about 1
_LABEL_STRENGTH = 10.0  # entry of G for a label
_TOLERANCE = 1e-6  # of the residual
_MAX_ITERATIONS = 3000
_LEAST_COLUMNS = 4  # of X that are worth a thread
_CLASSES_AT_ONCE = 16  # columns of X that are solved for together: bounds the memory
_NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))  # half of the eight neighbours; the others follow by symmetry


@dataclass(frozen=True)
class PseudoLabels:
    """The propagated class of each pixel, and its margin."""

    classes: Indices  # (N,) class indices
    margin: Array  # (N,) the highest propagated score less the second, 0 to 1


def region_near_labels(
    shape: tuple[int, int], labelled: Indices, max_pixels: int = MAX_PIXELS
) -> npt.NDArray[np.bool_]:
    """The pixels (rows, columns) of the graph: all, or in a larger scene tiles near the labels, up to ``max_pixels``.

    ``labelled`` are flat indices. Tiles with the most labels come first, then the tiles around them.
    """
    rows, cols = shape
    if rows * cols <= max_pixels:
        return np.ones(shape, dtype=bool)
    from scipy.ndimage import distance_transform_cdt

    r, c = np.divmod(labelled, cols)
    down, across = -(-rows // _TILE), -(-cols // _TILE)
    labels = np.zeros((down, across), dtype=np.int64)  # in each tile
    np.add.at(labels, (r // _TILE, c // _TILE), 1)
    distance = distance_transform_cdt(labels == 0, metric="chessboard")  # in tiles
    chosen = np.zeros((down, across), dtype=bool)
    chosen.ravel()[np.lexsort((-labels.ravel(), distance.ravel()))[: max_pixels // _TILE**2]] = True
    return np.repeat(np.repeat(chosen, _TILE, axis=0), _TILE, axis=1)[:rows, :cols]


def edge_features(whitening: PCAWhitening, spectra: npt.NDArray[np.float32]) -> Array:
    """Whitened spectra (N, C) -> the leading components of the standardised bands (N, 3), in which edges are seen.

    Whitened components are not suitable: most of them are noise, scaled up to the variance of the others.
    """
    spread = np.sqrt(whitening.variances)
    vectors = whitening.matrix * spread  # (bands, C), unit length
    covariance = linalg.product(vectors * whitening.variances, vectors.T)
    variances = covariance.diagonal()
    alive = variances > 1e-12 * variances.max()  # a dead band has only rounding errors
    scale = np.where(alive, 1.0 / np.sqrt(np.where(alive, variances, 1.0)), 0.0)
    _, leading = linalg.eigh(covariance * scale[:, None] * scale)  # ascending
    back = linalg.product(spread[:, None] * vectors.T * scale, leading[:, -_COMPONENTS:])  # (C, 3)
    return linalg.product(spectra, back)


@dataclass(frozen=True, eq=False)
class PixelGraph:
    """Pixels of a scene, connected to those of their eight neighbours that are among them."""

    pixels: Indices  # (N,) flat indices, ascending
    ends: tuple[Indices, Indices]  # (E,) positions of the two pixels of each edge among them
    weights: Array  # (E,)

    @classmethod
    def of(cls, pixels: Indices, cols: int, features: Array) -> PixelGraph:
        """The graph of distinct pixels (N,), in any order, flat indices into a scene of ``cols`` columns.

        Weights follow from the differences between the neighbours' ``features`` (N, k).
        """
        order = np.argsort(pixels, kind="stable")
        ascending = pixels[order]
        column = ascending % cols
        edges: list[tuple[Indices, Indices, Array]] = []  # both ends of edges, and their length in pixels
        for down, right in _NEIGHBOURS:
            inside = np.flatnonzero((column + right >= 0) & (column + right < cols))
            neighbour = ascending[inside] + down * cols + right
            at = np.minimum(np.searchsorted(ascending, neighbour), pixels.size - 1)
            exists = ascending[at] == neighbour
            edges.append((inside[exists], at[exists], np.full(int(exists.sum()), np.hypot(down, right))))
        i, j, lengths = (np.concatenate(parts) for parts in zip(*edges, strict=True))
        differences = np.square(features[order[i]] - features[order[j]]).sum(axis=1)
        mean = differences.mean() if differences.size else 0.0
        weights = np.exp(-_BETA * differences / (mean or 1.0)) / lengths + _MIN_WEIGHT
        return cls(ascending, (i, j), weights)

    def laplacian(self, pixels: Indices) -> csr_array:
        """Laplacian L (N, N), whose rows belong to ``pixels``: those of the graph in another order."""
        order = np.argsort(pixels, kind="stable")
        i, j = (order[end] for end in self.ends)
        shape = pixels.size, pixels.size
        ends = np.concatenate([i, j]), np.concatenate([j, i])
        adjacency = csr_array((np.concatenate([self.weights, self.weights]), ends), shape=shape)
        degrees = np.asarray(adjacency.sum(axis=1)).ravel()
        diagonal = np.arange(pixels.size)
        return csr_array(csr_array((degrees, (diagonal, diagonal)), shape=shape) - adjacency)


def pixel_graph_laplacian(pixels: Indices, cols: int, features: Array) -> csr_array:
    """Laplacian L (N, N) of the graph of distinct pixels (N,), flat indices into a scene of ``cols`` columns."""
    return PixelGraph.of(pixels, cols, features).laplacian(pixels)


def propagate(scores: npt.NDArray[np.floating], laplacian: csr_array, seeds: Indices, classes: Indices) -> Array:
    """Propagated scores X (N, n).

    ``scores`` (N, n) are those of a network, 0 to 1; ``seeds`` (S,) the labelled pixels' positions among the N and
    ``classes`` (S,) their class indices.
    """
    prior = np.square(scores.astype(np.float64)) + 1e-12  # P; all-zero scores give equal probabilities
    prior /= prior.sum(axis=1, keepdims=True)
    strength = _SCORE_STRENGTH * (_margin(prior) + 1e-6)  # G (N,)
    prior[seeds] = 0.0
    prior[seeds, classes] = 1.0
    strength[seeds] = _LABEL_STRENGTH
    propagated = np.empty_like(prior)
    for first in range(0, prior.shape[1], _CLASSES_AT_ONCE):
        part = slice(first, first + _CLASSES_AT_ONCE)
        propagated[:, part] = _conjugate_gradients(laplacian, strength, prior[:, part])
    return propagated


def bytes_to_propagate(pixels: int, classes: int) -> int:
    """Peak memory of ``propagate``: P and X, eight arrays of the solver in whole blocks of columns, and the graph."""
    columns = -(-min(classes, _CLASSES_AT_ONCE) // native.SOLVED) * native.SOLVED
    return 8 * pixels * (3 * classes + 8 * columns + 60)


def pseudo_labels(propagated: Array) -> PseudoLabels:
    return PseudoLabels(propagated.argmax(axis=1), np.maximum(_margin(propagated), 0.0))


def draw(margin: Array, n: int, rng: np.random.Generator) -> Indices:
    """``n`` distinct pixels, drawn with probabilities that grow with their margin (Efraimidis and Spirakis 2006)."""
    keys = rng.standard_exponential(margin.size) / (margin + 1e-12)
    return np.argsort(keys, kind="stable")[:n]


def _margin(scores: Array) -> Array:
    """The highest score of each row less the second: (N, n) -> (N,)"""
    top = np.partition(scores, -2, axis=1)
    return np.asarray(top[:, -1] - top[:, -2])


def _conjugate_gradients(laplacian: csr_array, strength: Array, prior: Array) -> Array:
    """Solve (L + G) X = G P for all columns (N, k) side by side, each with its own step sizes.

    Every thread has some of the columns. A column's sums do not depend on the columns beside it, and all make as many
    steps as the slowest one, so that the number of threads changes no bit.
    """
    if native.available():
        return _compiled_gradients(laplacian, strength, prior)
    columns = prior.shape[1]
    threads = max(1, min(native.threads(), columns // _LEAST_COLUMNS))
    parts = [_Columns(laplacian, strength, part) for part in np.array_split(prior, threads, axis=1)]
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_MAX_ITERATIONS):
            if all(part.is_solved for part in parts):
                break
            list(pool.map(_Columns.step, parts))
    return np.concatenate([part.solution for part in parts], axis=1)


def _compiled_gradients(laplacian: csr_array, strength: Array, prior: Array) -> Array:
    """The same by the compiled kernel, which reads and writes each array once in a step: columns in blocks."""
    pixels, columns = prior.shape
    blocks = -(-columns // native.SOLVED)
    solution, residual, direction, image = (native.empty((blocks, pixels, native.SOLVED), np.float64) for _ in range(4))
    size, tolerance = np.empty((2, blocks, native.SOLVED))
    for block in range(blocks):
        part = np.zeros((pixels, native.SOLVED))  # columns of zeros fill the last one
        own = prior[:, block * native.SOLVED : (block + 1) * native.SOLVED]
        part[:, : own.shape[1]] = own
        start = _Columns(laplacian, strength, part)
        solution[block], residual[block], direction[block] = start.solution, start.residual, start.direction
        size[block], tolerance[block] = start.size, start.tolerance
    starts, neighbours = (np.asarray(part, dtype=np.int64) for part in (laplacian.indptr, laplacian.indices))
    system = starts, neighbours, laplacian.data, strength, np.ascontiguousarray(start.diagonal[:, 0])
    for _ in range(_MAX_ITERATIONS):
        if (size <= tolerance).all():
            break
        native.run("solver_step", pixels, blocks, *system, solution, residual, direction, image, size)
    return np.concatenate(list(solution), axis=1)[:, :columns]


class _Columns:
    """Some columns of the system while it is being solved."""

    def __init__(self, laplacian: csr_array, strength: Array, prior: Array) -> None:
        self.laplacian, self.strength = laplacian, strength[:, None]
        self.diagonal = laplacian.diagonal()[:, None] + self.strength  # preconditioner: labels have far larger entries
        right = self.strength * prior
        self.solution = np.array(prior, order="C")  # a copy
        self.residual = right - (laplacian @ self.solution + self.strength * self.solution)
        self.tolerance = _TOLERANCE**2 * _column_products(right, right / self.diagonal)  # (k,)
        self.direction = self.residual / self.diagonal
        self.size = _column_products(self.residual, self.direction)  # (k,)
        self._scratch = np.empty_like(self.residual)

    @property
    def is_solved(self) -> bool:
        return bool((self.size <= self.tolerance).all())

    def step(self) -> None:
        """One step of the method; arrays are used again, because new ones of some MB take longer than the sums."""
        scratch, direction = self._scratch, self.direction
        image = self.laplacian @ direction
        image += np.multiply(self.strength, direction, out=scratch)
        curvature = _column_products(direction, image)
        length = np.divide(self.size, curvature, out=np.zeros_like(self.size), where=curvature > 0)
        self.solution += np.multiply(length, direction, out=scratch)
        self.residual -= np.multiply(length, image, out=scratch)
        preconditioned = np.divide(self.residual, self.diagonal, out=scratch)
        previous, self.size = self.size, _column_products(self.residual, preconditioned)
        direction *= np.divide(self.size, previous, out=np.zeros_like(previous), where=previous > 0)
        direction += preconditioned


def _column_products(one: Array, two: Array) -> Array:
    """Inner product of each pair of columns: (N, k), (N, k) -> (k,)"""
    return np.asarray(np.einsum("nk,nk->k", one, two, optimize=False))
