"""Scene -> class map and confidence, window by window with a halo.

Arithmetic is done in tiles that lie on a fixed grid of the scene, and windows are made of whole tiles. So
every pixel goes through the very same sums whatever the window size, and maps agree to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from hypercaps.data.scene import Pixels, Scene
from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import DataWarning, SceneError
from hypercaps.inference.model import TrainedModel
from hypercaps.models.protocols import BatchInvariant, IndexedForward, WindowForward, kernel_threads
from hypercaps.training.patches import read_with_halo, reflect_invalid

STRIP = 4  # rows of a tile that go through the network at once: 64 pixels stay near the cache
_AT_ONCE = 16_384  # pixels whose patches' places are written down at once: 3 MB
WINDOW = 128  # default side of the windows that are read at once

Mask = npt.NDArray[np.bool_]
OnProgress = Callable[[int, int], None]  # pixels done, pixels in all


class ClassMap(NamedTuple):
    """A classified scene."""

    classes: npt.NDArray[np.int16]  # (rows, columns) labels of the legend; 0 where there is none
    confidence: npt.NDArray[np.float32]  # (rows, columns) of the winning class, 0 to 1; NaN there


class MappedWindow(NamedTuple):
    """A classified window of a scene."""

    at: Window
    classes: npt.NDArray[np.int16]  # (h, w) labels of the legend; 0 where there is none
    confidence: npt.NDArray[np.float32]  # (h, w) of the winning class, 0 to 1; NaN there
    scores: npt.NDArray[np.float32] | None  # (h, w, n) in all classes, if they were asked for; NaN there
    sets: npt.NDArray[np.uint8] | None = None  # (h, w) classes in each conformal set, if asked for; 0 there


def map_scene(
    model: TrainedModel,
    scene: Scene,
    *,
    only: Mask | None = None,
    window: int = WINDOW,
    on_progress: OnProgress | None = None,
) -> ClassMap:
    """Class and confidence of every valid pixel, or of those marked in ``only`` (rows, columns)."""
    classes = np.zeros(scene.shape[:2], dtype=np.int16)
    confidence = np.full(scene.shape[:2], np.nan, dtype=np.float32)
    windows = windows_of(scene, window)
    for part in map_windows(model, scene, windows, only=only, on_progress=on_progress):
        classes[part.at.rows, part.at.cols] = part.classes
        confidence[part.at.rows, part.at.cols] = part.confidence
    count_without_class(scene, classes == 0, only)
    return ClassMap(classes, confidence)


def map_scores(
    model: TrainedModel, scene: Scene, *, window: int = WINDOW, raw: bool = False
) -> npt.NDArray[np.float32]:
    """Confidence in all classes (rows, columns, n), 0 to 1; NaN for invalid pixels.

    Calibrated probabilities, or, if ``raw`` or the model is not calibrated, what the network says: for capsules their
    lengths.
    """
    scores = np.full((*scene.shape[:2], len(model.legend)), np.nan, dtype=np.float32)
    for part in map_windows(model, scene, windows_of(scene, window), with_scores=True, raw=raw):
        scores[part.at.rows, part.at.cols] = part.scores
    count_without_class(scene, np.isnan(scores[:, :, 0]))
    return scores


def windows_of(scene: Scene, side: int) -> Iterator[Window]:
    """Square windows of ``side``, rounded up to whole tiles."""
    return tile_windows(scene.whole, -(-max(side, 1) // TILE) * TILE)


def map_windows(
    model: TrainedModel,
    scene: Scene,
    windows: Iterable[Window],
    *,
    only: Mask | None = None,
    with_scores: bool = False,
    raw: bool = False,
    coverage: float | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[MappedWindow]:
    """One window after the other; those that hold nothing of ``only`` (rows, columns) are not read."""
    check_mask(scene, only)
    model.check_fits(scene)
    total, done = scene.rows * scene.cols, 0
    for at in windows:
        mask = None if only is None else only[at.rows, at.cols]
        if mask is None or mask.any():
            yield map_window(model, scene, at, mask, with_scores=with_scores, raw=raw, coverage=coverage)
        done += (at.r1 - at.r0) * (at.c1 - at.c0)
        if on_progress is not None:
            on_progress(done, total)


def map_window(
    model: TrainedModel,
    scene: Scene,
    at: Window,
    mask: Mask | None = None,
    *,
    with_scores: bool = False,
    raw: bool = False,
    coverage: float | None = None,
) -> MappedWindow:
    """One window, whose corners lie on the grid of tiles, or what is marked in ``mask`` (h, w) of it.

    Confidence and scores are calibrated, if the model is, but scores not if ``raw``; classes are the network's own.
    With ``coverage``, also how many classes it takes to hold the true one in this share of the pixels.
    """
    if mask is None:
        mask = np.ones((at.r1 - at.r0, at.c1 - at.c0), dtype=bool)
    scores = classify_window(model, read_with_halo(scene, at, model.patch // 2), mask)  # (h, w, n)
    known = ~np.isnan(scores[:, :, 0])
    classes = np.zeros(mask.shape, dtype=np.int16)
    confidence = np.full(mask.shape, np.nan, dtype=np.float32)
    found = scores[known]  # (N, n)
    classes[known] = model.legend.labels[found.argmax(axis=1)]
    if model.calibration is not None:
        found = model.calibration(found)
        if with_scores and not raw:
            scores[known] = found
    confidence[known] = found.max(axis=1)
    sets = None
    if coverage is not None:
        sets = np.zeros(mask.shape, dtype=np.uint8)
        sets[known] = model.calibrated("a set of classes").sets(found, coverage)
    return MappedWindow(at, classes, confidence, scores if with_scores else None, sets)


def check_mask(scene: Scene, only: Mask | None) -> None:
    if only is not None and only.shape != scene.shape[:2]:
        raise SceneError(f"the mask has shape {only.shape} but scene {scene.name!r} has {scene.shape[:2]} pixels")


def count_without_class(scene: Scene, unknown: Mask, only: Mask | None = None) -> None:
    """Say how many of the pixels that were wanted got no class; refuse a map without any."""
    wanted = unknown.size if only is None else int(only.sum())
    invalid = int((unknown if only is None else unknown & only).sum())
    report_without_class(scene, invalid, wanted)


def report_without_class(scene: Scene, invalid: int, wanted: int) -> None:
    if invalid and invalid == wanted:
        raise SceneError(
            f"scene {scene.name!r} has no valid pixel to classify: all {wanted} hold NaN, infinity or nodata; give "
            "a cube with finite values"
        )
    if invalid:
        warnings.warn(
            f"{invalid} of {wanted} pixels of scene {scene.name!r} hold NaN, infinity or nodata and get no class",
            DataWarning,
            stacklevel=2,
        )


def bytes_per_pixel(model: TrainedModel, scene: Scene) -> int:
    """What a pixel of a window takes at the height of the work: as stored, as values, as components, as scores."""
    return scene.bands * (2 * scene.dtype.itemsize + 3 + 8) + 16 * len(model.legend) + 32


def classify_window(model: TrainedModel, pixels: Pixels, mask: Mask) -> npt.NDArray[np.float32]:
    """Scores (h, w, n) of a window given with its halo; NaN where a pixel is invalid or not in ``mask``."""
    halo = model.patch // 2
    height, width = mask.shape
    wanted = mask & pixels.valid[halo : halo + height, halo : halo + width]
    scores = np.full((height, width, len(model.legend)), np.nan, dtype=np.float32)
    if isinstance(model.network, BatchInvariant) and model.network.is_batch_invariant:  # no fixed tiles are needed
        white = model.preprocessing.transform(pixels.values, pixels.valid)
        scores[wanted] = _scores_of_pixels(model, white, pixels.valid, wanted)
        return scores
    device = next(model.network.parameters()).device
    for tile in tile_windows(Window(0, height, 0, width), TILE):
        if not wanted[tile.rows, tile.cols].any():
            continue
        around = slice(tile.r0, tile.r1 + 2 * halo), slice(tile.c0, tile.c1 + 2 * halo)
        valid = pixels.valid[around]
        white = model.preprocessing.transform(pixels.values[around], valid).to(device)
        if isinstance(model.network, WindowForward) and valid.all():
            with torch.inference_mode():
                found = model.confidences(model.network.over_window(white)).float().cpu().numpy()  # (h, w, n)
            chosen = wanted[tile.rows, tile.cols]
            scores[tile.rows, tile.cols][chosen] = found[chosen]
            continue
        patches = _patch_view(white, model.patch)  # (h, w, D, D, C), a view
        for r in range(tile.r0, tile.r1, STRIP):
            strip = Window(r, min(r + STRIP, tile.r1), tile.c0, tile.c1)
            chosen = wanted[strip.rows, strip.cols]
            if not chosen.any():
                continue
            part = patches[r - tile.r0 : strip.r1 - tile.r0].flatten(0, 1)  # (B, D, D, C), a copy
            if not valid.all():
                part = _mended(part, valid[r - tile.r0 : strip.r1 - tile.r0 + 2 * halo], model.patch)
            with torch.inference_mode(), kernel_threads(model.network):
                found = model.confidences(model.network(part)).float().cpu().numpy().reshape(*chosen.shape, -1)
            scores[strip.rows, strip.cols][chosen] = found[chosen]
    return scores


def _mended(patches: Tensor, valid: Mask, patch: int) -> Tensor:
    """Patches (B, D, D, C) of a strip whose pixels are ``valid``, halo included: where one holds nothing, mirrored."""
    seen = sliding_window_view(valid, (patch, patch)).reshape(-1, patch, patch)  # (B, D, D), a copy
    torn = np.flatnonzero(~seen.all(axis=(1, 2)) & seen[:, patch // 2, patch // 2])
    if torn.size:
        spectra = patches[torn].flatten(1, 2)  # (T, D*D, C)
        standing = torch.from_numpy(reflect_invalid(seen[torn])).to(patches.device)[:, :, None].expand_as(spectra)
        patches[torn] = spectra.gather(1, standing).view(-1, *patches.shape[1:])
    return patches


def _scores_of_pixels(model: TrainedModel, white: Tensor, valid: Mask, wanted: Mask) -> npt.NDArray[np.float32]:
    """Scores (N, n) of the wanted pixels (h, w) of a whitened window (h + D - 1, w + D - 1, C)"""
    network = model.network
    assert isinstance(network, IndexedForward)
    around, across = np.arange(model.patch), white.shape[1]
    offsets = (around[:, None] * across + around).ravel()  # of a patch's pixels from its first
    rows, cols = np.nonzero(wanted)
    first = rows * across + cols
    spectra, seen = white.flatten(0, 1), valid.ravel()
    whole = bool(valid.all())
    found = []
    for at in range(0, first.size, _AT_ONCE):
        places = (first[at : at + _AT_ONCE, None] + offsets).astype(np.int32)  # (N, D*D)
        if not whole:
            torn = np.flatnonzero(~seen[places].all(axis=1))
            standing = reflect_invalid(seen[places[torn]].reshape(-1, model.patch, model.patch))
            places[torn] = np.take_along_axis(places[torn], standing, axis=1)
        with torch.inference_mode():
            scores = network.forward_indexed(spectra, torch.from_numpy(places))
            found.append(model.confidences(scores).numpy())
    return np.concatenate(found) if found else np.empty((0, len(model.legend)), dtype=np.float32)


def _patch_view(white: Tensor, patch: int) -> Tensor:
    """(h + D - 1, w + D - 1, C) -> every D x D patch, (h, w, D, D, C), without copying"""
    views = white.unfold(0, patch, 1).unfold(1, patch, 1)  # (h, w, C, D, D)
    return views.permute(0, 1, 3, 4, 2)
