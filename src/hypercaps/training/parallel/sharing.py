"""How processes share a step: each does its part of the batch, gradients are added up, all make the same step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Shared:
    """This process, number ``rank`` of ``size`` that train together; ``add_up`` adds a tensor up over all of them."""

    def __init__(
        self, rank: int, size: int, add_up: Callable[[Tensor], Tensor], stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.rank, self.size, self.add_up, self.stop = rank, size, add_up, stop

    def part(self, which: Tensor) -> Tensor:
        """What of a batch is this process's; may be empty."""
        return torch.tensor_split(which, self.size)[self.rank]

    def total(self, number: int, device: str) -> int:
        """The sum of all processes' numbers."""
        return int(self.add_up(torch.tensor([number], device=device)).item())

    def backward(self, network: nn.Module, step_loss: Callable[[Tensor], Tensor], batch: Tensor) -> float:
        """Gradients and mean loss of the whole batch, each process computing its part.

        A loss is a mean over pixels, so a part weighs as much as it has of them. The loss and a wish to ``stop`` travel
        with the gradients: all processes know the same at the same step. A stop is raised as KeyboardInterrupt, like
        Ctrl-C in a single process.
        """
        part = self.part(batch)
        share, loss = len(part) / len(batch), 0.0
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        for weight in weights:
            weight.grad = None
        if len(part):
            mean = step_loss(part)
            (mean * share).backward()  # type: ignore[no-untyped-call]
            loss = mean.item() * share
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
        told = torch.tensor([loss, float(self.stop())], device=weights[0].device)
        summed = self.add_up(torch.cat([*(gradient.flatten() for gradient in gradients), told]))
        if summed[-1] > 0:
            raise KeyboardInterrupt
        sizes = [weight.numel() for weight in weights]
        for weight, gradient in zip(weights, torch.split(summed[:-2], sizes), strict=True):
            weight.grad = gradient.view_as(weight)
        return float(summed[-2])
