"""The paper's multilayer perceptron: one pixel's spectrum, four hidden layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Generator, Tensor, nn

from hypercaps.models.parts import check_dropout, check_single_pixel, check_sizes, xavier


class MLP(nn.Module):
    """Hidden layers of ReLU neurons with dropout after each, then one logit per class."""

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
        super().__init__()
        check_sizes({"bands": bands, "classes": classes, "hidden": hidden})
        check_dropout(dropout)
        check_single_pixel("mlp", patch)
        self.bands, self.classes, self.patch = bands, classes, patch
        layers: list[nn.Module] = []
        width = bands
        for neurons in hidden:
            layers += [xavier(nn.Linear(width, neurons), generator), nn.ReLU(), nn.Dropout(dropout)]
            width = neurons
        self.hidden = nn.Sequential(*layers)
        self.output = xavier(nn.Linear(width, classes), generator)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, 1, 1, C) -> logits (B, n)"""
        logits: Tensor = self.output(self.hidden(patches.flatten(1)))
        return logits
