"""Band attribution: how much each band contributes to the length of a class capsule.

The class capsule is s = sum of l(i) û(i) (Eq. 6), with the coupling coefficients l(i) of the last routing iteration
(Eq. 7). Its length before the squash (Eq. 8) is therefore the sum of l(i) <û(i), s/|s|>: coupling times agreement. With
couplings and direction held fixed, this length is a linear function of the lower capsules, and integrated gradients
(Sundararajan et al. 2017) attribute it to components and bands. The baseline is the mean of the training scene, which
whitening maps to zero. Attributions above 0 support the class, those below 0 oppose it; their sum is the difference
between the length at the pixel and that at the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hypercaps.inference.model import TrainedModel
from hypercaps.models.capsules.routing import coupling_coefficients, prediction_vectors
from hypercaps.models.protocols import Explainable
from hypercaps.training.preprocessing import PCAWhitening

STEPS = 32  # between the baseline and the pixel
DELETED_SHARE = 0.05  # of the bands, in the deletion check
RANDOM_DRAWS = 10  # of as many bands, that the deletion check compares with

Floats = npt.NDArray[np.float64]


class Attribution(NamedTuple):
    """Contributions to the length of one class capsule before the squash, for B pixels."""

    bands: Floats  # (B, bands)
    components: Floats  # (B, components)
    couplings: Floats  # (B, positions): mean over the capsule arrays
    contributions: Floats  # (B, positions): sum over the capsule arrays; their sum is the length
    at_mean: Floats  # (B,): the length at the baseline

    @staticmethod
    def concatenate(parts: list[Attribution]) -> Attribution:
        return Attribution(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def attribute(model: TrainedModel, centred: Floats, output: int) -> Attribution:
    """Attribute class number ``output`` to the bands of patches minus the mean (B, D, D, bands)."""
    network = model.module
    assert isinstance(network, Explainable)
    white = whiten(model, centred)  # (B, D, D, C)
    children, routing = _fix_routing(network, white, output)
    with torch.no_grad():
        at_mean = (routing.weights * network.lower_capsules(torch.zeros_like(white))).sum(dim=(1, 2, 3))  # (B,)
    gradient = _integrated_gradient(network, white, routing.weights)  # (B, D, D, C)
    # Whitening is linear: its transposed matrix takes the gradient from components to bands.
    by_band = (gradient.cpu().double() @ _matrix(model).T).numpy()  # (B, D, D, bands)
    positions = children.shape[:3]  # B, positions, arrays
    return Attribution(
        bands=np.einsum("brck,brck->bk", by_band, centred),
        components=_to_numpy((gradient * white).sum(dim=(1, 2))),
        couplings=_to_numpy(routing.couplings.view(positions).mean(dim=2)),
        contributions=_to_numpy(routing.contributions.view(positions).sum(dim=2)),
        at_mean=_to_numpy(at_mean),
    )


class _FixedRouting(NamedTuple):
    couplings: Tensor  # (B, I): l(i) to the class, Eq. 7
    contributions: Tensor  # (B, I): l(i) <û(i), s/|s|>
    weights: Tensor  # shape of the lower capsules; their product with the capsules, summed, is |s|


def _fix_routing(network: Explainable, white: Tensor, output: int) -> tuple[Tensor, _FixedRouting]:
    """Lower capsules (B, positions, arrays, e) of whitened patches, and their routing to class ``output``."""
    viewpoints = network.viewpoints.detach().flatten(0, 1)  # (I, n, e, d)
    with torch.no_grad():
        children = network.lower_capsules(white)  # (B, positions, arrays, e)
        predictions = prediction_vectors(children.flatten(1, 2), viewpoints)  # û: (B, I, n, d)
        couplings = coupling_coefficients(predictions, network.routings)[:, :, output]  # l: (B, I)
        weighted = couplings[:, :, None] * predictions[:, :, output]  # l(i) û(i): (B, I, d)
        total = weighted.sum(dim=1)  # s, Eq. 6: (B, d)
        direction = total / torch.linalg.vector_norm(total, dim=1, keepdim=True).clamp_min(1e-12)
        contributions = torch.einsum("bid,bd->bi", weighted, direction)
        weights = torch.einsum("bi,ied,bd->bie", couplings, viewpoints[:, output], direction).view_as(children)
    return children, _FixedRouting(couplings, contributions, weights)


def _integrated_gradient(network: Explainable, white: Tensor, weights: Tensor) -> Tensor:
    """Mean gradient of the length on the straight line from zero to ``white`` (B, D, D, C)."""
    gradient = torch.zeros_like(white)
    for step in range(STEPS):
        # Positions t = u^2: finer steps close to the mean, where capsules are short and their direction changes fast.
        u = (step + 0.5) / STEPS
        point = (white * u * u).requires_grad_(True)
        length = (weights * network.lower_capsules(point)).sum()
        gradient += torch.autograd.grad(length, point)[0] * (2 * u / STEPS)
    return gradient


@dataclass(frozen=True)
class Deletion:
    """Deletion check: mean length of the class capsule over the pixels, with some bands set to the scene's mean."""

    bands: int  # number of deleted bands
    length: float  # with all bands
    without_top: float  # without the bands of highest attribution, chosen in each pixel
    without_random: float  # without as many random bands, mean of several draws
    larger_drop: float  # share of the pixels where deleting the top bands shortens the capsule more

    @staticmethod
    def of_lengths(lengths: Floats, bands: int) -> Deletion:
        """From the lengths (3, N) that ``lengths_after_deletion`` returns."""
        length, top, random = lengths
        return Deletion(
            bands=n_deleted(bands),
            length=float(length.mean()),
            without_top=float(top.mean()),
            without_random=float(random.mean()),
            larger_drop=float((top < random).mean()),
        )


def lengths_after_deletion(
    model: TrainedModel, centred: Floats, relevance: Floats, output: int, *, seed: int
) -> Floats:
    """Capsule lengths (3, B): with all bands, without those of highest relevance (B, bands), without random ones."""
    bands = centred.shape[-1]
    random = np.random.default_rng(seed).permuted(np.tile(np.arange(bands), (RANDOM_DRAWS, len(centred), 1)), axis=2)
    top = np.argsort(-relevance, axis=1, kind="stable")

    def length_without(order: npt.NDArray[np.int64]) -> Floats:
        """Length with the first bands of ``order`` (B, bands) set to the mean in the whole patch."""
        kept = np.ones((len(centred), bands))
        np.put_along_axis(kept, order[:, : n_deleted(bands)], 0.0, axis=1)
        return _capsule_length(model, centred * kept[:, None, None], output)

    with_all = _capsule_length(model, centred, output)
    return np.stack([with_all, length_without(top), np.mean([length_without(order) for order in random], axis=0)])


def n_deleted(bands: int) -> int:
    return max(1, round(DELETED_SHARE * bands))


def _capsule_length(model: TrainedModel, centred: Floats, output: int) -> Floats:
    """Length of the capsule of class ``output`` for patches minus the mean (B, D, D, bands): (B,)"""
    with torch.inference_mode():
        return _to_numpy(model.module(whiten(model, centred))[:, output])


def whiten(model: TrainedModel, centred: Floats) -> Tensor:
    """Patches minus the mean (..., bands) -> components (..., C), float32 on the network's device."""
    white = torch.from_numpy(centred) @ _matrix(model)
    return white.float().to(next(model.module.parameters()).device)


def _matrix(model: TrainedModel) -> Tensor:
    """The linear part of the preprocessing, (bands, C)."""
    fitted = model.preprocessing
    return torch.from_numpy(fitted.matrix if isinstance(fitted, PCAWhitening) else np.diag(fitted.scale))


def _to_numpy(tensor: Tensor) -> Floats:
    return tensor.detach().cpu().double().numpy()
