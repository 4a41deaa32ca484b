"""The paper's multilayer perceptron: one pixel's spectrum, four hidden layers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar

from torch import Generator, Tensor, nn

from hypercaps.models.parts import PatchNetwork, check_dropout, xavier


class MLP(PatchNetwork):
    """Hidden layers of ReLU neurons with dropout after each, then one logit per class."""

    single_pixel_method: ClassVar[str] = "mlp"

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 1,
        hidden: Sequence[int] = (2048, 4096, 2048, 2048),
        dropout: float = 0.5,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(bands, classes, patch, {"bands": bands, "classes": classes, "hidden": hidden})
        check_dropout(dropout)
        layers: list[nn.Module] = []
        for width, neurons in itertools.pairwise((bands, *hidden)):
            layers += [xavier(nn.Linear(width, neurons), generator), nn.ReLU(), nn.Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)
        self.output = xavier(nn.Linear((bands, *hidden)[-1], classes), generator)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, 1, 1, C) -> logits (B, n)"""
        logits: Tensor = self.output(self.hidden(patches.flatten(1)))
        return logits
