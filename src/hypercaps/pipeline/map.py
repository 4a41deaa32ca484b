"""A map of any size, in files: windows that fit into memory, what is finished kept, rasters made of it at the end."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps import __version__
from hypercaps.classifier import ConvCapsClassifier
from hypercaps.compute.devices import resident_memory
from hypercaps.data.labels import MAX_LABEL, Labels, Legend, LegendEntry
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import plan_windows, thinning
from hypercaps.data.window import Window
from hypercaps.errors import ClusterError, HypercapsError, warn_data
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import (
    MappedWindow,
    Mask,
    OnProgress,
    bytes_per_pixel,
    check_mask,
    report_without_class,
)
from hypercaps.io.writers.atomic import placing
from hypercaps.io.writers.cog import Placement, RasterKind, write_cog
from hypercaps.io.writers.legend_files import legend_files
from hypercaps.io.writers.map_files import MapFiles
from hypercaps.io.writers.partial_map import PartialMap, check_partial
from hypercaps.models.registry import get_method
from hypercaps.report.plots import LONGEST_SIDE, map_picture

MEMORY = 1_000_000_000  # bytes, when nobody says
_STEP = 0.004  # of confidence kept in a byte: 0 to 250
_UNKNOWN = 255  # no confidence, in a byte
_GREY = (128, 128, 128)  # unsure
_FIXED = 60_000_000  # bytes that a map takes beside its windows: GDAL's cache, strips, buffers
_FEWEST_PIXELS = 64 * 64  # of a window with its halo: below that, halos are most of the work

# Windows that are left -> the classified ones, in the same order; those without a wanted pixel may be left out.
Unsure = tuple[float, int]  # the confidence below which a pixel is, and its number in the map then
Mapper = Callable[[list[Window]], Iterator[MappedWindow]]


def check_calibrated(model: TrainedModel, files: MapFiles) -> None:
    """Refuse at once what a model without calibration can't say."""
    for option, value in (("coverage", files.coverage), ("reject", files.reject)):
        if value is not None:
            model.calibrated(f"--{option}")


def unsure_label(legend: Legend) -> int:
    """The number of unsure pixels: the first after the classes, or, at the end of numbers, the highest that is free."""
    label = int(legend.labels.max()) + 1
    return label if label <= MAX_LABEL else int(np.setdiff1d(np.arange(1, MAX_LABEL), legend.labels).max())


def shown_legend(legend: Legend, reject: float | None) -> Legend:
    """The legend of a map: with one entry more where pixels may be unsure."""
    if reject is None:
        return legend
    return Legend(tuple(sorted((*legend, LegendEntry(unsure_label(legend), "unsure", _GREY)))))


def make_map(
    classifier: ConvCapsClassifier,
    scene: Scene,
    files: MapFiles,
    *,
    model_sha256: str,
    only: Mask | None = None,
    memory: int = MEMORY,
    resume: bool = False,
    truth: Labels | None = None,
    mapper: Mapper | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Map the scene, or what is marked in ``only``, into files: all of them or none.

    Finished windows go to ``files.partial``. It stays when the program is killed or stopped, and ``resume`` goes on
    with it; the files are then the same to the byte. ``mapper`` computes windows elsewhere.
    """
    model = classifier.model_
    check_calibrated(model, files)
    check_partial(files.partial, resume=resume)
    check_mask(scene, only)
    model.check_fits(scene)
    if resident_memory() + _FIXED > memory:
        held = f"hypercaps itself holds {resident_memory() / 1e6:.0f} MB"
        warn_data(f"{held}, so a map can't be made within {memory / 1e6:.0f} MB: small windows are taken")
    pixels = pixels_within(memory, classifier, scene)
    windows = plan_windows(scene, patch=model.patch, pixels=pixels)
    if mapper is None:
        with_scores = files.probabilities is not None
        mapper = functools.partial(
            classifier.map_windows, scene, only=only, with_scores=with_scores, coverage=files.coverage
        )
    about = _about(classifier, scene, files, only, model_sha256)
    layers = len(model.legend) if files.probabilities else 0
    sets = files.sets is not None
    with PartialMap(files.partial, about, scene.shape[:2], classes=layers, sets=sets, resume=resume) as partial:
        try:
            unsure = None if files.reject is None else (files.reject, unsure_label(model.legend))
            _fill(partial, windows, mapper, unsure, on_progress)
            _report(partial, scene, only)
            _write(partial, classifier, scene, files, model_sha256, truth)
        except ClusterError:  # what is finished is worth going on with
            raise
        except HypercapsError:  # going on would end the same way
            partial.remove()
            raise
        partial.remove()


def pixels_within(memory: int, classifier: ConvCapsClassifier, scene: Scene) -> int:
    """Pixels of a window for which ``memory`` bytes suffice, all that the program holds already included."""
    room = memory - resident_memory() - _FIXED
    return max(_FEWEST_PIXELS, room // bytes_per_pixel(classifier.model_, scene))


def _about(
    classifier: ConvCapsClassifier, scene: Scene, files: MapFiles, only: Mask | None, model_sha256: str
) -> dict[str, Any]:
    """All that a map's numbers depend on, to know it again."""
    return {
        "version": __version__,
        "model": model_sha256,
        "device": [classifier.device, classifier.precision],
        "scene": [scene.name, scene.fingerprint()],
        "mask": None if only is None else hashlib.sha256(np.packbits(only).tobytes()).hexdigest(),
        "probabilities": files.probabilities is not None,
        "coverage": files.coverage,
        "reject": files.reject,
    }


def _fill(
    partial: PartialMap,
    windows: Iterable[Window],
    mapper: Mapper,
    unsure: Unsure | None,
    on_progress: OnProgress | None,
) -> None:
    left = partial.unfinished(windows)
    total = partial.shape[0] * partial.shape[1]
    done = total - sum(_size(at) for at in left)
    if on_progress is not None:
        on_progress(done, total)
    waiting = iter(left)

    def finish(at: Window, found: MappedWindow | None) -> None:
        nonlocal done
        partial.write(at, _layers(at, found, partial.layers, unsure))
        done += _size(at)
        if on_progress is not None:
            on_progress(done, total)

    for found in mapper(left):
        for at in waiting:
            if at == found.at:
                finish(at, found)
                break
            finish(at, None)  # nothing in it was wanted
    for at in waiting:
        finish(at, None)


def _size(at: Window) -> int:
    return (at.r1 - at.r0) * (at.c1 - at.c0)


def _layers(
    at: Window, found: MappedWindow | None, layers: dict[str, int], unsure: Unsure | None
) -> dict[str, npt.NDArray[Any]]:
    shape = (at.r1 - at.r0, at.c1 - at.c0)
    if found is None:
        blank: dict[str, npt.NDArray[Any]] = {
            "classes": np.zeros(shape, np.int16),
            "confidence": np.full(shape, np.nan, np.float32),
        }
        if "probabilities" in layers:
            blank["probabilities"] = np.full((*shape, layers["probabilities"]), np.nan, np.float32)
        if "sets" in layers:
            blank["sets"] = np.zeros(shape, np.uint8)
        return blank
    classes = found.classes
    if unsure is not None:
        least, label = unsure
        classes = np.where(found.confidence < least, np.int16(label), classes)  # NaN, no class, is below nothing
    filled: dict[str, npt.NDArray[Any]] = {"classes": classes, "confidence": found.confidence}
    if "probabilities" in layers:
        assert found.scores is not None
        filled["probabilities"] = found.scores
    if "sets" in layers:
        assert found.sets is not None
        filled["sets"] = found.sets
    return filled


def _report(partial: PartialMap, scene: Scene, only: Mask | None) -> None:
    invalid = 0
    for r0 in range(0, scene.rows, 1024):
        r1 = min(r0 + 1024, scene.rows)
        unknown = partial.read("classes", r0, r1) == 0
        invalid += int((unknown if only is None else unknown & only[r0:r1]).sum())
    report_without_class(scene, invalid, scene.rows * scene.cols if only is None else int(only.sum()))


def _write(
    partial: PartialMap,
    classifier: ConvCapsClassifier,
    scene: Scene,
    files: MapFiles,
    model_sha256: str,
    truth: Labels | None,
) -> None:
    """The files of a finished map."""
    legend, grid = shown_legend(classifier.model_.legend, files.reject), Placement.of(scene)
    kinds = _kinds(classifier, scene, files, model_sha256)
    for path in files.all(legend):  # of an attempt that was killed at this point
        for old in path.parent.glob(f".{_plain(path.name)}.????????.partial*"):
            old.unlink(missing_ok=True)
    with placing(files.all(legend)) as temporary:
        for path, kind, layer in kinds:
            write_cog(temporary[path], kind, grid, _strips_of(partial, scene, layer, kind))
        if files.classes is not None:
            for path, content in legend_files(files.classes, legend).items():
                temporary[path].write_bytes(content)
        if files.picture is not None:
            title = get_method(classifier.method).title
            temporary[files.picture].write_bytes(_picture(partial, scene, legend, truth, title))


def _plain(name: str) -> str:
    """A file name in which no letter means a pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _kinds(
    classifier: ConvCapsClassifier, scene: Scene, files: MapFiles, model_sha256: str
) -> list[tuple[Path, RasterKind, str]]:
    """What each raster holds, and of which layer of the partial map it is made."""
    model = classifier.model_
    legend = shown_legend(model.legend, files.reject)
    tags = {
        "TIFFTAG_SOFTWARE": f"hypercaps {__version__}",
        "HYPERCAPS_VERSION": __version__,
        "HYPERCAPS_MODEL_SHA256": model_sha256,
        "HYPERCAPS_METHOD": model.method,
        "HYPERCAPS_SCENE": scene.name,
        "HYPERCAPS_CALIBRATION": "none" if model.calibration is None else model.calibration.kind,
    }
    names = {f"CLASS_{entry.label}": entry.name for entry in legend}
    found = []
    if files.classes is not None:
        dtype = "uint8" if int(legend.labels.max()) <= np.iinfo(np.uint8).max else "uint16"
        colors = {0: (0, 0, 0, 0)} | {entry.label: (*entry.color, 255) for entry in legend}
        rejected = {} if files.reject is None else {"HYPERCAPS_REJECT": str(files.reject)}
        kind = RasterKind(dtype, 0, "mode", ("class",), colors=colors, tags=tags | rejected, band_tags=names)
        found.append((files.classes, kind, "classes"))
    if files.confidence is not None:
        kind = (
            RasterKind("float32", float("nan"), "average", ("confidence",), tags=tags)
            if files.confidence_dtype == "float32"
            else RasterKind("uint8", _UNKNOWN, "average", ("confidence",), scale=_STEP, tags=tags)
        )
        found.append((files.confidence, kind, "confidence"))
    if files.probabilities is not None:
        kind = RasterKind("float32", float("nan"), "average", tuple(entry.name for entry in model.legend), tags=tags)
        found.append((files.probabilities, kind, "probabilities"))
    if files.sets is not None:
        covering = tags | {"HYPERCAPS_COVERAGE": str(files.coverage)}
        kind = RasterKind("uint8", 0, "average", ("classes in the set",), tags=covering)
        found.append((files.sets, kind, "sets"))
    return found


def _strips_of(partial: PartialMap, scene: Scene, name: str, kind: RasterKind) -> Callable[[int, int], Any]:
    """Rows of a layer of the map as they are to be written: (bands, h, columns)"""

    def strip(r0: int, r1: int) -> npt.NDArray[Any]:
        planes = [_on_ground(partial, scene, name, r0, r1, layer) for layer in range(len(kind.bands))]
        stored = np.stack(planes)
        if kind.dtype == "uint8" and name == "confidence":
            in_steps = np.round(np.nan_to_num(stored, nan=_UNKNOWN * _STEP) / _STEP)
            return np.where(np.isnan(stored), _UNKNOWN, in_steps).astype(np.uint8)
        return stored.astype(kind.dtype)

    return strip


def _on_ground(partial: PartialMap, scene: Scene, name: str, r0: int, r1: int, layer: int = 0) -> npt.NDArray[Any]:
    """Rows r0 to r1 of the map's grid, through the scene's lookup table if it has one."""
    if scene.lookup is None:
        return partial.read(name, r0, r1, layer)
    rows, cols = scene.lookup.rows[r0:r1], scene.lookup.cols[r0:r1]
    seen = rows >= 0
    dtype = {"classes": np.int16, "sets": np.uint8}.get(name, np.float32)
    ground = np.full(rows.shape, np.nan if dtype is np.float32 else 0, dtype=dtype)
    if seen.any():
        first, last = int(rows[seen].min()), int(rows[seen].max()) + 1
        ground[seen] = partial.read(name, first, last, layer)[rows[seen] - first, cols[seen]]
    return ground


def _picture(partial: PartialMap, scene: Scene, legend: Legend, truth: Labels | None, title: str) -> bytes:
    """The map, thinned to what a picture shows."""
    height, width = Placement.of(scene).shape
    step = thinning((height, width), LONGEST_SIDE)
    rows = [_on_ground(partial, scene, "classes", r, r + 1)[0, ::step] for r in range(0, height, step)]
    if truth is not None and scene.lookup is None:
        truth = Labels(truth.array[::step, ::step], truth.legend, truth.name)
    return map_picture(np.stack(rows), legend, truth=None if scene.lookup is not None else truth, title=title)
