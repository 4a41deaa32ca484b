"""Pseudo-labels for the recipe ``best``: classes of unlabelled pixels, from the labels and a trained network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from hypercaps.compute.allocator import reused_memory
from hypercaps.models.protocols import kernel_threads
from hypercaps.training import label_propagation
from hypercaps.training.examples import Examples, all_scores
from hypercaps.training.familiar import MeanSpectra, is_familiar
from hypercaps.training.loop import LoopSettings
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PCAWhitening
from hypercaps.training.scene_cache import SceneCache
from hypercaps.training.window_lda import window_lda

# Exponent of LDA's probabilities, which are too close to 0 and 1: by folds, their temperature is about 5.
_GUIDE_STRENGTH = 0.05


@dataclass(frozen=True)
class PixelGrid:
    """Where the patches of the examples lie in the scene."""

    pixels: npt.NDArray[np.int64]  # (N,) flat index of the centre of each patch
    preprocessing: str  # of the spectra of the patch store: a whitening
    cache: SceneCache

    @property
    def whitening(self) -> PCAWhitening:
        whitening = self.cache.preprocessing(self.preprocessing)
        assert isinstance(whitening, PCAWhitening)
        return whitening

    def laplacian(self, store: PatchStore) -> csr_array:
        """Laplacian (N, N) of the graph of the pixels."""
        return self.cache.pixel_graph(self.preprocessing, store, self.pixels).laplacian(self.pixels)

    def mean_spectra(self, store: PatchStore) -> MeanSpectra:
        """Mean spectra of the patches of the store, kept for the next training on the same pixels."""
        return self.cache.mean_spectra(self.preprocessing, store, self.pixels)


@dataclass(frozen=True)
class PseudoLabelling:
    """How unlabelled pixels get classes."""

    per_epoch: int  # unlabelled pixels that every epoch draws
    guided: bool  # LDA on the means of patches takes part
    seed: int


def add_pseudo_labels(
    network: nn.Module, examples: Examples, grid: PixelGrid, settings: LoopSettings, how: PseudoLabelling
) -> Examples:
    """The examples with classes for the unlabelled pixels, of which every epoch draws some familiar ones by margin."""
    pseudo = _propagated_labels(network, examples, grid, settings, guided=how.guided)
    # Validation pixels keep their own class: one that was learned from could not measure the network.
    targets = torch.cat([examples.targets, torch.from_numpy(pseudo.classes[len(examples.targets) :])])
    # Ground unlike any label is left out: its propagated class would be one of the labels' classes, which it is not.
    familiar = is_familiar(examples, grid.mean_spectra(examples.store), how.seed)
    margin = np.where(familiar, pseudo.margin[examples.unlabelled.numpy()], 0.0)

    def extra(epoch: int) -> Tensor:
        drawn = label_propagation.draw(margin, how.per_epoch, np.random.default_rng((how.seed, epoch)))
        return examples.unlabelled[torch.from_numpy(drawn)]

    return replace(examples, targets=targets, extra=extra)


def _propagated_labels(
    network: nn.Module, examples: Examples, grid: PixelGrid, settings: LoopSettings, *, guided: bool
) -> label_propagation.PseudoLabels:
    """Propagate the labels and the scores over all pixels of the grid."""
    store, seeds = examples.store, examples.train.numpy()
    with settings.device.arithmetic(), kernel_threads(network):
        scores = all_scores(network, store.to(settings.device.name), settings.batch_size).numpy()  # (N, n)
    laplacian = grid.laplacian(store)
    classes = examples.targets[examples.train].numpy()
    if guided:
        targets = examples.targets[examples.train]
        by_lda = window_lda(store, grid.whitening, examples.train, targets, scores.shape[1])
        scores = scores * np.power(by_lda, _GUIDE_STRENGTH)
    with reused_memory():  # every step of the solver makes a new array of some MB
        return label_propagation.pseudo_labels(label_propagation.propagate(scores, laplacian, seeds, classes))
