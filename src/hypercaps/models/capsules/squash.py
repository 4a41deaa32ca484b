"""The squashing function, used by both the layers and the routing."""

from __future__ import annotations

import torch
from torch import Tensor


def squash(capsules: Tensor, dim: int = -1) -> Tensor:
    """Eq. 8: u = |s|^2 / (1 + |s|^2) * s / |s| along ``dim``; the direction is kept, the length becomes less than 1.

    Computed as s * |s| / (1 + |s|^2), which needs no epsilon: a zero capsule stays zero, with zero gradient.
    """
    norm: Tensor = torch.linalg.vector_norm(capsules, dim=dim, keepdim=True)
    return capsules * (norm / (1 + norm * norm))
