"""The registered methods: their descriptions, each with its network and loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from hypercaps.compute import native
from hypercaps.errors import ModelError
from hypercaps.models.c_cnn import ConvCNN
from hypercaps.models.capsnet import CapsNet
from hypercaps.models.capsules.loss import margin_loss
from hypercaps.models.cnn3d import CNN3D
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.models.descriptions import DESCRIPTIONS, MethodDescription, get_description
from hypercaps.models.lda import LDA
from hypercaps.models.linear import softmax
from hypercaps.models.logistic import LogisticRegression
from hypercaps.models.mlp import MLP
from hypercaps.models.protocols import Solvable
from hypercaps.models.random_forest import RandomForest
from hypercaps.models.se_cnn2d import SemiCNN, semi_supervised_loss
from hypercaps.models.svm import RBFSVM, WindowSVM, error_share

native.set_torch_threads()
_softmax = partial(torch.softmax, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Method(MethodDescription):
    """A network that maps patches (B, D, D, C) to class scores (B, n)."""

    build: Callable[..., nn.Module]  # (bands, classes, *, patch, generator, **structure)
    loss: Callable[[Tensor, Tensor], Tensor]  # scores (B, n), class indices (B,) -> scalar
    confidence: Callable[[Tensor], Tensor] = torch.positive  # scores -> in [0, 1], same order; default: as is
    # Loss that also uses unlabelled pixels: (network, patches, targets, unlabelled patches) -> scalar
    semi_supervised: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor] | None = None

    def network(
        self,
        bands: int,
        classes: int,
        *,
        patch: int | None = None,
        seed: int = 0,
        structure: Mapping[str, object] | None = None,
    ) -> nn.Module:
        """A new network with weights drawn from ``seed``."""
        with torch.random.fork_rng(devices=[]):  # torch's layers first draw weights of their own
            return self._build(bands, classes, patch, structure, Generator().manual_seed(seed))

    def blueprint(
        self, bands: int, classes: int, *, patch: int | None = None, structure: Mapping[str, object] | None = None
    ) -> nn.Module:
        """The network on torch's meta device, with shapes but no memory: to count weights, or to load them into."""
        with torch.device("meta"):
            return self._build(bands, classes, patch, structure, None)

    def _build(
        self,
        bands: int,
        classes: int,
        patch: int | None,
        structure: Mapping[str, object] | None,
        generator: Generator | None,
    ) -> nn.Module:
        side = self.patch if patch is None else patch
        try:
            return self.build(bands, classes, patch=side, generator=generator, **(structure or {}))
        except TypeError as error:
            raise ModelError(f"method {self.name} can't be built: {error}") from error

    def describe(self, bands: int | None = None, classes: int | None = None) -> dict[str, object]:
        """Description for lists of methods; ``parameters`` is None without both sizes, or if it depends on the data."""
        parameters, problem = None, None
        if bands is not None and classes is not None:
            try:
                network = self.blueprint(bands, classes)
                parameters = None if isinstance(network, Solvable) else count_parameters(network)
            except ModelError as error:
                problem = str(error)
        return {
            "name": self.name,
            "title": self.title,
            "parameters": parameters,
            "patch": self.patch,
            "looks_at": self.looks_at,
            "preprocessing": self.preprocessing,
            "recipe": self.default_recipe,
            "recipes": {name: recipe.describe() for name, recipe in self.recipes.items()},
            "problem": problem,  # why it cannot be built for these sizes
        }


def _method(
    name: str, build: Callable[..., nn.Module], loss: Callable[[Tensor, Tensor], Tensor], **computed: Any
) -> Method:
    return Method(**vars(DESCRIPTIONS[name]), build=build, loss=loss, **computed)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _method("convcapsnet", ConvCapsNet, margin_loss),
        _method("rbf-svm", RBFSVM, error_share),
        _method("rbf-svm-window", WindowSVM, error_share),
        _method("mlp", MLP, cross_entropy, confidence=_softmax),
        _method("se-2d-cnn", SemiCNN, cross_entropy, confidence=_softmax, semi_supervised=semi_supervised_loss),
        _method("3d-cnn", CNN3D, cross_entropy, confidence=_softmax),
        _method("c-cnn", ConvCNN, cross_entropy, confidence=_softmax),
        _method("capsnet", CapsNet, margin_loss),
        _method("lda", LDA, cross_entropy, confidence=softmax),
        _method("logistic", LogisticRegression, cross_entropy, confidence=softmax),
        _method("random-forest", RandomForest, error_share),
    )
}


def get_method(name: str) -> Method:
    """A registered method by name."""
    return METHODS[get_description(name).name]


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
