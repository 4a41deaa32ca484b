"""The squashing function, which both the layers and the routing need."""

from __future__ import annotations

import torch
from torch import Tensor


def squash(capsules: Tensor, dim: int = -1) -> Tensor:
    """v = |s|^2 / (1 + |s|^2) * s / |s| along ``dim``: the direction stays, the length is below 1.

    Written as s * |s| / (1 + |s|^2), which needs no epsilon: a zero capsule stays zero, with gradient zero.
    """
    norm: Tensor = torch.linalg.vector_norm(capsules, dim=dim, keepdim=True)
    return capsules * (norm / (1 + norm * norm))
