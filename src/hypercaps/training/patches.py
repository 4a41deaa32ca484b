"""From a scene and positions to patches, without ever holding every patch.

Neighbouring patches share most of their pixels, so what is kept is each pixel once, preprocessed; a batch of
patches is gathered from them. Beyond the scene's border, and where it holds nothing, the scene is mirrored.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hypercaps.data.scene import Pixels, Scene
from hypercaps.data.window import Window, tile_windows
from hypercaps.training.preprocessing import Preprocessing

_READ_VALUES = 1 << 23  # values read at a time: 32 MB of float32


def mirrored(positions: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Positions along a side of ``size``, those outside reflected back: -1 is 1, size is size - 2."""
    if size == 1:
        return np.zeros_like(positions)
    period = 2 * (size - 1)
    folded = np.mod(positions, period)
    return np.asarray(np.minimum(folded, period - folded))


def reflect_invalid(valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Which place of a patch is read for each of its places: (N, D, D) validity -> (N, D*D), the centres being valid.

    Every valid place stands for itself. One without data is mirrored at the last valid pixel on the way to the patch's
    middle, down its column, else along its row, else both; at a straight edge that is what is done at the scene's
    border. Where this leads nowhere, the pixel in the middle stands in.
    """
    n, side, _ = valid.shape
    half = side // 2
    every, at = np.arange(n)[:, None, None], np.arange(side)
    rows, cols = at[None, :, None], at[None, None, :]
    down = _mirrored_inwards(valid)  # (N, D, D): a row
    across = _mirrored_inwards(valid.transpose(0, 2, 1)).transpose(0, 2, 1)  # (N, D, D): a column
    # For corners: by the column and the row that meet in the middle.
    down_middle = np.where(valid[:, :, half], at, down[:, :, half])[:, :, None]  # (N, D, 1)
    across_middle = np.where(valid[:, half, :], at, across[:, half, :])[:, None, :]  # (N, 1, D)
    found = np.where(valid, rows * side + cols, -1)
    for r, c in ((down, cols), (rows, across), (down_middle, across_middle)):
        usable = (found < 0) & (r >= 0) & (c >= 0) & valid[every, r, c]
        found = np.where(usable, r * side + c, found)
    return np.where(found < 0, half * side + half, found).reshape(n, side * side)


def _mirrored_inwards(valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Each row of (N, D, D) mirrored at the next valid row of its column on the way to the middle; -1: there is none"""
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
    if read.valid.shape == (rows.size, cols.size):  # nothing is mirrored
        return read
    at = np.ix_(rows - r0, cols - c0)
    return Pixels(read.values[at], read.valid[at])


def draw_valid_pixels(scene: Scene, *, without: npt.NDArray[np.int64], most: int, seed: int) -> npt.NDArray[np.int64]:
    """Up to ``most`` valid pixels of the scene at random, none of ``without``, as flat indices, ascending."""
    pixels = valid_pixels(scene, without=without)
    if pixels.size <= most:
        return pixels
    return np.sort(np.random.default_rng(seed).choice(pixels, most, replace=False))


def valid_pixels(
    scene: Scene, *, without: npt.NDArray[np.int64], within: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.int64]:
    """Valid pixels of the scene, or of what is marked in ``within`` (rows, columns), as flat indices, ascending."""
    free = np.zeros(scene.shape[:2], dtype=bool)
    for window in tile_windows(scene.whole, 256):
        wanted = True if within is None else within[window.rows, window.cols]
        if np.any(wanted):
            free[window.rows, window.cols] = scene.read(window.rows, window.cols).valid & wanted
    free.ravel()[without] = False
    return np.flatnonzero(free)


def symmetries(patch: int) -> Tensor:
    """The eight turns and reflections of a patch, as the order in which its places are read: (8, D*D), itself first."""
    places = torch.arange(patch * patch).view(patch, patch)
    turned = [torch.rot90(places, turns) for turns in range(4)]
    return torch.stack([way.flatten() for square in turned for way in (square, square.flip(0))])


class PatchStore:
    """Patches around chosen pixels of a scene, gathered on demand.

    Memory is one preprocessed spectrum for each pixel that any of the patches touches: never more than the
    scene, and little for few labels in a large one.
    """

    def __init__(self, scene: Scene, preprocessing: Preprocessing, pixels: npt.NDArray[np.int64], patch: int) -> None:
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
        needed = np.flatnonzero(touched)  # flat, ascending: the order of the kept spectra
        self._spectra, valid = _ready_pixels(scene, preprocessing, needed)  # (needed, C), (needed,)

        # Which kept spectrum stands at each place of each patch: (N, D*D)
        flat = (rows[:, :, None] * scene.cols + cols[:, None, :]).reshape(len(pixels), patch * patch)
        places = np.searchsorted(needed, flat).astype(np.int32)
        if not valid.all():
            seen = valid[places]  # (N, D*D)
            torn = np.flatnonzero(~seen.all(axis=1) & seen[:, patch * patch // 2])
            standing = reflect_invalid(seen[torn].reshape(-1, patch, patch))
            places[torn] = np.take_along_axis(places[torn], standing, axis=1)
        self._places = torch.from_numpy(places)

    def __len__(self) -> int:
        return self._places.shape[0]

    @property
    def spectra(self) -> Tensor:
        """Every pixel that any of the patches touches, once: (S, C)"""
        return self._spectra

    def places(self, which: Tensor, order: Tensor | None = None) -> Tensor:
        """Where the pixels of patches number ``which`` (B,) are among the spectra: (B, D*D) int32

        With ``order`` (B, D*D), rows of :func:`symmetries`, each patch is turned or reflected.
        """
        places = self._places.index_select(0, which)
        return places if order is None else places.gather(1, order)

    def centres(self) -> Tensor:
        """Where the pixel in the middle of each patch is among the spectra: (N,) int32"""
        return self._places[:, self.patch * self.patch // 2]

    def with_noise(self, which: Tensor, sigma: float, rng: np.random.Generator) -> PatchStore:
        """The same store, with noise on all that patches number ``which`` touch.

        It is drawn by numpy: one stream whatever the threads. Other spectra are left as they are, so that few patches
        of a large scene cost little.
        """
        touched = torch.zeros(len(self._spectra), dtype=torch.bool, device=self._spectra.device)
        touched[self._places.index_select(0, which).flatten()] = True
        at = touched.nonzero().flatten()
        drawn = rng.standard_normal((len(at), self._spectra.shape[1]), dtype=np.float32)
        drawn *= np.float32(sigma)
        noisy = copy.copy(self)
        noisy._spectra = self._spectra.index_add(0, at, torch.from_numpy(drawn).to(self._spectra.device))
        return noisy

    def to(self, device: str) -> PatchStore:
        """The same store on another device."""
        moved = copy.copy(self)
        moved._spectra, moved._places = self._spectra.to(device), self._places.to(device)
        return moved

    def gather(self, which: Tensor, order: Tensor | None = None) -> Tensor:
        """Patches number ``which`` (B,) -> (B, D, D, C), turned as for ``places``"""
        places = self.places(which, order).flatten()
        return self._spectra.index_select(0, places).view(len(which), self.patch, self.patch, self._spectra.shape[1])


def _ready_pixels(
    scene: Scene, preprocessing: Preprocessing, needed: npt.NDArray[np.int64]
) -> tuple[Tensor, npt.NDArray[np.bool_]]:
    """Some pixels (flat, ascending), preprocessed, and which of them are valid."""
    spectra, valid = torch.empty(needed.size, scene.bands), np.empty(needed.size, dtype=bool)
    for at, read in read_pixels(scene, needed):
        valid[at] = read.valid
        spectra[at] = preprocessing.transform(read.values, read.valid)
    return spectra, valid


def read_pixels(scene: Scene, pixels: npt.NDArray[np.int64]) -> Iterator[tuple[slice, Pixels]]:
    """Some pixels (flat, ascending) as they are, (n, bands) and (n,), in strips that skip what nobody needs.

    The slice says which of them a strip holds.
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
