"""Classify the windows of a map and keep them in the partial map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hypercaps.data.window import Window
from hypercaps.errors import OutputError
from hypercaps.inference.predict import MappedWindow, OnProgress, report_without_class
from hypercaps.io.writers.partial_map import PartialMap
from hypercaps.pipeline.layers import CLASSES
from hypercaps.pipeline.map_context import MapContext
from hypercaps.training.patches import read_with_halo

# Unfinished windows -> classified windows in the same order; windows without a pixel of the mask may be skipped.
Mapper = Callable[[list[Window]], Iterator[MappedWindow]]
_ROWS = 1024  # rows that are counted at once


def refuse_changed_scene(partial: PartialMap, context: MapContext) -> None:
    """Refuse to continue a map if the pixels that its finished windows were made from are no longer the same."""
    scene, halo = context.scene, context.halo
    for at, source, _ in partial.finished:
        if source and read_with_halo(scene, at, halo).checksum() != source:
            where = f"in rows {at.r0} to {at.r1 - 1}, columns {at.c0} to {at.c1 - 1}"
            raise OutputError(
                f"scene {scene.name!r} has changed since {partial.path} was begun ({where}): give the scene as it was, "
                "or delete that file to map from the start"
            )


def fill(
    partial: PartialMap, windows: Iterable[Window], mapper: Mapper, context: MapContext, on_progress: OnProgress | None
) -> None:
    """Classify the windows that are not finished and write their layers."""
    unfinished = partial.unfinished(windows)
    total = partial.shape[0] * partial.shape[1]
    done = total - sum(_size(at) for at in unfinished)
    if on_progress is not None:
        on_progress(done, total)
    for at, window in _match(unfinished, mapper(unfinished)):
        if window is None:
            partial.write_blank(at)
        else:
            values = {layer.name: layer.compute(window, context) for layer in context.layers}
            partial.write(at, values, window.source)
        done += _size(at)
        if on_progress is not None:
            on_progress(done, total)


def _match(windows: list[Window], mapped: Iterator[MappedWindow]) -> Iterator[tuple[Window, MappedWindow | None]]:
    """Each window with its result; None if the mapper skipped it."""
    waiting = iter(windows)
    for window in mapped:
        for at in waiting:
            if at == window.at:
                yield at, window
                break
            yield at, None
    for at in waiting:
        yield at, None


def _size(at: Window) -> int:
    return (at.r1 - at.r0) * (at.c1 - at.c0)


def check_classes(partial: PartialMap, context: MapContext) -> None:
    """Warn of pixels of the mask that got no class; refuse a map without any class, or with one of no legend."""
    scene, mask = context.scene, context.request.mask
    invalid = 0
    is_known = np.zeros(1 << 16, dtype=bool)
    is_known[[0, *context.legend.labels]] = True
    for r0 in range(0, scene.rows, _ROWS):
        r1 = min(r0 + _ROWS, scene.rows)
        classes = partial.read(CLASSES.name, r0, r1)
        if not is_known[classes.view("<u2")].all():
            raise OutputError(
                f"{partial.path} was damaged while the map was made, and was deleted: map again, and check the disk"
            )
        blank = classes == 0
        invalid += int((blank if mask is None else blank & mask[r0:r1]).sum())
    report_without_class(scene, invalid, scene.rows * scene.cols if mask is None else int(mask.sum()))
