"""What a user waits for beside the work itself: starting a map, and training again in a process that is warm.

`benchmarks/run.py` runs both; each process is started afresh, and the two jobs of a ratio alternate.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCENE = "indian-pines"


def cold_map_over_import(rounds: int) -> float:
    """Wall time of ``hypercaps map`` of the bundled scene over that of ``import torch``, the shortest of each."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train = ["train", SCENE, "--out", str(run), "--epochs", "1", "--no-map"]
        subprocess.run([sys.executable, "-m", "hypercaps", *train], capture_output=True, check=True)
        jobs = {
            "import": ["-c", "import torch"],
            "map": ["-m", "hypercaps", "map", str(run), SCENE, "--out", str(Path(folder) / "map.tif")],
        }
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(rounds):
            for name, arguments in jobs.items():
                started = time.perf_counter()
                subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
                times[name].append(time.perf_counter() - started)
    return min(times["map"]) / min(times["import"])


def warm_retrain_over_cold(rounds: int) -> float:
    """Training from 10 labels of each class and mapping: the second time in one process over the first with imports."""
    first, second = [], []
    for _ in range(rounds):
        command = [sys.executable, __file__, repr(time.time())]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        cold, warm = map(float, done.stdout.split())
        first.append(cold)
        second.append(warm)
    return min(second) / min(first)


def retrain(begun: float) -> None:
    """Print the seconds of two trainings with maps, the first since ``begun``, when this process was started."""
    from hypercaps import ConvCapsClassifier, SceneCache, open_labels, open_scene, split_per_class

    scene, labels = open_scene(SCENE), open_labels(SCENE)
    cache = SceneCache(scene)
    for seed in range(2):
        few = labels.only_pixels(split_per_class(labels, 10, seed=seed).train)
        ConvCapsClassifier(split_by="none").fit(scene, few, evaluate=False, cache=cache).predict(scene)
        print(time.time() - begun)
        begun = time.time()


if __name__ == "__main__":
    retrain(float(sys.argv[1]))
