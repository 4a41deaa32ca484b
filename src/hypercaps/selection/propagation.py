"""Does label propagation help in this scene? Evidence from LDA, before any network is trained.

Propagation assumes fields: that neighbouring pixels mostly have one class. Where it lowers the log loss of LDA's own
out-of-fold scores, it also helps the network, whose training it is part of; where pixels are mixed, it harms both.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from hypercaps.inference.scoring import pixel_scores
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold, RawScores
from hypercaps.training import label_propagation
from hypercaps.training.patches import read_pixels, valid_pixels
from hypercaps.training.preprocessing import PCAWhitening
from hypercaps.training.spec import TrainingSpec

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_PIXELS = 60_000  # size of the graph, and the labelled pixels outside of it; in larger scenes, tiles near the labels
MAX_LABELS = 200_000  # labelled pixels, above which propagation is not tried: memory


def propagated_lda(problem: FoldProblem, base: TrainingSpec) -> OutOfFold:
    """Out-of-fold scores of LDA after label propagation."""
    started = time.perf_counter()
    graph, laplacian = _pixel_graph(problem)
    result = OutOfFold.empty(problem)
    for k in range(problem.folds.count):
        scores = _propagate(problem, base, k, graph, laplacian)
        held_out = problem.pixels[problem.fold == k]
        rows = scores[np.minimum(np.searchsorted(graph, held_out), graph.size - 1)]
        result.add(rows.astype(np.float32), 0.0)
    result.seconds = time.perf_counter() - started
    return result


def _pixel_graph(problem: FoldProblem) -> tuple[label_propagation.Indices, csr_array]:
    """Pixels (N,) of the graph, which include all labelled ones, and its Laplacian (N, N)."""
    scene = problem.scene
    labelled = problem.folds.units.pixels
    region = label_propagation.region_near_labels(scene.shape[:2], labelled, MAX_PIXELS)
    region.ravel()[labelled] = True
    pixels = valid_pixels(scene, without=np.empty(0, dtype=np.int64), within=region)
    whitening = problem.cache.preprocessing("centred whitening")
    assert isinstance(whitening, PCAWhitening)
    white = np.empty((pixels.size, scene.bands), dtype=np.float32)
    for at, read in read_pixels(scene, pixels):
        white[at] = whitening.transform(read.values, read.valid)
    features = label_propagation.edge_features(whitening, white)
    return pixels, label_propagation.pixel_graph_laplacian(pixels, scene.cols, features)


def _propagate(
    problem: FoldProblem, base: TrainingSpec, k: int, graph: label_propagation.Indices, laplacian: csr_array
) -> RawScores:
    """Propagated scores (N, n) of the graph's pixels, from LDA and the labels outside fold ``k``."""
    model = problem.fit_fold(base, k).model
    scores = pixel_scores(model, problem.scene, graph)
    training = problem.folds.training(k)
    seeds = np.searchsorted(graph, training)
    legend = problem.labels.legend.labels
    classes = np.searchsorted(legend, problem.labels.array.ravel()[training])
    return label_propagation.propagate(scores, laplacian, seeds, classes).astype(np.float32)
