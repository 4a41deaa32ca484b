"""Dynamic routing (Eq. 6 to Eq. 8), section IV-D of the paper: a plain reference, and the version the layers use.

Shapes: B pixels; I child capsules of dimension e (every array at every position along the spectrum); n class capsules
of dimension d. Where the paper has indices i,j for array and position, one index i stands for both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.squash import squash


def prediction_vectors(children: Tensor, viewpoints: Tensor) -> Tensor:
    """Prediction vectors û(k|i) = W(i,k) u(i), of child capsule i for class capsule k.

    children (B, I, e), viewpoints (I, n, e, d) -> (B, I, n, d)
    """
    return torch.einsum("bie,ined->bind", children, viewpoints)


def route(predictions: Tensor, iterations: int = 3, *, through_couplings: bool = False) -> Tensor:
    """Class capsules (B, n, d) from the prediction vectors (B, I, n, d): the reference implementation.

    Log priors t and coupling coefficients l belong to one pixel; nothing is shared over the batch. Gradients treat the
    couplings as constants, unless ``through_couplings``.
    """
    used = predictions if through_couplings else predictions.detach()
    return weighted_parents(predictions, coupling_coefficients(used, iterations))


def coupling_coefficients(predictions: Tensor, iterations: int = 3) -> Tensor:
    """Coupling coefficients l(i,k) after the last iteration: (B, I, n, d) -> (B, I, n), summing to 1 over classes"""
    priors = predictions.new_zeros(predictions.shape[:3])  # t: (B, I, n)
    for _ in range(iterations - 1):
        parents = weighted_parents(predictions, priors.softmax(dim=2))  # Eq. 7, u: (B, n, d)
        priors = priors + torch.einsum("bind,bnd->bin", predictions, parents)  # t += <û, u>
    return priors.softmax(dim=2)  # Eq. 7


def weighted_parents(predictions: Tensor, couplings: Tensor) -> Tensor:
    """Eq. 6 and Eq. 8: u(k) = squash(sum over i of l(i,k) û(k|i)): (B, I, n, d), (B, I, n) -> (B, n, d)"""
    return squash(torch.einsum("bin,bind->bnd", couplings, predictions))


def class_capsules(children: Tensor, viewpoints: Tensor, iterations: int = 3) -> Tensor:
    """Route children (B, I, e) through viewpoints (I, n, e, d) to class capsules (B, n, d) by the fastest kernel.

    Equal to ``route(prediction_vectors(children, viewpoints), iterations)`` up to rounding.
    """
    if iterations < 1 or children.ndim != 3 or viewpoints.ndim != 4 or children.shape[1:] != viewpoints.shape[0:3:2]:
        raise ValueError(
            f"children {tuple(children.shape)} can't be routed through viewpoints {tuple(viewpoints.shape)} in "
            f"{iterations} iterations: (B, I, e), (I, n, e, d) and one or more are expected"
        )
    if kernels.usable(children, viewpoints):
        return kernels.route_compiled(children, viewpoints, iterations)
    return kernels.route_through_weights(children, viewpoints, iterations)
