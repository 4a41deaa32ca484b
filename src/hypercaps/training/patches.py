"""Patches around pixels of a scene, without storing every patch.

Neighbouring patches share most of their pixels, so that each preprocessed pixel is stored once, and a batch of patches
is gathered from them. The scene is mirrored at its border and at invalid pixels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hypercaps.compute import native
from hypercaps.compute.normals import standard_normal
from hypercaps.data.invalid import valid_mask
from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.training.preprocessing import Preprocessing

if TYPE_CHECKING:  # a map needs nothing of torch
    from torch import Tensor

Indices = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_READ_VALUES = 1 << 23  # values read at a time: 32 MB of float32
_IN_CACHE = 32  # patches whose mean is taken at once
_NOISY_AT_ONCE = 512  # pixels: their noise stays in the cache


def mirrored(positions: Indices, size: int) -> Indices:
    """Positions along a side of ``size``, those outside reflected back: -1 is 1, size is size - 2."""
    if size == 1:
        return np.zeros_like(positions)
    period = 2 * (size - 1)
    folded = np.mod(positions, period)
    return np.asarray(np.minimum(folded, period - folded))


def reflect_invalid(valid: Mask) -> npt.NDArray[np.intp]:
    """The position to read for each position of a patch: validity (N, D, D) -> (N, D*D); centres must be valid.

    A valid position is read itself. An invalid one is mirrored at the last valid pixel towards the patch's centre,
    along its column, else along its row, else along both; at a straight edge this equals the mirroring at the scene's
    border. Where no mirrored position is valid, the centre is read.
    """
    n, side, _ = valid.shape
    half = side // 2
    patches, at = np.arange(n)[:, None, None], np.arange(side)
    rows, cols = at[None, :, None], at[None, None, :]
    down = _mirrored_inwards(valid)  # (N, D, D): a row
    across = _mirrored_inwards(valid.transpose(0, 2, 1)).transpose(0, 2, 1)  # (N, D, D): a column
    # For corners: by the column and the row through the centre.
    down_middle = np.where(valid[:, :, half], at, down[:, :, half])[:, :, None]  # (N, D, 1)
    across_middle = np.where(valid[:, half, :], at, across[:, half, :])[:, None, :]  # (N, 1, D)
    read = np.where(valid, rows * side + cols, -1)
    for r, c in ((down, cols), (rows, across), (down_middle, across_middle)):
        usable = (read < 0) & (r >= 0) & (c >= 0) & valid[patches, r, c]
        read = np.where(usable, r * side + c, read)
    return np.where(read < 0, half * side + half, read).reshape(n, side * side)


def reflect_places(places: npt.NDArray[np.int32], valid: Mask, patch: int) -> None:
    """Replace invalid pixels in patches with a valid centre by their mirror images, in place.

    ``places`` (N, D*D) are the numbers of each patch's pixels, ``valid`` (S,) the validity of all pixels.
    """
    is_valid = valid[places]  # (N, D*D)
    incomplete = np.flatnonzero(~is_valid.all(axis=1) & is_valid[:, patch * patch // 2])
    sources = reflect_invalid(is_valid[incomplete].reshape(-1, patch, patch))
    places[incomplete] = np.take_along_axis(places[incomplete], sources, axis=1)


def _mirrored_inwards(valid: Mask) -> npt.NDArray[np.intp]:
    """Row to which each row of (N, D, D) is mirrored, at the next valid row of its column inwards; -1: none"""
    side = valid.shape[1]
    half = side // 2
    edge = np.full(valid.shape, -1, dtype=np.intp)
    for outwards, rows in ((-1, range(half - 1, -1, -1)), (1, range(half + 1, side))):
        for row in rows:
            inner = row - outwards
            edge[:, row] = np.where(valid[:, inner], inner, edge[:, inner])
    return np.where(edge < 0, -1, 2 * edge - np.arange(side)[None, :, None])


def read_with_halo(scene: Scene, window: Window, halo: int) -> Pixels:
    """A window and ``halo`` pixels around it, mirrored at the scene's border: (h + 2 halo, w + 2 halo, bands)"""
    rows = mirrored(np.arange(window.r0 - halo, window.r1 + halo), scene.rows)
    cols = mirrored(np.arange(window.c0 - halo, window.c1 + halo), scene.cols)
    r0, c0 = int(rows.min()), int(cols.min())
    read = scene.read(slice(r0, int(rows.max()) + 1), slice(c0, int(cols.max()) + 1))
    if read.valid.shape == (rows.size, cols.size):  # no mirroring needed
        return read
    at = np.ix_(rows - r0, cols - c0)
    return Pixels(read.values[at], read.valid[at])


def draw_valid_pixels(scene: Scene, *, without: Indices, most: int, seed: int) -> Indices:
    """Draw up to ``most`` valid pixels of the scene, none of ``without``: flat indices, ascending."""
    pixels = valid_pixels(scene, without=without)
    if pixels.size <= most:
        return pixels
    return np.sort(np.random.default_rng(seed).choice(pixels, most, replace=False))


def valid_pixels(scene: Scene, *, without: Indices, within: Mask | None = None) -> Indices:
    """Valid pixels of the scene, or of the mask ``within`` (rows, columns): flat indices, ascending."""
    free = valid_mask(scene, within)
    free.ravel()[without] = False
    return np.flatnonzero(free)


def symmetries(patch: int) -> Tensor:
    """The eight rotations and reflections of a patch, as orders of its positions: (8, D*D), the identity first."""
    import torch

    places = torch.arange(patch * patch).view(patch, patch)
    turned = [torch.rot90(places, turns) for turns in range(4)]
    return torch.stack([order.flatten() for square in turned for order in (square, square.flip(0))])


@dataclass
class KeptSpectra:
    """Preprocessed spectra of the last store that used them, for one that needs the same pixels."""

    pixels: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # (S,) flat, ascending
    spectra: Values = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))  # (S, C)
    valid: Mask = field(default_factory=lambda: np.empty(0, dtype=bool))  # (S,)

    def read(self, scene: Scene, preprocessing: Preprocessing, pixels: Indices) -> tuple[Values, Mask]:
        """Spectra (S, C) and validity (S,) of pixels, which are read unless they are those of the last time."""
        if not np.array_equal(pixels, self.pixels):
            spectra, valid = native.empty((pixels.size, scene.bands)), np.empty(pixels.size, dtype=bool)
            for at, read in read_pixels(scene, pixels):
                spectra[at], valid[at] = preprocessing.transform(read.values, read.valid), read.valid
            self.pixels, self.spectra, self.valid = pixels, spectra, valid
        return self.spectra, self.valid


class PatchStore:
    """Patches around chosen pixels of a scene, gathered on demand.

    Stores one preprocessed spectrum for each pixel of any patch: never more than the scene, and little for few labels
    in a large scene.
    """

    def __init__(
        self,
        scene: Scene,
        preprocessing: Preprocessing,
        pixels: Indices,
        patch: int,
        kept: KeptSpectra | None = None,  # of this scene and preprocessing
    ) -> None:
        import torch

        self.patch = patch
        half = patch // 2
        around = np.arange(-half, half + 1)
        r, c = np.divmod(pixels, scene.cols)
        rows = mirrored(r[:, None] + around, scene.rows)  # (N, D)
        cols = mirrored(c[:, None] + around, scene.cols)  # (N, D)

        touched = np.zeros((scene.rows, scene.cols), dtype=bool)
        for i in range(patch):
            for j in range(patch):
                touched[rows[:, i], cols[:, j]] = True
        needed = np.flatnonzero(touched)  # flat, ascending: the order of the stored spectra
        spectra, valid = (kept or KeptSpectra()).read(scene, preprocessing, needed)
        self._spectra = torch.from_numpy(spectra)

        # Row of the stored spectra for each position of each patch: (N, D*D)
        flat = (rows[:, :, None] * scene.cols + cols[:, None, :]).reshape(len(pixels), patch * patch)
        places = np.searchsorted(needed, flat).astype(np.int32)
        if not valid.all():
            reflect_places(places, valid, patch)
        self._places = torch.from_numpy(places)
        self._pixels = torch.from_numpy(np.stack([r, c], axis=1))
        self._noisy: Indices | None = None  # rows of the spectra that have noise

    def __len__(self) -> int:
        return self._places.shape[0]

    @property
    def spectra(self) -> Tensor:
        """The preprocessed spectrum of each pixel of any patch: (S, C)"""
        return self._spectra

    def places(self, which: Tensor, order: Tensor | None = None) -> Tensor:
        """Rows of ``spectra`` for the pixels of patches ``which`` (B,): (B, D*D) int32

        With ``order`` (B, D*D), rows of :func:`symmetries`, each patch is rotated or reflected.
        """
        places = self._places.index_select(0, which)
        return places if order is None else places.gather(1, order)

    @property
    def pixels(self) -> Tensor:
        """Row and column of each patch's centre in the scene: (N, 2)"""
        return self._pixels

    def centres(self) -> Tensor:
        """Row of ``spectra`` for the centre of each patch: (N,) int32"""
        return self._places[:, self.patch * self.patch // 2]

    def mean_spectra(self, which: Tensor) -> Tensor:
        """Mean spectra of patches ``which`` (B,): (B, C). Those of a patch do not depend on the others."""
        import torch

        return torch.cat([self.gather(some).mean(dim=(1, 2)) for some in torch.split(which, _IN_CACHE)])

    def with_noise(
        self, which: Tensor, sigma: float, rng: np.random.Generator, before: PatchStore | None = None
    ) -> PatchStore:
        """The same store with Gaussian noise of standard deviation ``sigma`` on the pixels of patches ``which``.

        Drawn in one stream for any number of threads. Other spectra are not changed, so that few patches of a
        large scene cost little. ``before`` is a store that this method has made of this one and that is not needed any
        more: its memory is used again.
        """
        import torch

        touched = torch.zeros(len(self._spectra), dtype=torch.bool, device=self._spectra.device)
        touched[self._places.index_select(0, which).flatten()] = True
        at = touched.nonzero().flatten()

        def draw(pixels: int) -> Values:
            drawn = standard_normal(rng, (pixels, self._spectra.shape[1]))
            drawn *= np.float32(sigma)
            return drawn

        noisy = copy.copy(self)
        if self._spectra.device.type == "cpu":
            noisy._noisy = at.numpy()
            spectra, clean = self._without_noise(before, touched.numpy()), self._spectra.numpy()
            for start in range(0, noisy._noisy.size, _NOISY_AT_ONCE):  # much faster than torch's index_add
                some = noisy._noisy[start : start + _NOISY_AT_ONCE]
                drawn = draw(some.size)
                drawn += clean.take(some, axis=0)
                spectra[some] = drawn
            noisy._spectra = torch.from_numpy(spectra)
        else:
            drawn = draw(len(at))
            noisy._spectra = self._spectra.index_add(0, at, torch.from_numpy(drawn).to(self._spectra.device))
        return noisy

    def _without_noise(self, before: PatchStore | None, touched: Mask) -> Values:
        """A copy of the spectra (S, C), in the memory of ``before`` if it has noise; ``touched`` (S,) may have any."""
        clean: Values = self._spectra.numpy()
        if before is not None and before._noisy is not None:
            spectra: Values = before._spectra.numpy()
            left = before._noisy[~touched[before._noisy]]
            spectra[left] = clean.take(left, axis=0)
            return spectra
        spectra = native.empty(clean.shape)
        spectra[...] = clean
        return spectra

    def to(self, device: str) -> PatchStore:
        """The same store on another device."""
        moved = copy.copy(self)
        moved._spectra, moved._places = self._spectra.to(device), self._places.to(device)
        moved._pixels = self._pixels.to(device)
        return moved

    def gather(self, which: Tensor, order: Tensor | None = None) -> Tensor:
        """Patches ``which`` (B,) -> (B, D, D, C), in the ``order`` of ``places``"""
        places = self.places(which, order).flatten()
        return self._spectra.index_select(0, places).view(len(which), self.patch, self.patch, self._spectra.shape[1])


def read_pixels(scene: Scene, pixels: Indices) -> Iterator[tuple[slice, Pixels]]:
    """Read pixels (flat, ascending) in strips of rows: which of them, their values (n, bands) and validity (n,).

    Strips without any of the pixels, and columns outside of them, are not read.
    """
    strip = max(1, _READ_VALUES // (scene.cols * scene.bands))
    for r0 in range(0, scene.rows, strip):
        r1 = min(r0 + strip, scene.rows)
        first, last = np.searchsorted(pixels, [r0 * scene.cols, r1 * scene.cols])
        if first == last:
            continue
        r, c = np.divmod(pixels[first:last], scene.cols)
        c0, c1 = int(c.min()), int(c.max()) + 1
        read = scene.read(slice(r0, r1), slice(c0, c1))
        at = (r - r0, c - c0)
        yield slice(first, last), Pixels(read.values[at], read.valid[at])
