"""Which unlabelled ground resembles the labelled one.

Every scene has ground of no class: roads, water, a crop that nobody labelled. Propagated labels give a class to it
as well, and a network trained on them predicts it with high confidence. Such ground is recognised by the distance of a
patch's mean spectrum to the nearest training patch: held-out labelled pixels show how far known ground can be.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hypercaps.compute import linalg
from hypercaps.training.examples import Examples

LEFT_OUT = 0.02  # share of known ground that counts as unfamiliar
_MOST = 4096  # training patches that others are compared with
_LEAST = 16  # of each class
_FEW = 20  # validation patches that are too few to tell how far known ground can be
_AT_ONCE = 2048  # patches

Distances = npt.NDArray[np.float32]
MeanSpectra = Callable[[Tensor], Tensor]  # numbers of patches (B,) -> their mean spectra, in whitened components (B, C)


def is_familiar(examples: Examples, mean_spectra: MeanSpectra, seed: int) -> npt.NDArray[np.bool_]:
    """Which of the unlabelled patches (U,) are as near to the training patches as known ground is."""
    references = _draw_references(examples, seed)
    known = _held_out_distances(examples, mean_spectra, references)
    if known.size == 0:
        return np.ones(len(examples.unlabelled), dtype=bool)
    distances = nearest_distances(mean_spectra, examples.unlabelled, references)
    return np.asarray(distances <= np.quantile(known, 1 - LEFT_OUT, method="higher"))


def _draw_references(examples: Examples, seed: int) -> Tensor:
    """Some training patches of every class, as numbers in the store."""
    rng = np.random.default_rng(seed)
    train = examples.train.numpy()
    classes = examples.targets[examples.train].numpy()
    most = max(_MOST // max(len(np.unique(classes)), 1), _LEAST)
    drawn = [rng.permutation(train[classes == one])[:most] for one in np.unique(classes)]
    return torch.from_numpy(np.sort(np.concatenate(drawn)))


def _held_out_distances(examples: Examples, mean_spectra: MeanSpectra, references: Tensor) -> Distances:
    """Distances of labelled patches that are not among the references, nor in a spatial unit of theirs."""
    if len(examples.val) >= _FEW:
        return nearest_distances(mean_spectra, examples.val, references)
    units = torch.arange(len(examples.targets)) if examples.units is None else examples.units
    distances = nearest_distances(mean_spectra, examples.train, references, units[examples.train], units[references])
    return np.asarray(distances[np.isfinite(distances)])


def nearest_distances(
    mean_spectra: MeanSpectra,
    which: Tensor,
    references: Tensor,
    units: Tensor | None = None,
    reference_units: Tensor | None = None,
) -> Distances:
    """Squared distances (B,) of the mean spectra of patches ``which`` (B,) to the nearest of the references (R,).

    References in the same unit as a patch are left out; infinity where no other is left.
    """
    with linalg.one_thread():
        means = mean_spectra(references)  # (R, C)
        squares = means.square().sum(dim=1)
        nearest = []
        for start in range(0, len(which), _AT_ONCE):
            some = mean_spectra(which[start : start + _AT_ONCE])  # (B, C)
            distances = some.square().sum(dim=1)[:, None] - 2 * some @ means.T + squares  # (B, R)
            if units is not None and reference_units is not None:
                distances[units[start : start + _AT_ONCE, None] == reference_units] = torch.inf
            nearest.append(distances.amin(dim=1).clamp_(min=0))
    return np.asarray(torch.cat(nearest).numpy())
