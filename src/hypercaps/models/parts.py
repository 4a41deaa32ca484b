"""Checks and helpers shared by several networks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from hypercaps.errors import ModelError


def check_sizes(sizes: Mapping[str, object]) -> None:
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


def check_patches(patches: Tensor, patch: int, bands: int) -> None:
    """Refuse patches of another size than the network's: the kernels would read beyond their end."""
    if patches.ndim != 4 or patches.shape[1:] != (patch, patch, bands):
        raise ModelError(
            f"patches have shape {tuple(patches.shape)}: (pixels, {patch}, {patch}, {bands}) is expected, for this "
            f"network looks at {patch} x {patch} pixels of {bands} bands"
        )


def check_places(spectra: Tensor, places: Tensor, patch: int, bands: int) -> None:
    """Refuse spectra (S, C) or places (B, D*D) of another size, and places outside of the spectra."""
    fits = spectra.ndim == places.ndim == 2 and spectra.shape[1] == bands and places.shape[1] == patch * patch
    if not fits or places.dtype != torch.int32:
        raise ModelError(
            f"spectra have shape {tuple(spectra.shape)} and places {tuple(places.shape)} of {places.dtype}: (number, "
            f"{bands}) and (pixels, {patch * patch}) of torch.int32 are expected"
        )
    if places.numel() and not (int(places.min()) >= 0 and int(places.max()) < len(spectra)):
        raise ModelError(f"places go beyond the {len(spectra)} spectra: whole numbers from 0 are expected")


def as_places(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Patches (B, D, D, C) as spectra (B*D*D, C) and the row of each patch's pixels in them (B, D*D)."""
    pixels, height, width, _ = patches.shape
    return patches.flatten(0, 2), torch.arange(pixels * height * width, dtype=torch.int32).view(pixels, height * width)


def gather_patches(spectra: Tensor, places: Tensor) -> Tensor:
    """Patches (B, D, D, C) from spectra (S, C) and the row of each patch's pixels in them (B, D*D)."""
    side = math.isqrt(places.shape[1])
    return spectra.index_select(0, places.flatten()).view(len(places), side, side, spectra.shape[1])


def xavier(layer: nn.Module, generator: Generator | None) -> nn.Module:
    """The layer with Xavier-uniform weights drawn from ``generator`` and zero biases."""
    nn.init.xavier_uniform_(layer.weight, generator=generator)  # type: ignore[arg-type]
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer
