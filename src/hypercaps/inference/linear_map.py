"""Scores of whole windows by linear classifiers, near the speed of memory.

Preprocessing and classifier are both linear, so that they combine into one matrix: a pixel's scores are
(values - mean) @ matrix + bias. The compiled kernel computes each pixel by the same sums. The score of a patch is the
mean of the scores of its pixels, added in a fixed order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.stride_tricks import sliding_window_view

from hypercaps.compute import native
from hypercaps.data.scene import Pixels
from hypercaps.inference.model import TrainedModel
from hypercaps.models.protocols import Linear
from hypercaps.training.patches import reflect_places
from hypercaps.training.preprocessing import project

_VALUES = 1 << 14  # scores converted to confidences at once: they stay in the cache
_CHUNK = 16_384  # patches with invalid pixels whose indices are computed at once

Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float32]


def is_usable(model: TrainedModel) -> bool:
    """Whether ``classify_linear`` can classify by this model."""
    return isinstance(model.network, Linear) and native.available()


def classify_linear(model: TrainedModel, pixels: Pixels, mapped: Mask) -> Scores:
    """Scores (N, n) of the mapped pixels (h, w) of a window, which is given with its halo."""
    network = model.network
    assert isinstance(network, Linear)
    weight, bias = (part.detach().cpu().double().numpy() for part in network.weight_and_bias())
    matrix = np.ascontiguousarray(model.preprocessing.combined(weight.T))  # (bands, n)
    of_pixels = project(pixels.values, pixels.valid, model.preprocessing.mean, matrix).numpy()
    of_patches = of_pixels if model.patch == 1 else _patch_means(of_pixels, pixels.valid, model.patch)
    chosen = of_patches.reshape(-1, len(bias)) if mapped.all() else of_patches[mapped]  # (N, n)
    scores = np.empty(chosen.shape, dtype=np.float32)
    step = max(1, _VALUES // len(bias))
    with torch.inference_mode(), native.torch_on_one_thread():  # its threads would spin on the kernel's cores
        for start in range(0, len(chosen), step):
            some = torch.from_numpy((chosen[start : start + step] + bias).astype(np.float32))
            scores[start : start + step] = model.confidences(some).numpy()
    return scores


def _patch_means(values: Scores, valid: Mask, patch: int) -> npt.NDArray[np.float64]:
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


def _reflected_sums(values: Scores, valid: Mask, patch: int, sums: npt.NDArray[np.float64]) -> None:
    """Replace the sums (h, w, n) of patches that contain invalid pixels, in place."""
    seen = sliding_window_view(valid, (patch, patch)).all(axis=(2, 3))  # (h, w)
    rows, cols = np.nonzero(~seen)
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
