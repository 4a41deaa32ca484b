"""The patches of a training, and the scores that a network gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from hypercaps.compute import native
from hypercaps.models.protocols import IndexedForward, WindowForward
from hypercaps.training.neighbours import neighbour_scores
from hypercaps.training.patches import PatchStore

INFERENCE_BATCH = 64  # at most: the intermediate results of a batch should stay near the cache


@dataclass(frozen=True)
class Examples:
    """Patches to train and validate on; a patch is named by its number in ``store``."""

    store: PatchStore
    targets: Tensor  # (N,) int64: class index of each labelled patch
    train: Tensor  # (T,) patches to learn from
    val: Tensor  # (V,) patches to choose the epoch by
    unlabelled: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # (U,) without a label
    extra: Callable[[int], Tensor] | None = None  # epoch, from 1 -> further patches to learn from, which have a target
    units: Tensor | None = None  # (N,) int64: number of the spatial unit, such as a polygon, of each labelled patch

    def to(self, device: str) -> Examples:
        """The same on another device."""
        moved = {name: getattr(self, name).to(device) for name in ("store", "targets", "train", "val", "unlabelled")}
        return replace(self, **moved)


def patch_scores(network: nn.Module, store: PatchStore, which: Tensor, order: Tensor | None = None) -> Tensor:
    """Scores (B, n) of patches ``which`` (B,), turned by ``order`` (B, D*D); copied only where the network needs it."""
    if isinstance(network, IndexedForward):
        return network.forward_indexed(store.spectra, store.places(which, order))
    if isinstance(network, WindowForward) and order is None:
        return neighbour_scores(network, store, which)
    scores: Tensor = network(store.gather(which, order))
    return scores


def count_correct(network: nn.Module, examples: Examples, batch_size: int) -> int:
    """Number of validation patches that the network classifies correctly."""
    network.eval()
    if len(examples.val) == 0:  # torch.split would give one empty batch
        return 0
    batches = torch.split(examples.val, _inference_batch(network, batch_size))
    with torch.inference_mode():
        predicted = torch.cat([patch_scores(network, examples.store, which).argmax(dim=1) for which in batches])
        return int((predicted == examples.targets[examples.val]).sum())


def _inference_batch(network: nn.Module, batch_size: int) -> int:
    # The compiled kernels divide a batch themselves; for other networks a batch should stay near the cache.
    is_compiled = isinstance(network, IndexedForward) and native.available()
    if is_compiled or isinstance(network, WindowForward):  # which divides a batch into tiles
        return 8192
    return min(INFERENCE_BATCH, batch_size)


def all_scores(network: nn.Module, store: PatchStore, batch_size: int) -> Tensor:
    """Scores (N, n) of every patch of a store, without augmentation."""
    network.eval()
    batches = torch.split(torch.arange(len(store), device=store.spectra.device), _inference_batch(network, batch_size))
    with torch.inference_mode():
        return torch.cat([patch_scores(network, store, which).float().cpu() for which in batches])
