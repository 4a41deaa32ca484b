"""Dynamic routing that never forms the prediction vectors.

A pixel's prediction vectors are n * I * d numbers (180 kB for 200 bands and 16 classes) that the plain
reading writes once and reads five times. Both of their uses can be taken through the viewpoint matrices:

    agreement   t(i,k) = <W(i,k) u(i), U(k)> = <u(i), W(i,k)^T U(k)>     U(k): sum of the parents so far
    weighted    s(k)   = sum_i l(i,k) W(i,k) u(i) = [l(i,k) u(i)]_i  @  [W(i,k)]_i

so an iteration is two matrix products for each class.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hypercaps.capsules.squashing import squash


def route_through_weights(children: Tensor, viewpoints: Tensor, iterations: int) -> Tensor:
    """children (B, a, e, c), viewpoints (n, a, e, c, d) -> class capsules (B, n, d).

    Couplings are constants of the gradient, as in the reference.
    """
    classes = viewpoints.shape[0]
    weights = viewpoints.flatten(1, 3)  # (n, a*e*c, d)
    evenly = squash(torch.matmul(children.flatten(1), weights) / classes)  # (n, B, d): all couplings 1/n
    if iterations == 1:
        return evenly.transpose(0, 1)
    with torch.no_grad():
        # The log priors are linear in the parents, so only the sum of the parents is kept.
        parents = evenly.detach()
        couplings = _couplings(children, weights, parents)  # (n, B, a, 1, c)
        for _ in range(iterations - 2):
            parents = parents + _weighted(children, weights, couplings)
            couplings = _couplings(children, weights, parents)
    return _weighted(children, weights, couplings).transpose(0, 1)


def _couplings(children: Tensor, weights: Tensor, parents: Tensor) -> Tensor:
    """Softmax over classes of <u(i), W(i,k)^T U(k)>: (n, B, a, 1, c)"""
    back = torch.bmm(parents, weights.transpose(1, 2))  # (n, B, a*e*c)
    back = back.view(*parents.shape[:2], *children.shape[1:])  # (n, B, a, e, c)
    return back.mul_(children).sum(dim=3, keepdim=True).softmax(dim=0)


def _weighted(children: Tensor, weights: Tensor, couplings: Tensor) -> Tensor:
    """squash(sum_i l(i,k) W(i,k) u(i)): (n, B, d)"""
    return squash(torch.bmm((couplings * children).flatten(2), weights))
