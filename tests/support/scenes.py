"""Synthetic scenes with a known answer."""

from __future__ import annotations

import numpy as np


def make_cube(
    rows: int = 36, cols: int = 36, bands: int = 26, classes: int = 3, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """A cube (rows, cols, bands) of upright stripes, one class each, and its labels: half of the pixels.

    Classes differ by a smooth spectrum, and noise is a tenth of the difference: a classifier that works
    gets nearly all of it right after eight passes over 40 % of the labels.
    """
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(cols) * classes // cols + 1, rows).reshape(cols, rows).T
    waves = np.linspace(0, 1, bands)
    spectra = np.stack([np.sin(2 * np.pi * (k + 1) * waves) for k in range(classes)])
    cube = 1000 + 100 * spectra[truth - 1] + 10 * rng.standard_normal((rows, cols, bands))
    labels = np.where(rng.random((rows, cols)) < 0.5, truth, 0)
    return cube.astype(np.float32), labels.astype(np.int16)


QUICK = {"train": 0.4, "epochs": 8, "batch_size": 16}  # enough for a scene of make_cube
QUICK_OPTIONS = ["--train", str(QUICK["train"]), "--epochs", str(QUICK["epochs"]), "--batch-size", "16"]  # of a command


def make_fields(
    rows: int = 40,
    cols: int = 40,
    bands: int = 12,
    classes: int = 3,
    *,
    side: int = 6,
    gap: int = 4,
    noise: float = 30.0,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """A cube (rows, cols, bands) and labels of square fields of one class each, with unlabelled ground between them.

    Classes differ by a smooth spectrum of amplitude 100; ground has the class of the field above and to the left of it.
    """
    rng = np.random.default_rng(seed)
    step = side + gap
    row, col = np.indices((rows, cols))
    across = -(-cols // step)
    truth = (row // step * across + col // step) % classes + 1
    waves = np.linspace(0, 1, bands)
    spectra = np.stack([np.sin(2 * np.pi * (k + 1) * waves) for k in range(classes)])
    cube = 1000 + 100 * spectra[truth - 1] + noise * rng.standard_normal((rows, cols, bands))
    labels = np.where((row % step < side) & (col % step < side), truth, 0)
    return cube.astype(np.float32), labels.astype(np.int16)


def with_wrong_labels(labels: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which a share (0 to 1) of pixels, drawn at random, has another class, and these pixels (flat)."""
    rng = np.random.default_rng(seed)
    labelled = np.flatnonzero(labels)
    wrong = np.sort(rng.choice(labelled, round(share * labelled.size), replace=False))
    classes = np.unique(labels[labels > 0])
    changed = labels.copy()
    flat = changed.ravel()
    other = (np.searchsorted(classes, flat[wrong]) + rng.integers(1, classes.size, wrong.size)) % classes.size
    flat[wrong] = classes[other]
    return changed, wrong
