"""Windows of a map that are classified by the workers of a cluster, the same to the last bit as in one process.

Every worker reads the model and opens the scene itself, once for each map.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hypercaps.compute.cluster.pool import Cluster, here
from hypercaps.compute.devices import Device
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.errors import ClusterError, HypercapsError
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import read_model
from hypercaps.inference.predict import MappedWindow, Mask, map_window
from hypercaps.io.open import Opening
from hypercaps.io.paths import absolute
from hypercaps.io.writers.atomic import file_sha256

T = TypeVar("T")


@dataclass(frozen=True)
class MapJob:
    """What all windows of a map have in common; small, because it goes with each of them."""

    model: str  # the file's path
    model_sha256: str
    opening: Opening
    resample: bool  # to the model's bands
    scene_look: str
    device: str
    precision: str
    token: str  # another one for every map: files may change between two

    @classmethod
    def of(
        cls,
        model: Path,
        opening: Opening,
        scene: Scene,
        *,
        resample: bool = False,
        device: str = "cpu",
        precision: str = "float32",
    ) -> MapJob:
        """``scene`` is what ``opening`` gave on this machine, resampled if asked for: workers must see the same."""
        path = absolute(str(model))
        sha256 = file_sha256(Path(path))
        return cls(path, sha256, opening, resample, scene.fingerprint(), device, precision, uuid.uuid4().hex)


def map_windows_on(
    cluster: Cluster,
    job: MapJob,
    windows: Iterable[Window],
    *,
    only: Mask | None = None,
    with_scores: bool = False,
    coverage: float | None = None,
) -> Iterator[MappedWindow]:
    """As ``mapping.map_windows``: in their order, those that hold nothing of ``only`` (rows, columns) left out.

    Windows are taken as there is room for them, and must be made of whole tiles.
    """

    def parts() -> Iterator[_Part]:
        for at in windows:
            mask = None if only is None else only[at.rows, at.cols]
            if mask is None or mask.any():
                yield _Part(job, at, None if mask is None or mask.all() else np.packbits(mask), with_scores, coverage)

    return cluster.map_in_order(_classify, parts())


@dataclass(frozen=True)
class _Part:
    job: MapJob
    at: Window
    mask: npt.NDArray[np.uint8] | None  # eight pixels a byte; None: all of them
    with_scores: bool
    coverage: float | None = None


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
    tools, at = _tools_for(part.job), part.at
    shape = at.r1 - at.r0, at.c1 - at.c0
    mask = None
    if part.mask is not None:
        mask = np.unpackbits(part.mask, count=shape[0] * shape[1]).astype(bool).reshape(shape)
    with tools.device.arithmetic():
        return map_window(tools.model, tools.scene, at, mask, with_scores=part.with_scores, coverage=part.coverage)


def _tools_for(job: MapJob) -> _Tools:
    with _getting_ready:
        if job.token not in _tools:
            tools = _get_ready(job)
            _tools.clear()
            _tools[job.token] = tools
        return _tools[job.token]


def _get_ready(job: MapJob) -> _Tools:
    """Read the model and open the scene, and see that they are those of the machine that asks."""
    path = Path(job.model)
    _same("model", job.model, lambda: path, file_sha256, job.model_sha256)
    model = read_model(path)

    def opened() -> Scene:
        scene = job.opening.open()
        return model.resampled(scene) if job.resample else scene

    scene = _same("scene", str(job.opening), opened, Scene.fingerprint, job.scene_look)
    device = Device(job.device, job.precision)
    model.network.to(device.name)
    return _Tools(model, scene, device)


def _same(what: str, place: str, get: Callable[[], T], look_at: Callable[[T], str], expected: str) -> T:
    hint = "every worker needs the same files under the same paths, most simply by a shared file system"
    try:
        found = get()
        look = look_at(found)
    except (HypercapsError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ClusterError(f"{here()} can't open the {what} {place} ({reason}): {hint}") from error
    if look != expected:
        raise ClusterError(f"{here()} finds another {what} at {place} than this machine: {hint}")
    return found
