"""A model as one module of torch's plain operations, which other programs can be given (``onnx_file``).

The compiled kernels and numpy's float64 calibration, which `predict` uses, can't leave hypercaps. Here the same is
computed from patches in the scene's units to probabilities, up to rounding.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch
from torch import Tensor, nn

from hypercaps.inference.calibration import LEAST_SCORE, Calibration
from hypercaps.inference.model import TrainedModel
from hypercaps.models.capsules.kernels import route_through_weights
from hypercaps.models.parts import CapsuleNetwork, IndexedNetwork
from hypercaps.models.random_forest import RandomForest
from hypercaps.models.svm import RBFSVM
from hypercaps.training.preprocessing import PCAWhitening, Preprocessing

_JUST_BELOW = 1 - 2.0**-23  # times a float32: the next lower one, or the one below that


class PortableModel(nn.Module):
    """Patches (B, D, D, C) in the scene's units to probabilities (B, n), or to raw scores without calibration.

    D is the patch of the model, or the largest one of an average. Patches must not have pixels without data.
    """

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.side = 2 * model.halo + 1
        self.members = nn.ModuleList([_Member(member) for member in model.members])
        self.calibration = None if model.calibration is None else PortableCalibration(model.calibration)
        self.eval()

    def forward(self, patches: Tensor) -> Tensor:
        scores: Tensor = self.members[0](patches)
        for member in itertools.islice(self.members, 1, None):
            scores = scores + member(patches)
        scores = scores.float()
        return scores if self.calibration is None else self.calibration(scores)


class _Member(nn.Module):
    """The scores of one network, or, in an average, its weighted probabilities."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.patch, self.weight = model.patch, model.weight
        self.preprocessing = _Preprocess(model.preprocessing)
        self.network = model.module
        self.confidences = replace(model, partners=()).confidences
        is_average = model.own_calibration is not None and model.weight != 1.0
        self.calibration = PortableCalibration(model.own_calibration) if is_average else None  # type: ignore[arg-type]

    def forward(self, patches: Tensor) -> Tensor:
        beyond = (patches.shape[1] - self.patch) // 2
        if beyond:
            patches = patches[:, beyond:-beyond, beyond:-beyond]
        scores = self.confidences(plain_scores(self.network, self.preprocessing(patches)))
        return scores if self.calibration is None else self.weight * self.calibration(scores).double()


class _Preprocess(nn.Module):
    """Whitening or standardising (..., bands) -> (..., C), in float64 as small components are small differences."""

    mean: Tensor  # (bands,)
    factor: Tensor  # (bands, C), or (bands,)

    def __init__(self, fitted: Preprocessing) -> None:
        super().__init__()
        self.register_buffer("mean", torch.from_numpy(fitted.mean))
        self.whitens = isinstance(fitted, PCAWhitening)
        factor = fitted.matrix if isinstance(fitted, PCAWhitening) else fitted.scale
        self.register_buffer("factor", torch.from_numpy(factor))

    def forward(self, values: Tensor) -> Tensor:
        centred = values.double() - self.mean
        return (centred @ self.factor if self.whitens else centred * self.factor).float()


def plain_scores(network: nn.Module, patches: Tensor) -> Tensor:
    """Output (B, n) of a network for preprocessed patches (B, D, D, C), without compiled kernels."""
    if isinstance(network, CapsuleNetwork):
        children = network.lower_capsules(patches).flatten(1, 2)  # (B, I, e)
        capsules = route_through_weights(children, network.viewpoints.flatten(0, 1), network.routings)
        lengths: Tensor = torch.linalg.vector_norm(capsules, dim=2)
        return lengths
    if isinstance(network, IndexedNetwork):
        return network.by_layers(patches)
    if isinstance(network, RBFSVM):
        return _svm_scores(network, patches)
    if isinstance(network, RandomForest):
        return _forest_scores(network, patches)
    scores: Tensor = network(patches)
    return scores


def _svm_scores(machine: RBFSVM, patches: Tensor) -> Tensor:
    """As ``RBFSVM.forward``, with the votes of all pairs in one product."""
    decisions = machine.decisions(machine.features(patches))  # (B, pairs)
    pairs = list(itertools.combinations(range(machine.classes), 2))
    first, second = (torch.zeros(len(pairs), machine.classes, dtype=torch.float64) for _ in range(2))
    for pair, (one, two) in enumerate(pairs):
        first[pair, one] = second[pair, two] = 1.0
    won = (decisions > 0).double()
    return machine.scores_of_votes(won @ first + (1 - won) @ second, decisions @ (first - second))


def _forest_scores(forest: RandomForest, patches: Tensor) -> Tensor:
    """As ``RandomForest.forward``, with the same number of steps for every pixel and tree."""
    spectra = forest.features(patches).float()  # (B, C)
    at = forest.roots.long().expand(spectra.shape[0], -1)  # (B, T)
    feature, left, right = (part.long() for part in (forest.feature, forest.left, forest.right))
    for _ in range(forest.depth):
        node = at.clamp(min=0)
        is_below = spectra.gather(1, feature[node]).double() <= forest.threshold[node]
        at = torch.where(at >= 0, torch.where(is_below, left[node], right[node]), at)
    return forest.shares[-1 - at].double().mean(dim=1).float()  # (B, T, n) -> (B, n)


class PortableCalibration(nn.Module):
    """``Calibration`` of scores (B, n), by torch."""

    at: Tensor  # (K,) knots, or none
    share: Tensor  # (K,)

    def __init__(self, fitted: Calibration) -> None:
        super().__init__()
        self.power, self.keeps_scores = 1 / fitted.temperature, fitted.keeps_scores
        self.register_buffer("at", torch.from_numpy(fitted.at))
        self.register_buffer("share", torch.from_numpy(fitted.share))

    def forward(self, scores: Tensor) -> Tensor:
        is_winner = nn.functional.one_hot(scores.argmax(dim=1), scores.shape[1]).bool()  # (B, n)
        likely = scores.double().clamp(min=LEAST_SCORE) ** self.power
        won = likely.amax(dim=1, keepdim=True)  # (B, 1)
        likely = torch.where(is_winner, 0.0, likely)
        others = likely.sum(dim=1, keepdim=True)
        sure = won.clamp(max=1.0) if self.keeps_scores else won / (won + others)
        if self.at.numel():
            sure = _interpolate(sure, self.at, self.share)
        second = likely.amax(dim=1, keepdim=True)
        sure = torch.maximum(sure, second / (second + others))
        left = (likely * ((1.0 - sure) / others)).float()
        sure = sure.float()
        return torch.where(is_winner, sure, torch.minimum(left, sure * _JUST_BELOW))


def _interpolate(values: Tensor, at: Tensor, share: Tensor) -> Tensor:
    """Linear interpolation of (B, 1) between knots (K,); constant beyond the first and the last."""
    if at.numel() == 1:
        return share.expand_as(values)
    clamped = torch.minimum(torch.maximum(values, at[0]), at[-1])
    below = ((clamped >= at).sum(dim=1, keepdim=True) - 1).clamp(0, at.numel() - 2)  # (B, 1)
    width = (at[1:] - at[:-1]).clamp(min=torch.finfo(torch.float64).tiny)
    slope = (share[1:] - share[:-1]) / width
    return share[below] + (clamped - at[below]) * slope[below]
