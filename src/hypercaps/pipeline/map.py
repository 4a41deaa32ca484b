"""Map a scene of any size into files: in windows that fit into memory, resumable after an interruption."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module

import numpy as np

from hypercaps import __version__
from hypercaps.classifier import ConvCapsClassifier
from hypercaps.compute.memory import resident_memory
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import plan_windows
from hypercaps.data.window import Window
from hypercaps.errors import ClusterError, HypercapsError, warn_data
from hypercaps.inference.predict import OnProgress, bytes_per_pixel, check_mask
from hypercaps.inference.scene_shift import PreparedScene
from hypercaps.io.writers.folders import folders_for
from hypercaps.io.writers.partial_map import PartialLayer, PartialMap, check_partial
from hypercaps.pipeline.fill_map import Mapper, check_classes, fill, refuse_changed_scene
from hypercaps.pipeline.map_context import MapContext, window_outputs
from hypercaps.pipeline.map_rasters import write_rasters
from hypercaps.pipeline.requests import MapRequest

_FIXED = 60_000_000  # bytes used in addition to the windows: GDAL's cache, strips, buffers
_WRITER = 40_000_000  # bytes of rasterio and GDAL themselves
_FEWEST_PIXELS = 64 * 64  # of a window with its halo: in smaller ones most of the work is spent on the halo


def make_map(
    classifier: ConvCapsClassifier,
    scene: Scene | PreparedScene,
    request: MapRequest,
    *,
    model_sha256: str,
    truth: Labels | None = None,
    mapper: Mapper | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Map the scene into the files of the request, all of them or none; their folders are created.

    Finished windows are kept in ``request.partial`` if the program is killed or stopped, and ``request.resume``
    continues with them; the files are then the same to the byte. ``mapper`` classifies windows elsewhere; ``truth``
    is drawn beside the map in its picture.
    """
    prepared = PreparedScene.of(scene)
    scene = prepared.scene
    context = MapContext(classifier.model_, prepared, request, model_sha256)
    request.check_model(context.model)
    check_partial(request.partial, resume=request.resume)
    check_mask(scene, request.mask)
    context.model.check_fits(scene)
    windows = _plan(classifier, context)
    if mapper is None:
        outputs = asdict(window_outputs(request))
        mapper = partial(classifier.map_windows, scene, only=request.mask, **outputs)
    with folders_for(request.outputs()), _open_partial(classifier, context) as unfinished:
        refuse_changed_scene(unfinished, context)
        try:
            with _writer_imported_beside():
                fill(unfinished, windows, mapper, context, on_progress)
            check_classes(unfinished, context)
            write_rasters(unfinished, context, truth, memory=_free_memory(request.memory))
        except ClusterError:  # the finished windows are worth resuming
            raise
        except HypercapsError:  # a failed map leaves no file behind
            unfinished.remove()
            raise
        unfinished.remove()


@contextmanager
def _writer_imported_beside() -> Iterator[None]:
    """Import what writes the rasters, rasterio and GDAL, while the kernels compute: they don't need the interpreter."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(import_module, "hypercaps.io.writers.cog")  # if it fails, so does the import that uses it
        yield


def _plan(classifier: ConvCapsClassifier, context: MapContext) -> list[Window]:
    memory = context.request.memory
    if _free_memory(memory) < 0:
        held = f"hypercaps itself holds {resident_memory() / 1e6:.0f} MB"
        warn_data(f"{held}, so a map can't be made within {memory / 1e6:.0f} MB: small windows are taken")
    pixels = pixels_within(memory, classifier, context.scene)
    return plan_windows(context.scene, patch=2 * context.halo + 1, pixels=pixels)


def _beside_windows() -> int:
    """Bytes that this process will use in addition to the windows."""
    return _FIXED if "rasterio" in sys.modules else _FIXED + _WRITER


def pixels_within(memory: int, classifier: ConvCapsClassifier, scene: Scene) -> int:
    """Largest window, in pixels, with which the process stays within ``memory`` bytes."""
    return max(_FEWEST_PIXELS, _free_memory(memory) // bytes_per_pixel(classifier.model_, scene))


def _free_memory(memory: int) -> int:
    """How many of ``memory`` bytes this process has not used yet; may be negative."""
    return memory - resident_memory() - _beside_windows()


def _open_partial(classifier: ConvCapsClassifier, context: MapContext) -> PartialMap:
    request, scene, classes = context.request, context.scene, len(context.model.legend)
    layers = [
        PartialLayer(layer.name, np.dtype(layer.dtype), classes if layer.per_class else 1, layer.blank)
        for layer in context.layers
    ]
    mask = None if request.mask is None else hashlib.sha256(np.packbits(request.mask).tobytes()).hexdigest()
    depends_on = {  # everything that the values of a map depend on: only the same map is resumed
        "version of hypercaps": __version__,
        "model": context.model_sha256,
        "device or precision": [classifier.device, classifier.precision],
        "scene": [scene.name, scene.fingerprint()],
        "mask": mask,
        "coverage": request.coverage,
        "reject": request.reject,
        "unknown": request.unknown,
    }
    return PartialMap(request.partial, depends_on, scene.shape[:2], layers, resume=request.resume)
