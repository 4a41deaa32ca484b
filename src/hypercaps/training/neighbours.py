"""Patches that lie near each other: steps of a training on them, and their scores with shared work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from hypercaps.models.protocols import WindowForward
from hypercaps.training.patches import PatchStore

_SIDE = 64  # pixels of a tile that is scored at once
# A window is computed at all offsets of the poolings, a patch at one: measured, a pixel costs three times as much.
_WINDOW_COST = 3
_ALONE = 16  # patches at a time that share nothing


@dataclass(frozen=True)
class Tile:
    """Patches of a store, and the window of the scene that they lie in."""

    which: Tensor  # (B,) among the given patches
    rows: Tensor  # (B,) of their centres in the window, without the halo
    cols: Tensor  # (B,)
    places: Tensor  # (h + D - 1, w + D - 1) rows of the store's spectra; any row outside of the patches

    @property
    def is_dense(self) -> bool:
        """Whether the window costs less than its patches one by one."""
        height, width = self.places.shape
        side = height - int(self.rows.max())
        return _WINDOW_COST * height * width < len(self.which) * side * side


def neighbour_scores(network: WindowForward, store: PatchStore, which: Tensor) -> Tensor:
    """Scores (B, n) of patches ``which`` (B,): of whole windows where the patches are dense, else one by one."""
    assert isinstance(network, nn.Module)
    order, scores, alone = [], [], []
    for tile in tiles(store, which):
        if not tile.is_dense:
            alone.append(tile.which)
            continue
        order.append(tile.which)
        scores.append(network.at_pixels(store.spectra[tile.places], tile.rows, tile.cols))
    for some in torch.split(torch.cat(alone), _ALONE) if alone else ():
        order.append(some)
        scores.append(network(store.gather(which[some])))
    return torch.cat(scores)[torch.cat(order).argsort()]


def tiles(store: PatchStore, which: Tensor, side: int = _SIDE) -> Iterator[Tile]:
    """Divide patches ``which`` into tiles of up to ``side`` x ``side`` pixels, counted from their first row and column.

    Near invalid pixels a patch has values of its own (``reflect_places``): where it does not agree with the window of
    the patches before it, it comes in another tile.
    """
    pixels = store.pixels[which]  # (B, 2)
    rows, cols = ((pixels - pixels.amin(dim=0)) // side).unbind(dim=1)
    number = rows * (int(cols.max()) + 1) + cols  # (B,)
    for some in torch.unique(number):
        rest = torch.nonzero(number == some).flatten()
        while len(rest):
            tile, agrees = _tile(store, which, rest)
            yield tile
            rest = rest[~agrees]


def _tile(store: PatchStore, which: Tensor, some: Tensor) -> tuple[Tile, Tensor]:
    """The tile of those patches ``which[some]`` that agree with the first of them, and which ones these are."""
    side = store.patch
    pixels, around = store.pixels[which[some]], torch.arange(side, device=which.device)
    rows, cols = (pixels - pixels.amin(dim=0)).unbind(dim=1)
    places = store.places(which[some]).view(-1, side, side)
    height, width = (int(at.max()) + side for at in (rows, cols))
    flat = (rows[:, None, None] + around[:, None]) * width + cols[:, None, None] + around  # (B, D, D)
    window = places.new_zeros(height * width)
    for patch, at in zip(places.flip(0), flat.flip(0), strict=True):  # the first one last: it agrees in any case
        window[at] = patch
    agrees = (window[flat] == places).flatten(1).all(dim=1)
    return Tile(some[agrees], rows[agrees], cols[agrees], window.view(height, width)), agrees


def neighbour_batches(pixels: Tensor, size: int, generator: Generator) -> list[Tensor]:
    """Divide pixels (N, 2) at random into batches of about ``size`` neighbours, all of nearly the same size.

    The pixels are cut in two along the longer side again and again, as in a k-d tree, at another place every time.
    """
    batches = _divide(pixels, torch.arange(len(pixels)), max(1, round(len(pixels) / size)), generator)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator)]


def _divide(pixels: Tensor, which: Tensor, parts: int, generator: Generator) -> list[Tensor]:
    if parts == 1:
        return [which]
    near = pixels[which]
    longer = int((near.amax(dim=0) - near.amin(dim=0)).argmax())
    order = which[near[:, longer].argsort(stable=True)]
    first = int(torch.randint(-(-parts // 3), parts - -(-parts // 3) + 1, (), generator=generator))
    cut = round(len(which) * first / parts)
    return _divide(pixels, order[:cut], first, generator) + _divide(pixels, order[cut:], parts - first, generator)
