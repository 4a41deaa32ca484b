"""Classify a scene window by window, with a halo of half a patch.

Maps agree to the last bit whatever the window size, in one of two ways. The compiled kernels compute every pixel by
the same sums in any batch, so a window is classified as a whole (``_classify_compiled``, ``linear_map``), without
torch. Other networks round differently for other batches: they compute in tiles of 16 x 16 pixels on a fixed grid of
the scene (``_classify_tile``), and windows consist of whole tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from hypercaps.data.invalid import warn_of_invalid
from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import SceneError
from hypercaps.inference import linear_map
from hypercaps.inference.class_map import ClassMap
from hypercaps.inference.known_scores import KnownScores
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.read_ahead import read_ahead
from hypercaps.models.capsules.compiled import CompiledConvCapsNet
from hypercaps.models.protocols import WindowForward, kernel_threads
from hypercaps.training.patches import read_with_halo, reflect_invalid, reflect_places

if TYPE_CHECKING:
    from torch import Tensor

STRIP = 4  # rows of a tile per forward pass: 64 pixels fit into the cache
_CHUNK = 16_384  # pixels whose patch indices are computed at once: 3 MB
WINDOW = 128  # default side of a window

Mask = npt.NDArray[np.bool_]
OnProgress = Callable[[int, int], None]  # pixels done, total number of pixels


class MappedWindow(NamedTuple):
    """A classified window of a scene."""

    at: Window
    classes: npt.NDArray[np.int16]  # (h, w) labels of the legend; 0: no class
    confidence: npt.NDArray[np.float32]  # (h, w) of that class, 0 to 1; NaN: no class
    scores: npt.NDArray[np.float32] | None  # (h, w, n) of all classes; NaN: no class; None: not requested
    sets: npt.NDArray[np.uint8] | None = None  # (h, w) size of the conformal set; 0: no class; None: not requested
    familiarity: npt.NDArray[np.float32] | None = None  # (h, w) 0 to 1; NaN: no class; None: not requested
    source: int = 0  # checksum of the scene's pixels, those around the window included


@dataclass(frozen=True)
class WindowOutputs:
    """What to compute for each window in addition to classes and confidence."""

    with_scores: bool = False  # scores of all classes
    raw: bool = False  # as the network gives them, not calibrated
    coverage: float | None = None  # sizes of the conformal sets for this share of pixels
    with_familiarity: bool = False  # to the ground that was labelled

    def halo(self, model: TrainedModel) -> int:
        """Pixels around a window that are needed for it."""
        return max(model.halo, model.familiar("familiarity").halo) if self.with_familiarity else model.halo


CLASSES_ONLY = WindowOutputs()


def map_scene(
    model: TrainedModel,
    scene: Scene,
    *,
    only: Mask | None = None,
    window: int = WINDOW,
    on_progress: OnProgress | None = None,
    known: KnownScores | None = None,
) -> ClassMap:
    """Class and confidence of every valid pixel, or of those marked in ``only`` (rows, columns)."""
    classes = np.zeros(scene.shape[:2], dtype=np.int16)
    confidence = np.full(scene.shape[:2], np.nan, dtype=np.float32)
    windows = windows_of(scene, window)
    for part in map_windows(model, scene, windows, only=only, on_progress=on_progress, known=known):
        classes[part.at.rows, part.at.cols] = part.classes
        confidence[part.at.rows, part.at.cols] = part.confidence
    count_without_class(scene, classes == 0, only)
    return ClassMap(classes, confidence, model.legend, scene.crs, scene.transform, scene.lookup, scene.name)


def map_scores(
    model: TrainedModel,
    scene: Scene,
    *,
    window: int = WINDOW,
    raw: bool = False,
    on_progress: OnProgress | None = None,
) -> npt.NDArray[np.float32]:
    """Scores of all classes (rows, columns, n), 0 to 1; NaN for invalid pixels.

    Calibrated probabilities, or, if ``raw`` or the model is not calibrated, the output of the network: for capsules
    their lengths.
    """
    scores = np.full((*scene.shape[:2], len(model.legend)), np.nan, dtype=np.float32)
    outputs = WindowOutputs(with_scores=True, raw=raw)
    for part in map_windows(model, scene, windows_of(scene, window), outputs, on_progress=on_progress):
        scores[part.at.rows, part.at.cols] = part.scores
    count_without_class(scene, np.isnan(scores[:, :, 0]))
    return scores


def map_familiarity(model: TrainedModel, scene: Scene, *, window: int = WINDOW) -> npt.NDArray[np.float32]:
    """Familiarity (rows, columns), 0 to 1; NaN for invalid pixels. Nothing is classified."""
    measure = model.familiar("familiarity")
    model.check_fits(scene)
    familiarity = np.full(scene.shape[:2], np.nan, dtype=np.float32)
    for at in windows_of(scene, window):
        pixels = read_with_halo(scene, at, measure.halo)
        familiarity[at.rows, at.cols] = measure.of_window(pixels, _trimmed(pixels, measure.halo).valid)
    return familiarity


def windows_of(scene: Scene, side: int) -> Iterator[Window]:
    """Square windows of ``side``, rounded up to whole tiles."""
    return tile_windows(scene.whole, -(-max(side, 1) // TILE) * TILE)


def map_windows(
    model: TrainedModel,
    scene: Scene,
    windows: Iterable[Window],
    outputs: WindowOutputs = CLASSES_ONLY,
    *,
    only: Mask | None = None,
    on_progress: OnProgress | None = None,
    known: KnownScores | None = None,
) -> Iterator[MappedWindow]:
    """Classify windows one by one; those without a pixel of ``only`` (rows, columns) are skipped.

    Scores that are ``known`` of this model and scene are not computed again.
    """
    check_mask(scene, only)
    model.check_fits(scene)
    total, done = scene.rows * scene.cols, 0
    all_windows = list(windows)
    to_classify = [at for at in all_windows if only is None or only[at.rows, at.cols].any()]
    reading = read_ahead(scene, to_classify, outputs.halo(model))
    for at in all_windows:
        mask = None if only is None else only[at.rows, at.cols]
        if mask is None or mask.any():
            yield _map_pixels(model, at, *next(reading), mask, outputs, known)
        done += (at.r1 - at.r0) * (at.c1 - at.c0)
        if on_progress is not None:
            on_progress(done, total)


def map_window(
    model: TrainedModel,
    scene: Scene,
    at: Window,
    mask: Mask | None = None,
    outputs: WindowOutputs = CLASSES_ONLY,
    known: KnownScores | None = None,
) -> MappedWindow:
    """Classify a window whose corners lie on the grid of tiles, or the pixels of it that are in ``mask`` (h, w).

    Confidence and scores are calibrated if the model is; classes are those of the highest score of the network.
    """
    pixels = read_with_halo(scene, at, outputs.halo(model))
    return _map_pixels(model, at, pixels, pixels.checksum(), mask, outputs, known)


def _map_pixels(
    model: TrainedModel,
    at: Window,
    pixels: Pixels,
    source: int,
    mask: Mask | None,
    outputs: WindowOutputs,
    known: KnownScores | None,
) -> MappedWindow:
    """The same from pixels that were read with their halo, and their checksum."""
    if mask is None:
        mask = np.ones((at.r1 - at.r0, at.c1 - at.c0), dtype=bool)
    halo = outputs.halo(model)
    unknown = mask if known is None else known.missing(at, mask)
    scores = classify_window(model, _trimmed(pixels, halo - model.halo), unknown)  # (h, w, n)
    if known is not None:
        known.complete(at, scores, mask)
    valid = ~np.isnan(scores[:, :, 0])
    familiarity = None
    if outputs.with_familiarity:
        labelled = model.familiar("familiarity")
        familiarity = labelled.of_window(_trimmed(pixels, halo - labelled.halo), valid)
    del pixels  # large
    classes = np.zeros(mask.shape, dtype=np.int16)
    confidence = np.full(mask.shape, np.nan, dtype=np.float32)
    of_pixels = scores[valid]  # (N, n)
    classes[valid] = model.legend.labels[of_pixels.argmax(axis=1)]
    if model.calibration is not None:
        of_pixels = model.calibration(of_pixels)
        if outputs.with_scores and not outputs.raw:
            scores[valid] = of_pixels
    confidence[valid] = of_pixels.max(axis=1)
    sets = None
    if outputs.coverage is not None:
        sets = np.zeros(mask.shape, dtype=np.uint8)
        sets[valid] = model.calibrated("a set of classes").sets(of_pixels, outputs.coverage)
    all_scores = scores if outputs.with_scores else None
    return MappedWindow(at, classes, confidence, all_scores, sets, familiarity, source)


def check_mask(scene: Scene, only: Mask | None) -> None:
    if only is not None and only.shape != scene.shape[:2]:
        raise SceneError(f"the mask has shape {only.shape} but scene {scene.name!r} has {scene.shape[:2]} pixels")


def count_without_class(scene: Scene, blank: Mask, only: Mask | None = None) -> None:
    """Warn of pixels without a class, (rows, columns) ``blank``; refuse a map without any class."""
    total = blank.size if only is None else int(only.sum())
    report_without_class(scene, int((blank if only is None else blank & only).sum()), total)


def report_without_class(scene: Scene, invalid: int, total: int) -> None:
    """The same from counts."""
    if invalid and invalid == total:
        raise SceneError(
            f"scene {scene.name!r} has no valid pixel to classify: all {total} hold {scene.why_invalid()}; "
            "give a cube with finite values"
        )
    warn_of_invalid(scene, invalid, total)


def bytes_per_pixel(model: TrainedModel, scene: Scene) -> int:
    """Peak memory per pixel of a window.

    Float values (twice if halos differ), components and scores of one window, stored and float values of the next,
    which is read meanwhile.
    """
    scores = 16 + 24 * len(model.partners)  # an average keeps the sum of its members' scores
    return scene.bands * (2 * scene.dtype.itemsize + 3 + 16) + scores * len(model.legend) + 32


def classify_window(model: TrainedModel, pixels: Pixels, mask: Mask) -> npt.NDArray[np.float32]:
    """Scores (h, w, n) of a window given with its halo; NaN for pixels that are invalid or not in ``mask``."""
    if model.partners:
        return _classify_average(model, pixels, mask)
    halo = model.patch // 2
    height, width = mask.shape
    mapped = mask & pixels.valid[halo : halo + height, halo : halo + width]
    scores = np.full((height, width, len(model.legend)), np.nan, dtype=np.float32)
    if linear_map.is_usable(model):
        scores[mapped] = linear_map.classify_linear(model, pixels, mapped)
        return scores
    if (network := model.compiled) is not None:  # needs no fixed tiles
        components = model.preprocessing.transform(pixels.values, pixels.valid)
        scores[mapped] = _classify_compiled(network, components, pixels.valid, mapped)
        return scores
    for tile in tile_windows(Window(0, height, 0, width), TILE):
        chosen = mapped[tile.rows, tile.cols]
        if chosen.any():
            around = slice(tile.r0, tile.r1 + 2 * halo), slice(tile.c0, tile.c1 + 2 * halo)
            tile_pixels = Pixels(pixels.values[around], pixels.valid[around])
            _classify_tile(model, tile_pixels, chosen, scores[tile.rows, tile.cols])
    return scores


def _classify_average(model: TrainedModel, pixels: Pixels, mask: Mask) -> npt.NDArray[np.float32]:
    """Weighted average (h, w, n) of the members' calibrated scores, added in the order of the members."""
    height, width = mask.shape
    average = np.full((height, width, len(model.legend)), np.nan, dtype=np.float32)
    total: npt.NDArray[np.float64] | None = None  # (N, n)
    for member in model.members:
        assert member.own_calibration is not None
        # This member may need less around the window.
        scores = classify_window(member, _trimmed(pixels, model.halo - member.halo), mask)
        mapped = ~np.isnan(scores[:, :, 0])
        weighted = member.weight * member.own_calibration(scores[mapped]).astype(np.float64)
        total = weighted if total is None else total + weighted
    average[mapped] = total
    return average


def _trimmed(pixels: Pixels, beyond: int) -> Pixels:
    """The pixels without the outermost ``beyond`` rows and columns on each side."""
    rows, cols = pixels.valid.shape
    inner = slice(beyond, rows - beyond), slice(beyond, cols - beyond)
    return Pixels(pixels.values[inner], pixels.valid[inner])


def _classify_tile(model: TrainedModel, pixels: Pixels, chosen: Mask, scores: npt.NDArray[np.float32]) -> None:
    """Write the scores (h, w, n) of the chosen pixels (h, w) of a tile, which is given with its halo."""
    import torch

    valid, network = pixels.valid, model.module
    white = torch.from_numpy(model.preprocessing.transform(pixels.values, valid))
    components = white.to(next(network.parameters()).device)  # (h + D - 1, w + D - 1, C)
    if isinstance(network, WindowForward) and valid.all():  # shares work between neighbouring patches
        with torch.inference_mode():
            scores[chosen] = model.confidences(network.over_window(components)).float().cpu().numpy()[chosen]
        return
    views = components.unfold(0, model.patch, 1).unfold(1, model.patch, 1)  # (h, w, C, D, D), without copying
    patches = views.permute(0, 1, 3, 4, 2)  # (h, w, D, D, C)
    for r0 in range(0, len(chosen), STRIP):
        strip = slice(r0, min(r0 + STRIP, len(chosen)))
        if not chosen[strip].any():
            continue
        batch = patches[strip].flatten(0, 1)  # (B, D, D, C)
        if not valid.all():
            # A strip of one row is flattened to a view, in which patches overlap and must not be written to.
            batch = _reflect_patches(batch.contiguous(), valid[strip.start : strip.stop + model.patch - 1], model.patch)
        with torch.inference_mode(), kernel_threads(network):
            confidences = model.confidences(network(batch)).float().cpu().numpy()  # (B, n)
        scores[strip][chosen[strip]] = confidences.reshape(*chosen[strip].shape, -1)[chosen[strip]]


def _reflect_patches(patches: Tensor, valid: Mask, patch: int) -> Tensor:
    """Replace invalid pixels in the patches (B, D, D, C) of a strip by their mirror image in the patch.

    ``valid`` is that of the strip with its halo, (h + D - 1, w + D - 1).
    """
    import torch

    is_valid = sliding_window_view(valid, (patch, patch)).reshape(-1, patch, patch)  # (B, D, D), a copy
    incomplete = np.flatnonzero(~is_valid.all(axis=(1, 2)) & is_valid[:, patch // 2, patch // 2])
    if incomplete.size:
        spectra = patches[incomplete].flatten(1, 2)  # (T, D*D, C)
        sources = (
            torch.from_numpy(reflect_invalid(is_valid[incomplete])).to(patches.device)[:, :, None].expand_as(spectra)
        )
        patches[incomplete] = spectra.gather(1, sources).view(-1, *patches.shape[1:])
    return patches


def _classify_compiled(
    network: CompiledConvCapsNet, components: npt.NDArray[np.float32], valid: Mask, mapped: Mask
) -> npt.NDArray[np.float32]:
    """Scores (N, n) of the mapped pixels (h, w) of a window (h + D - 1, w + D - 1, C), by indices of their patches.

    The lengths of class capsules are scores from 0 to 1 as they are.
    """
    sizes = network.sizes
    side, across = np.arange(sizes.patch), components.shape[1]
    offsets = (side[:, None] * across + side).ravel()  # (D*D,) flat index of a patch's pixels from its first
    rows, cols = np.nonzero(mapped)
    first = rows * across + cols
    spectra, is_valid = components.reshape(-1, sizes.bands), valid.ravel()
    complete = bool(valid.all())
    scores = np.empty((first.size, sizes.classes), dtype=np.float32)
    for start in range(0, first.size, _CHUNK):
        places = (first[start : start + _CHUNK, None] + offsets).astype(np.int32)  # (N, D*D)
        if not complete:
            reflect_places(places, is_valid, sizes.patch)
        scores[start : start + _CHUNK] = network.lengths(spectra, places)
    return scores
