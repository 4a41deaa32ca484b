"""Write the rasters and the picture of a finished partial map, all of them or none."""

from __future__ import annotations

import functools
import glob
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import thinning
from hypercaps.io.writers.atomic import write_all_or_nothing
from hypercaps.io.writers.partial_map import PartialMap
from hypercaps.io.writers.raster_kind import RasterKind
from hypercaps.pipeline.layers import CLASSES, FAMILIARITY
from hypercaps.pipeline.map_context import MapContext, unknown_entry

_UNFAMILIAR = 0.02  # share of known ground that a picture shows as unlike any label


def write_rasters(partial: PartialMap, context: MapContext, truth: Labels | None = None, *, memory: int) -> None:
    """Write the files of the request, within ``memory`` bytes; the picture shows ``truth`` beside the map."""
    from hypercaps.io.writers.cog import write_cog  # imports rasterio

    request, scene = context.request, context.scene
    paths = request.outputs()
    for path in paths:  # temporary files of an attempt that was killed while writing
        for old in path.parent.glob(f".{glob.escape(path.name)}.????????.partial*"):
            old.unlink(missing_ok=True)
    with write_all_or_nothing(paths) as temporary:
        for layer in context.layers:
            if layer.name in request.files:
                kind = layer.raster(context)
                strips = functools.partial(_strip, partial, scene, layer.name, kind)
                write_cog(temporary[request.files[layer.name]], kind, scene.map_grid, strips, memory)
        for path, content in request.legend_files(context.legend).items():
            temporary[path].write_bytes(content)
        if request.picture is not None:
            temporary[request.picture].write_bytes(_picture(partial, context, truth))


def _strip(partial: PartialMap, scene: Scene, name: str, kind: RasterKind, r0: int, r1: int) -> npt.NDArray[Any]:
    """Rows r0 to r1 of a layer as they are stored: (bands, r1 - r0, columns)"""
    from hypercaps.io.writers.cog import encode

    bands = [_map_rows(partial, scene, name, r0, r1, band) for band in range(len(kind.bands))]
    return encode(np.stack(bands), kind)


def _map_rows(partial: PartialMap, scene: Scene, name: str, r0: int, r1: int, band: int = 0) -> npt.NDArray[Any]:
    """Rows r0 to r1 of the map's grid; a swath is projected through its lookup table."""
    if scene.lookup is None:
        return partial.read(name, r0, r1, band)
    rows, cols = scene.lookup.rows[r0:r1], scene.lookup.cols[r0:r1]
    projected = partial.layers[name].blank_array(rows.shape)
    has_pixel = rows >= 0
    if has_pixel.any():
        first, last = int(rows[has_pixel].min()), int(rows[has_pixel].max()) + 1
        projected[has_pixel] = partial.read(name, first, last, band)[rows[has_pixel] - first, cols[has_pixel]]
    return projected


def _picture(partial: PartialMap, context: MapContext, truth: Labels | None) -> bytes:
    """PNG of the classes, thinned to the size of a picture; ground that is unlike any label is marked in it."""
    from hypercaps.report.map_pictures import LONGEST_SIDE, map_picture  # imports matplotlib

    scene, request, marked = context.scene, context.request, None
    step = thinning(scene.map_grid.shape, LONGEST_SIDE)
    classes = _thinned(partial, scene, CLASSES.name, step)
    if FAMILIARITY.name in request.files and request.unknown is None:
        unfamiliar = _thinned(partial, scene, FAMILIARITY.name, step) < _UNFAMILIAR
        if unfamiliar.any():
            marked = unknown_entry(context.model.legend, "unlike any label")
            classes[unfamiliar] = marked.label
    if scene.lookup is not None:
        truth = None  # labels are on the grid of the swath, not of the map
    elif truth is not None:
        truth = Labels(truth.array[::step, ::step], truth.legend, truth.name)
    return map_picture(classes, context.legend, truth=truth, title=context.model.heading, marked=marked)


def _thinned(partial: PartialMap, scene: Scene, name: str, step: int) -> npt.NDArray[Any]:
    """Every ``step``-th pixel of a layer, on the map's grid."""
    height = scene.map_grid.shape[0]
    return np.stack([_map_rows(partial, scene, name, r, r + 1)[0, ::step] for r in range(0, height, step)])
