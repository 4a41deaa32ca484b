"""The margin loss, section IV-E of the paper."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import Tensor


def margin_loss(
    lengths: Tensor, targets: Tensor, *, upper: float = 0.9, lower: float = 0.1, down: float = 0.5
) -> Tensor:
    """Mean over pixels of sum over k of T max(0, r+ - |u|)^2 + lambda (1 - T) max(0, |u| - r-)^2.

    lengths (B, n) of the class capsules, targets (B,) class positions -> scalar. ``upper`` is the paper's
    r+, ``lower`` its r-, ``down`` its lambda.
    """
    present = F.one_hot(targets, lengths.shape[1]).to(lengths.dtype)  # T: (B, n)
    missed = torch.relu(upper - lengths).square()
    false = torch.relu(lengths - lower).square()
    return (present * missed + down * (1 - present) * false).sum(dim=1).mean()
