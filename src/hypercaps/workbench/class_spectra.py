"""Mean spectra of the labelled pixels of each class."""

from __future__ import annotations

from typing import Any

import numpy as np

from hypercaps.workbench.label_store import Snapshot
from hypercaps.workbench.pixel_reader import PixelReader

_MOST = 500  # pixels of a class that are read, evenly spread over all


def class_spectra(reader: PixelReader, labels: Snapshot) -> dict[str, Any]:
    """Mean and standard deviation (bands,) by class number; ``count`` is that of the labelled pixels."""
    found = {}
    for number, count in labels.counts.items():
        pixels = np.flatnonzero(labels.labels == number)
        if not pixels.size:
            continue
        some = pixels[np.linspace(0, pixels.size - 1, min(_MOST, pixels.size)).astype(np.int64)]
        values, valid = reader.spectra(some)
        if not valid.any():
            continue
        spectra = values[valid].astype(np.float64)
        mean, deviation = spectra.mean(axis=0), spectra.std(axis=0)
        found[str(number)] = {"mean": _numbers(mean), "std": _numbers(deviation), "count": count}
    return found


def _numbers(values: Any) -> list[float | None]:
    return [round(float(value), 6) if np.isfinite(value) else None for value in values]
