"""What several methods are made of."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from hypercaps.errors import ModelError


def check_sizes(sizes: dict[str, Any]) -> None:
    """Refuse a size below 1 among the whole numbers of ``sizes`` (say, a constructor's ``locals()``)."""
    for name, value in sizes.items():
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, int) and number < 1:
                raise ModelError(f"{name} is {value}: a whole number of 1 or more is expected")


def check_dropout(dropout: float) -> None:
    if not (isinstance(dropout, int | float) and 0 <= dropout < 1):
        raise ModelError(f"dropout is {dropout!r}: a share from 0 up to, but not, 1 is expected")


def check_single_pixel(method: str, patch: int) -> None:
    """Refuse a patch for a method that looks at one pixel's spectrum."""
    if patch != 1:
        raise ModelError(f"{method} looks at single pixels and patch is {patch}: leave it out, or give 1")


def check_odd(patch: int) -> None:
    if patch % 2 == 0:
        raise ModelError(f"patch is {patch}: an odd number is expected, so that the pixel is its centre")


def as_places(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Patches (B, D, D, C) as spectra (B*D*D, C) and the places of each patch's pixels among them (B, D*D)."""
    spectra = patches.flatten(0, 2)
    return spectra, torch.arange(len(spectra), dtype=torch.int32).view(len(patches), -1)


def put_together(spectra: Tensor, places: Tensor) -> Tensor:
    """Patches (B, D, D, C) from spectra (S, C) and the places of each patch's pixels among them (B, D*D)."""
    side = math.isqrt(places.shape[1])
    return spectra.index_select(0, places.flatten()).view(len(places), side, side, spectra.shape[1])


def xavier(layer: nn.Module, generator: Generator | None) -> nn.Module:
    """The layer with Xavier-uniform weights drawn from ``generator`` and zero biases."""
    nn.init.xavier_uniform_(layer.weight, generator=generator)  # type: ignore[arg-type]
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer
