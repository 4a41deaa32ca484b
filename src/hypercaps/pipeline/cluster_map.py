"""Classify the windows of a map on the workers of a cluster, the same to the last bit as in one process.

Every worker reads the model and opens the scene itself, once per map.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hypercaps.compute.cluster.pool import Cluster, here
from hypercaps.compute.devices import Device
from hypercaps.data.adaptation import Adaptation
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.errors import ClusterError, HypercapsError
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import read_model
from hypercaps.inference.predict import CLASSES_ONLY, MappedWindow, Mask, WindowOutputs, map_window
from hypercaps.inference.scene_shift import PreparedScene
from hypercaps.io.open import Opening
from hypercaps.io.paths import absolute
from hypercaps.io.writers.atomic import file_sha256
from hypercaps.pipeline.fill_map import Mapper
from hypercaps.pipeline.map_context import window_outputs
from hypercaps.pipeline.requests import MapRequest

T = TypeVar("T")


@dataclass(frozen=True)
class MapJob:
    """What all windows of a map have in common; small, because it is sent with each of them."""

    model: str  # path of the model file
    model_sha256: str
    opening: Opening
    resample: bool  # to the model's bands
    adaptation: Adaptation
    scene_fingerprint: str
    device: str
    precision: str
    token: str  # unique for each map: files may change between two maps

    @classmethod
    def of(
        cls,
        model: Path,
        opening: Opening,
        scene: Scene | PreparedScene,
        *,
        device: str = "cpu",
        precision: str = "float32",
    ) -> MapJob:
        """``scene`` is what ``opening`` gives on this machine, as the model is to see it: workers must see the same."""
        path = absolute(str(model))
        sha256 = file_sha256(Path(path))
        prepared = PreparedScene.of(scene)
        fingerprint = prepared.scene.fingerprint()
        changes = prepared.is_resampled, prepared.adaptation
        return cls(path, sha256, opening, *changes, fingerprint, device, precision, uuid.uuid4().hex)


def cluster_mapper(cluster: Cluster, job: MapJob, request: MapRequest) -> Mapper:
    """Classifies windows for ``make_map`` on a cluster."""
    return partial(map_windows_on, cluster, job, outputs=window_outputs(request), only=request.mask)


def map_windows_on(
    cluster: Cluster,
    job: MapJob,
    windows: Iterable[Window],
    outputs: WindowOutputs = CLASSES_ONLY,
    *,
    only: Mask | None = None,
) -> Iterator[MappedWindow]:
    """As ``predict.map_windows``: in order, without the windows that contain no pixel of ``only`` (rows, columns).

    Windows are taken from the iterable as workers become free, and must consist of whole tiles.
    """

    def tasks() -> Iterator[_Task]:
        for at in windows:
            mask = None if only is None else only[at.rows, at.cols]
            if mask is None or mask.any():
                yield _Task(job, at, None if mask is None or mask.all() else np.packbits(mask), outputs)

    return cluster.map_in_order(_classify, tasks())


@dataclass(frozen=True)
class _Task:
    job: MapJob
    at: Window
    mask: npt.NDArray[np.uint8] | None  # eight pixels per byte; None: all pixels
    outputs: WindowOutputs


@dataclass(frozen=True)
class _WorkerState:
    """What a worker keeps between the windows of one map."""

    model: TrainedModel
    scene: Scene
    device: Device


_states: dict[str, _WorkerState] = {}  # of the last map, by its token
_preparing = threading.Lock()  # a worker may have several threads


def _classify(task: _Task) -> MappedWindow:
    """Runs on a worker."""
    state, at = _state_for(task.job), task.at
    shape = at.r1 - at.r0, at.c1 - at.c0
    mask = None
    if task.mask is not None:
        mask = np.unpackbits(task.mask, count=shape[0] * shape[1]).astype(bool).reshape(shape)
    with state.device.arithmetic():
        return map_window(state.model, state.scene, at, mask, task.outputs)


def _state_for(job: MapJob) -> _WorkerState:
    with _preparing:
        if job.token not in _states:
            state = _prepare(job)
            _states.clear()
            _states[job.token] = state
        return _states[job.token]


def _prepare(job: MapJob) -> _WorkerState:
    """Read the model and open the scene; refuse if they differ from those of the machine that sends the windows."""
    path = Path(job.model)
    _open_same("model", job.model, lambda: path, file_sha256, job.model_sha256)
    model = read_model(path)

    def open_scene() -> Scene:
        scene = job.opening.open()
        return job.adaptation.apply(model.resampled(scene) if job.resample else scene)

    scene = _open_same("scene", str(job.opening), open_scene, Scene.fingerprint, job.scene_fingerprint)
    device = Device(job.device, job.precision)
    return _WorkerState(model.to(device), scene, device)


def _open_same(what: str, place: str, open_it: Callable[[], T], fingerprint: Callable[[T], str], expected: str) -> T:
    """Open a model or scene and compare its fingerprint."""
    hint = "every worker needs the same files under the same paths, most simply by a shared file system"
    try:
        opened = open_it()
        actual = fingerprint(opened)
    except (HypercapsError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ClusterError(f"{here()} can't open the {what} {place} ({reason}): {hint}") from error
    if actual != expected:
        raise ClusterError(f"{here()} finds another {what} at {place} than this machine: {hint}")
    return opened
