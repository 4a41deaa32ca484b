"""The margin loss, section IV-E of the paper."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def margin_loss(
    lengths: Tensor, targets: Tensor, *, upper: float = 0.9, lower: float = 0.1, down: float = 0.5
) -> Tensor:
    """Mean over pixels of sum over k of T max(0, r+ - |u|)^2 + lambda (1 - T) max(0, |u| - r-)^2.

    lengths (B, n) of the class capsules, targets (B,) class positions -> scalar. ``upper`` is the paper's
    r+, ``lower`` its r-, ``down`` its lambda.
    """
    loss: Tensor = _MarginLoss.apply(lengths, targets, upper, lower, down)  # type: ignore[no-untyped-call]
    return loss


class _MarginLoss(torch.autograd.Function):
    """With its gradient by hand: a few small operations in place of dozens, which a short step feels."""

    @staticmethod
    def forward(ctx: Any, lengths: Tensor, targets: Tensor, upper: float, lower: float, down: float) -> Tensor:
        missed = (upper - lengths).clamp_(min=0)  # (B, n)
        false = (lengths - lower).clamp_(min=0)
        present = torch.zeros_like(lengths, dtype=torch.bool).scatter_(1, targets[:, None], True)  # T
        ctx.save_for_backward(torch.where(present, -2 * missed, 2 * down * false))
        ctx.pixels = len(lengths)
        loss: Tensor = torch.where(present, missed * missed, down * false * false).sum() / ctx.pixels
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return slope * (gradients[0] / ctx.pixels), None, None, None, None
