"""Doubtful labels: labelled pixels that a model which was not trained on them assigns to another class.

Such a label may be wrong, or the class may look unlike all its other labels. Labels are ranked by
the margin of the prediction over the given class, as in confident learning (Northcutt et al. 2021).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import DoubtfulLabel, Legend

Integers = npt.NDArray[np.integer[Any]]


def doubtful_labels(
    pixels: Integers, class_of: Integers, probabilities: npt.NDArray[np.floating[Any]], legend: Legend, cols: int
) -> list[DoubtfulLabel]:
    """Rank the labels that contradict their out-of-fold predictions, the most doubtful first.

    Parameters
    ----------
    pixels : (N,) flat indices of labelled pixels
    class_of : (N,) position of each label in the legend
    probabilities : (N, n) calibrated, of models that were trained without the pixel's fold; pixels with NaN, which were
        never held out, are left out
    legend : the n classes
    cols : columns of the scene
    """
    held_out = np.flatnonzero(~np.isnan(probabilities).any(axis=1))
    predicted = probabilities[held_out].argmax(axis=1)
    other = predicted != class_of[held_out]
    held_out, predicted = held_out[other], predicted[other]
    values = probabilities[held_out].astype(np.float64)  # (M, n)
    at = np.arange(held_out.size)
    doubt = np.clip(values[at, predicted] - values[at, class_of[held_out]], 0.0, 1.0)
    order = np.lexsort((pixels[held_out], -doubt))
    return [
        DoubtfulLabel(
            rank,
            *divmod(int(pixels[held_out[i]]), cols),
            legend.entries[int(class_of[held_out[i]])],
            legend.entries[int(predicted[i])],
            float(doubt[i]),
        )
        for rank, i in enumerate(order.tolist(), start=1)
    ]


def merge_doubts(*lists: list[DoubtfulLabel]) -> list[DoubtfulLabel]:
    """One list of several: a label that is in more than one keeps the entry of the largest doubt."""
    most: dict[tuple[int, int], DoubtfulLabel] = {}
    for one in (entry for entries in lists for entry in entries):
        place = one.row, one.col
        if place not in most or one.doubt > most[place].doubt:
            most[place] = one
    ordered = sorted(most.values(), key=lambda one: (-one.doubt, one.row, one.col))
    return [replace(one, rank=rank) for rank, one in enumerate(ordered, start=1)]
