"""Mean spectra of the labelled pixels of each class."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.workbench.label_store import Snapshot
from hypercaps.workbench.pixel_reader import PixelReader
from hypercaps.workbench.spans import Flat

_MOST_OF_CLASS = 500  # pixels that are read
_MOST = 20_000  # of all classes
_SCATTER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: its multiples are spread evenly

Floats = npt.NDArray[np.float32]


class ClassSpectra:
    """Means and deviations by class; after a stroke only the spectra of new pixels are read."""

    def __init__(self, reader: PixelReader) -> None:
        self._reader = reader
        self._known: dict[int, Floats] = {}  # spectra (bands,) of the pixels of the last time; NaN where invalid
        self._last: tuple[int, dict[str, Any]] = (-1, {})
        self._lock = threading.Lock()

    def of(self, labels: Snapshot) -> dict[str, Any]:
        """Mean and standard deviation (bands,) by class number; ``count`` is that of the labelled pixels."""
        with self._lock:
            if self._last[0] != labels.version:
                self._last = labels.version, self._compute(labels)
            return self._last[1]

    def _compute(self, labels: Snapshot) -> dict[str, Any]:
        counts = {number: count for number, count in labels.counts.items() if count}
        most = max(1, min(_MOST_OF_CLASS, _MOST // max(1, len(counts))))
        chosen = {number: _spread(np.flatnonzero(labels.labels == number), most) for number in counts}
        self._read(chosen)
        statistics = {}
        for number, pixels in chosen.items():
            spectra = np.stack([self._known[pixel] for pixel in pixels.tolist()]).astype(np.float64)
            spectra = spectra[np.isfinite(spectra).all(axis=1)]
            if len(spectra):
                mean, deviation = spectra.mean(axis=0), spectra.std(axis=0)
                statistics[str(number)] = {"mean": _numbers(mean), "std": _numbers(deviation), "count": counts[number]}
        return statistics

    def _read(self, chosen: dict[int, Flat]) -> None:
        """Read the spectra that are not known yet, and forget those that are not needed any more."""
        needed = [pixel for pixels in chosen.values() for pixel in pixels.tolist()]
        new = np.array(sorted(set(needed) - self._known.keys()), dtype=np.int64)
        values, valid = self._reader.spectra(new)
        values[~valid] = np.nan
        known = self._known | dict(zip(new.tolist(), values, strict=True))
        self._known = {pixel: known[pixel] for pixel in needed}


def _spread(pixels: Flat, most: int) -> Flat:
    """At most ``most`` of the pixels, spread over all; further pixels replace few of them."""
    if pixels.size <= most:
        return pixels
    order = pixels.astype(np.uint64) * _SCATTER
    return np.sort(pixels[np.argpartition(order, most)[:most]])


def _numbers(values: Any) -> list[float | None]:
    return [round(float(value), 6) if np.isfinite(value) else None for value in values]
