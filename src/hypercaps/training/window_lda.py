"""LDA on the mean spectra of patches, which takes part in classifying unlabelled pixels.

With ten labels per class a network can be far less accurate than LDA on the mean of a window, where noise averages
out and few parameters are estimated.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hypercaps.compute import linalg
from hypercaps.models.lda import LDA
from hypercaps.models.linear import Array, softmax
from hypercaps.models.protocols import Samples
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PCAWhitening

_AT_ONCE = 2048  # patches
_IN_CACHE = 16  # patches whose mean is taken at once


def window_lda(store: PatchStore, whitening: PCAWhitening, train: Tensor, targets: Tensor, classes: int) -> Array:
    """Probabilities (N, n) of all patches of the store.

    Fitted to patches ``train`` (T,) and their class indices ``targets`` (T,), in bands as the method ``lda`` is:
    whitened components of tiny variance are noise that is scaled up.
    """
    to_bands = torch.from_numpy((whitening.matrix * whitening.variances).T)  # (C, bands): undoes the whitening
    lda = LDA(to_bands.shape[1], classes)
    with torch.no_grad(), linalg.one_thread():
        spectra = _mean_spectra(store, train) @ to_bands  # (T, bands)
        lda.solve(Samples(spectra, targets))
        weight = to_bands @ lda.weight.double().T  # (C, n)
        everything = torch.split(torch.arange(len(store)), _AT_ONCE)
        scores = [_mean_spectra(store, some) @ weight + lda.bias.double() for some in everything]
        return np.asarray(softmax(torch.cat(scores)).numpy())


def _mean_spectra(store: PatchStore, which: Tensor) -> Tensor:
    """Mean spectra of patches ``which`` (B,), in whitened components: (B, C) float64"""
    return torch.cat([store.gather(some).double().mean(dim=(1, 2)) for some in torch.split(which, _IN_CACHE)])
