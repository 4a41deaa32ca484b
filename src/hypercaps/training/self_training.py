"""Pseudo-labels for the recipe ``best``: classes of unlabelled pixels, from the labels and a trained network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hypercaps.models.protocols import kernel_threads
from hypercaps.training import label_propagation
from hypercaps.training.loop import Examples, LoopSettings, all_scores
from hypercaps.training.preprocessing import PCAWhitening


@dataclass(frozen=True)
class PixelGrid:
    """Where the patches of the examples lie in the scene."""

    pixels: npt.NDArray[np.int64]  # (N,) flat index of the centre of each patch
    cols: int  # of the scene
    whitening: PCAWhitening  # of the spectra of the patch store


def add_pseudo_labels(
    network: nn.Module, examples: Examples, grid: PixelGrid, settings: LoopSettings, *, per_epoch: int, seed: int
) -> Examples:
    """The examples with classes for the unlabelled pixels, of which every epoch draws ``per_epoch`` by their margin."""
    pseudo = _propagated_labels(network, examples, grid, settings)
    # Validation pixels keep their own class: one that was learned from could not measure the network.
    targets = torch.cat([examples.targets, torch.from_numpy(pseudo.classes[len(examples.targets) :])])
    margin = pseudo.margin[examples.unlabelled.numpy()]

    def extra(epoch: int) -> Tensor:
        drawn = label_propagation.draw(margin, per_epoch, np.random.default_rng((seed, epoch)))
        return examples.unlabelled[torch.from_numpy(drawn)]

    return replace(examples, targets=targets, extra=extra)


def _propagated_labels(
    network: nn.Module, examples: Examples, grid: PixelGrid, settings: LoopSettings
) -> label_propagation.PseudoLabels:
    """Propagate the labels and the network's scores over all pixels of the grid."""
    store, seeds = examples.store, examples.train.numpy()
    with settings.device.arithmetic(), kernel_threads(network):
        scores = all_scores(network, store.to(settings.device.name), settings.batch_size).numpy()  # (N, n)
    centres = store.spectra.index_select(0, store.centres()).numpy()  # (N, C)
    features = label_propagation.edge_features(grid.whitening, centres)  # (N, 3)
    laplacian = label_propagation.pixel_graph_laplacian(grid.pixels, grid.cols, features)
    classes = examples.targets[examples.train].numpy()
    return label_propagation.pseudo_labels(label_propagation.propagate(scores, laplacian, seeds, classes))
