"""The methods by name, each with the ways it is trained."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from hypercaps.capsules.loss import margin_loss
from hypercaps.errors import ModelError
from hypercaps.models.convcapsnet import ConvCapsNet

LARGE_SCENE = 20_000  # labelled pixels from which the paper's larger batch is used


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: Adam at a fixed rate, weights of the best validation epoch."""

    name: str
    epochs: int
    learning_rate: float
    batch_small: int  # scenes with fewer than LARGE_SCENE labelled pixels
    batch_large: int

    def batch_size(self, labelled: int) -> int:
        return self.batch_small if labelled < LARGE_SCENE else self.batch_large


@dataclass(frozen=True)
class Method:
    """A network that maps patches (B, D, D, C) to class scores (B, n)."""

    name: str
    title: str
    build: Callable[..., nn.Module]  # (bands, classes, *, patch, generator, **structure)
    loss: Callable[[Tensor, Tensor], Tensor]  # scores (B, n), class positions (B,) -> scalar
    recipes: Mapping[str, Recipe]

    def recipe(self, name: str) -> Recipe:
        try:
            return self.recipes[name]
        except KeyError:
            raise ModelError(f"method {self.name} has no recipe {name!r}: it has {', '.join(self.recipes)}") from None

    def network(
        self,
        bands: int,
        classes: int,
        *,
        patch: int,
        seed: int = 0,
        structure: Mapping[str, Any] | None = None,
    ) -> nn.Module:
        """A new network with weights drawn from ``seed``."""
        return self._build(bands, classes, patch, structure, Generator().manual_seed(seed))

    def blueprint(
        self, bands: int, classes: int, *, patch: int, structure: Mapping[str, Any] | None = None
    ) -> nn.Module:
        """The network's shapes without memory: to count, or to put loaded weights in. Any size costs nothing."""
        with torch.device("meta"):
            return self._build(bands, classes, patch, structure, None)

    def _build(
        self,
        bands: int,
        classes: int,
        patch: int,
        structure: Mapping[str, Any] | None,
        generator: Generator | None,
    ) -> nn.Module:
        try:
            return self.build(bands, classes, patch=patch, generator=generator, **(structure or {}))
        except TypeError as error:
            raise ModelError(f"method {self.name} can't be built: {error}") from error


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="convcapsnet",
            title="1D-ConvCapsNet",
            build=ConvCapsNet,
            loss=margin_loss,
            recipes={"paper": Recipe("paper", 50, 0.01, batch_small=64, batch_large=256)},
        ),
    )
}


def get_method(name: str) -> Method:
    """A registered method, or an error that lists them."""
    if name in METHODS:
        return METHODS[name]
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ModelError(f"there is no method {name!r}: known are {', '.join(METHODS)}{hint}")


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
