"""Mapping from a file in a process of its own, which imports what `hypercaps map` imports: no torch.

`python map_jobs.py pace MODEL SCENE` prints the time of the map over that of as many pixels of a scene in memory;
`python map_jobs.py peak MODEL SCENE [STEP]` prints the peak memory of mapping every STEP-th row, in MB.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hypercaps import Scene, load_model, open_scene
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import map_scene
from hypercaps.pipeline.map import make_map
from hypercaps.pipeline.requests import MapRequest


def pace(model: Path, path: Path) -> float:
    """Time of mapping a file over its pixels at the kernels' pace, which is measured just before and after."""
    classifier, scene = load_model(model), open_scene(path)
    in_memory = Scene.from_array(scene.read(slice(64), slice(250)).values.copy())
    request = MapRequest({"classes": path.with_name("map.tif")})
    before = seconds_per_pixel(classifier.model_, in_memory)
    taken = seconds(lambda: make_map(classifier, open_scene(path), request, model_sha256=""))
    kernels = min(before, seconds_per_pixel(classifier.model_, in_memory))
    return taken / (kernels * scene.rows * scene.cols)


def seconds_per_pixel(model: TrainedModel, scene: Scene) -> float:
    """Of a scene in memory: the shortest of three."""
    return min(seconds(lambda: map_scene(model, scene)) for _ in range(3)) / (scene.rows * scene.cols)


def seconds(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def peak(model: Path, path: Path, step: int = 1) -> float:
    """Peak memory of this process in MB after mapping every ``step``-th row."""
    scene = open_scene(path)
    only = np.arange(scene.rows)[:, None] % step == np.zeros((1, scene.cols)) if step > 1 else None
    map_scene(load_model(model).model_, scene, only=only)
    return peak_memory() / 1e6


def peak_memory() -> int:
    """In bytes; on Linux not from getrusage, which includes the parent's memory at the start of this process."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    job, model_file, scene_file, *rest = sys.argv[1:]
    if job == "pace":
        print(pace(Path(model_file), Path(scene_file)))
    else:
        print(peak(Path(model_file), Path(scene_file), *map(int, rest)))
