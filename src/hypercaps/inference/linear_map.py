"""Scores of whole windows by linear classifiers, near the speed of memory.

Preprocessing and classifier are both linear, so that they combine into one matrix: a pixel's scores are
(values - mean) @ matrix + bias. The compiled kernel computes each pixel by the same sums. The score of a patch is the
mean of the scores of its pixels, added in a fixed order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hypercaps.compute import native
from hypercaps.data.pixels import Pixels
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.patch_means import patch_means
from hypercaps.models.protocols import Linear
from hypercaps.training.preprocessing import project

_VALUES = 1 << 14  # scores converted to confidences at once: they stay in the cache

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
    of_pixels = project(pixels.values, pixels.valid, model.preprocessing.mean, matrix)
    of_patches = of_pixels if model.patch == 1 else patch_means(of_pixels, pixels.valid, model.patch)
    chosen = of_patches.reshape(-1, len(bias)) if mapped.all() else of_patches[mapped]  # (N, n)
    import torch

    scores = np.empty(chosen.shape, dtype=np.float32)
    step = max(1, _VALUES // len(bias))
    with torch.inference_mode(), native.torch_on_one_thread():  # its threads would spin on the kernel's cores
        for start in range(0, len(chosen), step):
            chunk = torch.from_numpy((chosen[start : start + step] + bias).astype(np.float32))
            scores[start : start + step] = model.confidences(chunk).numpy()
    return scores
