"""Random forest on one pixel's spectrum, or on the mean spectrum of a window.

scikit-learn grows the trees. They are kept as flat tensors, and pixels are classified by the code below, so that the
same patches, maps and model files serve forests and networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from hypercaps.errors import ModelError
from hypercaps.models.linear import mean_spectra
from hypercaps.models.parts import PatchNetwork
from hypercaps.models.protocols import Samples

_LEAST_IN_LEAF = 1  # training pixels


class RandomForest(PatchNetwork):
    """The mean over all trees of the class shares in the leaf that a pixel falls into.

    Nodes of all trees follow each other. A child or root from 0 is the number of a node, one below 0 is a leaf: -1 is
    the first, -2 the second. ``nodes``, ``leaves`` and ``depth`` are 0 before ``solve``.
    """

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 1,
        trees: int = 200,
        nodes: int = 0,
        leaves: int = 0,
        depth: int = 0,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(bands, classes, patch, {"bands": bands, "classes": classes, "patch": patch, "trees": trees})
        if not 0 <= depth <= nodes:
            raise ModelError(f"depth is {depth}: a whole number from 0 to that of the nodes, {nodes}, is expected")
        self.trees, self.depth = trees, depth
        self.seed = 0 if generator is None else int(torch.randint(2**31 - 1, (), generator=generator))
        roots, feature, left, right = (torch.zeros(n, dtype=torch.int32) for n in (trees, nodes, nodes, nodes))
        threshold = torch.zeros(nodes, dtype=torch.float64)
        self._set(roots, feature, left, right, threshold, torch.zeros(leaves, classes))

    def _set(
        self, roots: Tensor, feature: Tensor, left: Tensor, right: Tensor, threshold: Tensor, shares: Tensor
    ) -> None:
        self.roots = nn.Parameter(roots, requires_grad=False)  # (T,) int32
        self.feature = nn.Parameter(feature, requires_grad=False)  # (nodes,) int32: the band that a node looks at
        self.left = nn.Parameter(left, requires_grad=False)  # (nodes,) int32: child where the value <= threshold
        self.right = nn.Parameter(right, requires_grad=False)  # (nodes,) int32
        self.threshold = nn.Parameter(threshold, requires_grad=False)  # (nodes,) float64
        self.shares = nn.Parameter(shares, requires_grad=False)  # (leaves, n)

    @property
    def found(self) -> dict[str, int | float]:
        """The part of the structure that ``solve`` determined."""
        return {"trees": self.trees, "nodes": len(self.feature), "leaves": len(self.shares), "depth": self.depth}

    def most_bytes(self, pixels: int) -> int:
        """Largest size of the fitted trees: every training pixel may be a leaf of every tree."""
        return self.trees * pixels * (3 * 4 + 8 + 4 * self.classes)

    def features(self, patches: Tensor) -> Tensor:
        """The mean spectra: (B, D, D, C) -> (B, C) float64"""
        return mean_spectra(patches)

    def solve(self, training: Samples, validation: Samples | None = None) -> None:
        """Fit to spectra; validation pixels and units are not used."""
        from sklearn.ensemble import RandomForestClassifier

        # Every tree has its own seed: the number of threads does not change the forest.
        threads = torch.get_num_threads()
        forest = RandomForestClassifier(
            self.trees, min_samples_leaf=_LEAST_IN_LEAF, random_state=self.seed, n_jobs=threads
        )
        forest.fit(training.features.float().numpy(), training.targets.numpy())
        nodes = leaves = 0
        parts: list[tuple[Tensor, ...]] = []
        for tree in forest.estimators_:
            parts.append(_flat(tree.tree_, nodes, leaves, forest.classes_, self.classes))
            nodes, leaves = nodes + len(parts[-1][1]), leaves + len(parts[-1][-1])
        self._set(*(torch.cat(part) for part in zip(*parts, strict=True)))
        self.depth = max(tree.get_depth() for tree in forest.estimators_)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> probabilities (B, n)"""
        if not len(self.shares):  # not fitted yet
            return patches.new_full((len(patches), self.classes), 1 / self.classes)
        # scikit-learn rounds values to float32 and compares them with thresholds in float64.
        spectra = self.features(patches).float()
        at = self.roots.repeat(len(spectra))  # (B*T,) where each pixel is in each tree
        first = torch.arange(len(spectra), device=at.device).repeat_interleave(self.trees) * self.bands  # (B*T,)
        inside = torch.nonzero(at >= 0).flatten()  # those that have not reached a leaf
        for _ in range(self.depth):
            if not len(inside):
                break
            node = at.index_select(0, inside)  # index_select is several times as fast as indexing
            feature, threshold, left, right = (part.index_select(0, node) for part in self._nodes)
            value = spectra.flatten().index_select(0, first.index_select(0, inside) + feature)
            child = torch.where(value.double() <= threshold, left, right)
            at.index_copy_(0, inside, child)
            inside = inside[child >= 0]
        shares = self.shares.index_select(0, -1 - at).view(len(spectra), self.trees, self.classes)  # (B, T, n)
        return (shares.sum(dim=1, dtype=torch.float64) / self.trees).float()

    @property
    def _nodes(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.feature, self.threshold, self.left, self.right


def _flat(tree: Any, nodes: int, leaves: int, present: Any, classes: int) -> tuple[Tensor, ...]:
    """The arrays of one tree of scikit-learn, in the order of ``RandomForest._set``.

    ``nodes`` and ``leaves`` are the numbers of those of earlier trees, ``present`` the class indices of the forest.
    """
    is_leaf = tree.children_left < 0
    # New number of each of scikit-learn's nodes, which count leaves too.
    number = np.where(is_leaf, -leaves - np.cumsum(is_leaf), nodes + np.cumsum(~is_leaf) - 1).astype(np.int32)
    values = tree.value[is_leaf, 0]  # (leaves, m)
    shares = np.zeros((len(values), classes), dtype=np.float32)
    shares[:, present] = values / values.sum(axis=1, keepdims=True)
    inner = ~is_leaf
    return (
        torch.from_numpy(number[:1].copy()),
        torch.from_numpy(tree.feature[inner].astype(np.int32)),
        torch.from_numpy(number[tree.children_left[inner]]),
        torch.from_numpy(number[tree.children_right[inner]]),
        torch.from_numpy(tree.threshold[inner].astype(np.float64)),
        torch.from_numpy(shares),
    )
