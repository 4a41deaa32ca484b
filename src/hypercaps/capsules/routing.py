"""Dynamic routing, section IV-D of the paper: the plain reference, and the one the layers use.

Shapes: B pixels; child capsules in a arrays of c positions, each of e numbers; n classes whose capsules
have d numbers. Children keep the order (B, a, e, c) that the convolutions before them give.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hypercaps.capsules import kernels
from hypercaps.capsules.squashing import squash


def prediction_vectors(children: Tensor, viewpoints: Tensor) -> Tensor:
    """û(k|i,j) = W(i,j,k) u(i,j): what the capsule at position j of array i says each class capsule is.

    children (B, a, e, c), viewpoints (n, a, e, c, d) -> (B, a*c, n, d)
    """
    return torch.einsum("baec,naecd->bacnd", children, viewpoints).flatten(1, 2)


def route(predictions: Tensor, iterations: int = 3, *, through_couplings: bool = False) -> Tensor:
    """Class capsules (B, n, d) from the prediction vectors (B, I, n, d) of I capsules. The reference.

    The log priors t and so the coupling coefficients l belong to one pixel: nothing is shared over the
    batch. Couplings count as constants when gradients are taken, unless ``through_couplings``.
    """
    agreed = predictions if through_couplings else predictions.detach()
    priors = predictions.new_zeros(predictions.shape[:3])  # t: (B, I, n)
    for _ in range(iterations - 1):
        parents = weighted_parents(agreed, priors.softmax(dim=2))  # u: (B, n, d)
        priors = priors + torch.einsum("bind,bnd->bin", agreed, parents)  # t += <û, u>
    return weighted_parents(predictions, priors.softmax(dim=2))


def weighted_parents(predictions: Tensor, couplings: Tensor) -> Tensor:
    """u(k) = squash(sum over i of l(i,k) û(k|i)): (B, I, n, d), (B, I, n) -> (B, n, d)"""
    return squash(torch.einsum("bin,bind->bnd", couplings, predictions))


def class_capsules(children: Tensor, viewpoints: Tensor, iterations: int = 3) -> Tensor:
    """Route children (B, a, e, c) through viewpoints (n, a, e, c, d) to class capsules (B, n, d), the fast way.

    Equal to ``route(prediction_vectors(children, viewpoints), iterations)`` up to rounding.
    """
    return kernels.route_through_weights(children, viewpoints, iterations)
