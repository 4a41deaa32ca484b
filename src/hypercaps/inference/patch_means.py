"""Means over the patches of a window, added in an order that does not depend on the window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from hypercaps.training.patches import reflect_places

_CHUNK = 16_384  # patches with invalid pixels whose indices are computed at once

Mask = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float32]


def patch_means(values: Values, valid: Mask, patch: int) -> npt.NDArray[np.float64]:
    """Mean of the pixels' values (h + D - 1, w + D - 1, n) over each patch: (h, w, n)

    Invalid pixels are replaced by their mirror images in the patch. Which of the two sums a pixel takes depends on its
    own patch alone, so that its bits do not depend on the window.
    """
    height, width = (side - patch + 1 for side in valid.shape)
    rows = np.zeros((height, *values.shape[1:]))  # (h, w + D - 1, n)
    for i in range(patch):
        rows += values[i : i + height]
    means = np.zeros((height, width, values.shape[2]))
    for j in range(patch):
        means += rows[:, j : j + width]
    if not valid.all():
        _reflected_sums(values, valid, patch, means)
    means /= patch**2
    return means


def _reflected_sums(values: Values, valid: Mask, patch: int, sums: npt.NDArray[np.float64]) -> None:
    """Replace the sums (h, w, n) of patches that contain invalid pixels, in place."""
    is_complete = sliding_window_view(valid, (patch, patch)).all(axis=(2, 3))  # (h, w)
    rows, cols = np.nonzero(~is_complete)
    side, across = np.arange(patch), valid.shape[1]
    offsets = (side[:, None] * across + side).ravel()  # (D*D,)
    flat, flat_valid = values.reshape(-1, values.shape[2]), valid.ravel()
    for start in range(0, rows.size, _CHUNK):
        r, c = rows[start : start + _CHUNK], cols[start : start + _CHUNK]
        places = (r[:, None] * across + c[:, None] + offsets).astype(np.int32)  # (N, D*D)
        reflect_places(places, flat_valid, patch)
        total = np.zeros((r.size, values.shape[2]))
        for place in places.T:
            total += flat[place]
        sums[r, c] = total
