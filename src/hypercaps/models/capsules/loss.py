"""The margin loss (Eq. 9), section IV-E of the paper."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_UPPER, _LOWER, _DOWN = 0.9, 0.1, 0.5  # r+, r- and lambda of the paper


def margin_loss(
    lengths: Tensor, targets: Tensor, *, upper: float = _UPPER, lower: float = _LOWER, down: float = _DOWN
) -> Tensor:
    """Eq. 9, mean over pixels: sum over k of T_k max(0, r+ - |u_k|)^2 + lambda (1 - T_k) max(0, |u_k| - r-)^2

    lengths (B, n) of the class capsules, targets (B,) class indices -> scalar. ``upper`` is the paper's r+, ``lower``
    its r-, ``down`` its lambda.
    """
    loss: Tensor = _MarginLoss.apply(lengths, targets, upper, lower, down)  # type: ignore[no-untyped-call]
    return loss


def margin_loss_and_gradient(lengths: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """``margin_loss`` and its gradient with respect to the lengths (B, n), without autograd and with the same bits."""
    loss, slope = _loss_and_slope(lengths, targets, upper=_UPPER, lower=_LOWER, down=_DOWN)
    return loss, slope * (torch.ones(()) / len(lengths))


def _loss_and_slope(
    lengths: Tensor, targets: Tensor, *, upper: float, lower: float, down: float
) -> tuple[Tensor, Tensor]:
    """The mean loss, and the derivative of the sum over pixels by each length (B, n)."""
    missed = (upper - lengths).clamp_(min=0)  # (B, n)
    false = (lengths - lower).clamp_(min=0)
    present = torch.zeros_like(lengths, dtype=torch.bool).scatter_(1, targets[:, None], True)  # T_k, Eq. 10
    slope = torch.where(present, -2 * missed, 2 * down * false)
    return torch.where(present, missed * missed, down * false * false).sum() / len(lengths), slope


class _MarginLoss(torch.autograd.Function):
    """Eq. 9 with its gradient written out: fewer small operations than autograd's, which matters in a short step."""

    @staticmethod
    def forward(ctx: Any, lengths: Tensor, targets: Tensor, upper: float, lower: float, down: float) -> Tensor:
        loss, slope = _loss_and_slope(lengths, targets, upper=upper, lower=lower, down=down)
        ctx.save_for_backward(slope)
        ctx.pixels = len(lengths)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return slope * (gradients[0] / ctx.pixels), None, None, None, None
