"""A map whose windows are classified by the workers of a cluster, the same to the last bit as in one process.

Every worker reads the model and opens the scene itself, once for each map.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hypercaps.cluster.pool import Cluster, here
from hypercaps.devices import Device
from hypercaps.errors import ClusterError, HypercapsError, ModelFileError
from hypercaps.io import catalog
from hypercaps.io.open import open_scene
from hypercaps.mapping import (
    WINDOW,
    ClassMap,
    Mask,
    OnProgress,
    best_classes,
    check_mask,
    classify_window,
    tell_of_invalid,
    whole_tiles,
)
from hypercaps.modelfile import TrainedModel, read_model
from hypercaps.patches import read_with_halo
from hypercaps.scene import Scene, Window, tile_windows

T = TypeVar("T")

_PROBE = 8  # side of the windows by which two readings of a scene are compared


@dataclass(frozen=True)
class Opening:
    """How a worker opens the scene again: what ``open_scene`` takes, with paths that hold in any folder."""

    spec: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: str, **options: Any) -> Opening:
        return cls(absolute(spec), options)

    def open(self) -> Scene:
        return open_scene(self.spec, **self.options)


@dataclass(frozen=True)
class MapJob:
    """What all windows of a map have in common; small, because it goes with each of them."""

    model: str  # the file's path
    model_digest: str
    opening: Opening
    scene_digest: str
    device: str
    precision: str
    token: str  # another one for every map: files may change between two

    @classmethod
    def of(
        cls, model: Path, opening: Opening, scene: Scene, *, device: str = "cpu", precision: str = "float32"
    ) -> MapJob:
        """``scene`` is what ``opening`` gave on this machine: workers must see the same."""
        path = absolute(str(model))
        return cls(path, _digest_of_file(Path(path)), opening, probe_digest(scene), device, precision, uuid.uuid4().hex)


class MappedWindow(NamedTuple):
    """What a worker made of a window."""

    found: ClassMap  # of the window
    invalid: int  # how many of the wanted pixels hold NaN, infinity or nodata
    scores: npt.NDArray[np.float32] | None  # (h, w, n) if they are wanted; NaN where there is no class


def classify_windows_on(
    cluster: Cluster,
    job: MapJob,
    windows: Iterable[Window],
    *,
    only: Mask | None = None,  # (rows, columns) of the scene
    with_scores: bool = False,
) -> Iterator[tuple[Window, MappedWindow]]:
    """Each window and what became of it, in their order; ``windows`` are taken as there is room for them.

    As in ``mapping``, windows must be made of whole tiles.
    """
    taken: deque[Window] = deque()

    def parts() -> Iterator[_Part]:
        for at in windows:
            taken.append(at)
            mask = None if only is None or only[at.rows, at.cols].all() else np.packbits(only[at.rows, at.cols])
            yield _Part(job, at, mask, with_scores)

    for mapped in cluster.map_in_order(_classify, parts()):
        yield taken.popleft(), mapped


def map_scene_on(
    cluster: Cluster,
    job: MapJob,
    model: TrainedModel,
    scene: Scene,
    *,
    only: Mask | None = None,
    window: int = WINDOW,
    on_progress: OnProgress | None = None,
) -> ClassMap:
    """What ``mapping.map_scene`` gives, by the workers of a cluster."""
    model.check_fits(scene)
    check_mask(only, scene)
    classes = np.zeros(scene.shape[:2], dtype=np.int16)
    confidence = np.full(scene.shape[:2], np.nan, dtype=np.float32)
    windows = [
        at for at in tile_windows(scene.whole, whole_tiles(window)) if only is None or only[at.rows, at.cols].any()
    ]
    wanted = scene.rows * scene.cols if only is None else int(only.sum())
    total = sum((at.r1 - at.r0) * (at.c1 - at.c0) for at in windows)
    done = invalid = 0
    for at, mapped in classify_windows_on(cluster, job, windows, only=only):
        classes[at.rows, at.cols], confidence[at.rows, at.cols] = mapped.found
        invalid += mapped.invalid
        done += mapped.found.classes.size
        if on_progress is not None:
            on_progress(done, total)
    tell_of_invalid(scene, invalid, wanted)
    return ClassMap(classes, confidence)


def absolute(spec: str) -> str:
    """A name of the catalogue and an address as they are, a path so that it holds in any folder."""
    if spec in catalog.names() or "://" in spec:
        return spec
    return str(Path.cwd() / Path(spec).expanduser())


def probe_digest(scene: Scene) -> str:
    """A fingerprint of shape, wavelengths and the values at the corners and in the middle: quick for any size."""
    sha = hashlib.sha256(repr(scene.shape).encode())
    if scene.wavelengths is not None:
        sha.update(np.asarray(scene.wavelengths, dtype="<f8").tobytes())
    last_row, last_col = max(0, scene.rows - _PROBE), max(0, scene.cols - _PROBE)
    for r in (0, last_row // 2, last_row):
        for c in (0, last_col // 2, last_col):
            pixels = scene.read(slice(r, r + _PROBE), slice(c, c + _PROBE))
            sha.update(np.packbits(pixels.valid).tobytes())
            sha.update(np.where(pixels.valid[:, :, None], pixels.values, 0).astype("<f4").tobytes())
    return sha.hexdigest()


@dataclass(frozen=True)
class _Part:
    job: MapJob
    at: Window
    mask: npt.NDArray[np.uint8] | None  # eight pixels a byte; None: all of them
    with_scores: bool


@dataclass(frozen=True)
class _Tools:
    """What a worker keeps for the windows of one map."""

    model: TrainedModel
    scene: Scene
    device: Device


_tools: dict[str, _Tools] = {}  # of the last map
_getting_ready = threading.Lock()  # a worker may have several threads


def _classify(part: _Part) -> MappedWindow:
    """What a worker does with a window."""
    tools = _tools_for(part.job)
    at, model = part.at, tools.model
    shape = at.r1 - at.r0, at.c1 - at.c0
    mask = np.ones(shape, dtype=bool)
    if part.mask is not None:
        mask = np.unpackbits(part.mask, count=mask.size).astype(bool).reshape(shape)
    pixels = read_with_halo(tools.scene, at, model.patch // 2)
    with tools.device.arithmetic():
        scores, invalid = classify_window(model, pixels, mask)
    return MappedWindow(best_classes(scores, model.legend), invalid, scores if part.with_scores else None)


def _tools_for(job: MapJob) -> _Tools:
    with _getting_ready:
        if job.token not in _tools:
            tools = _get_ready(job)
            _tools.clear()
            _tools[job.token] = tools
        return _tools[job.token]


def _get_ready(job: MapJob) -> _Tools:
    """Read the model and open the scene, and see that they are those of the machine that asks."""
    path = _same("model", job.model, lambda: Path(job.model), _digest_of_file, job.model_digest)
    scene = _same("scene", job.opening.spec, job.opening.open, probe_digest, job.scene_digest)
    device = Device(job.device, job.precision)
    model = read_model(path)
    model.network.to(device.name)
    return _Tools(model, scene, device)


def _same(what: str, place: str, get: Callable[[], T], digest_of: Callable[[T], str], expected: str) -> T:
    hint = "every worker needs the same files under the same paths, most simply by a shared file system"
    try:
        found = get()
        digest = digest_of(found)
    except HypercapsError as error:
        raise ClusterError(f"{here()} can't open the {what} {place} ({error}): {hint}") from error
    if digest != expected:
        raise ClusterError(f"{here()} finds another {what} at {place} than this machine: {hint}")
    return found


def _digest_of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError((error.strerror or str(error)).lower()) from error
