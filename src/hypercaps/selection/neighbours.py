"""What the labelled neighbours of a pixel say about its class, to find single wrong labels.

Predictions by models that have not seen the pixel's unit find polygons whose class is wrong as a whole. A single wrong
label inside a field is found by a model that has seen the rest of the field: pixels, not units, are held out here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hypercaps.data.splits.folds import draw_folds
from hypercaps.data.splits.units import Units
from hypercaps.errors import SplitError
from hypercaps.selection.candidates import CANDIDATES
from hypercaps.selection.choice import Losses
from hypercaps.selection.out_of_fold import FoldProblem, OutOfFold, cross_fit
from hypercaps.selection.propagation import MAX_LABELS, propagated_lda
from hypercaps.training.spec import TrainingSpec

_METHODS = tuple(one for one in CANDIDATES if one.name in ("lda", "lda-7"))


def predict_from_neighbours(
    problem: FoldProblem, base: TrainingSpec
) -> tuple[FoldProblem, npt.NDArray[np.float32]] | None:
    """Folds of single pixels and calibrated out-of-fold probabilities (M, n) of them; None: too few labels, or too
    many for the memory.

    LDA on single pixels, on windows, or with label propagation, whichever has the lowest log loss: fast ones, and
    enough for this purpose.
    """
    pixels = problem.folds.units.pixels
    if pixels.size > MAX_LABELS:
        return None
    alone = Units("points", pixels, np.arange(pixels.size), problem.folds.units.class_of, None)
    try:
        folds = draw_folds(problem.labels, alone, seed=problem.folds.seed)
    except SplitError:
        return None
    by_pixel = FoldProblem(problem.cache, problem.labels, folds)
    specs = [one.spec(base) for one in _METHODS if one.patch <= min(problem.labels.shape)]
    results: list[OutOfFold] = [cross_fit(by_pixel, spec) for spec in specs]
    results.append(propagated_lda(by_pixel, specs[0]))
    return by_pixel, min(results, key=lambda result: Losses.of(result).mean).probabilities()
