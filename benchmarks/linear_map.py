"""Speed of maps by linear classifiers: millions of pixels a second (Mpixel/s), for a scene in memory.

python benchmarks/linear_map.py [--threads N]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch

from hypercaps import Legend, Scene
from hypercaps.compute.devices import use_threads
from hypercaps.inference.calibration import Calibration
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import map_scene
from hypercaps.models.registry import get_method
from hypercaps.training.preprocessing import Standardising

SIDE, BANDS, CLASSES, ROUNDS = 512, 200, 16, 3


def made_model(scene: Scene, patch: int) -> TrainedModel:
    """LDA with random weights: its maps take as long as those of a fitted one."""
    network = get_method("lda").network(BANDS, CLASSES, patch=patch)
    for weights in network.parameters():
        torch.nn.init.normal_(weights, generator=torch.Generator().manual_seed(0))
    return TrainedModel("lda", patch, {}, network, Standardising.fit(scene), Legend.of(range(1, CLASSES + 1)))


def speed(model: TrainedModel, scene: Scene, window: int) -> float:
    """Millions of pixels a second, the best of several rounds."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        map_scene(model, scene, window=window)
        times.append(time.perf_counter() - started)
    return scene.rows * scene.cols / min(times) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    use_threads(parser.parse_args().threads)
    rng = np.random.default_rng(0)
    scene = Scene.from_array(rng.standard_normal((SIDE, SIDE, BANDS), dtype=np.float32))
    for patch in (1, 7):
        plain = made_model(scene, patch)
        for name, model in (("", plain), (", calibrated", replace(plain, calibration=Calibration(1.3, 100)))):
            for window in (128, SIDE):
                print(f"patch {patch}, windows of {window}{name}: {speed(model, scene, window):.2f} Mpixel/s")


if __name__ == "__main__":
    main()
