"""How fast training and mapping are, as ratios within one run: `make bench`, or `make bench QUICK=1`.

Times depend on the machine and on what else it does; ratios of times taken in turns say more. The limit is
the time that the network's multiply-adds take in one large float32 matrix product on the same threads.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hypercaps import ConvCapsClassifier, Labels, Legend, Scene, open_labels, open_scene
from hypercaps.capsules.layers import ClassCaps, positions_after
from hypercaps.capsules.routing import prediction_vectors, route
from hypercaps.mapping import map_scene
from hypercaps.modelfile import TrainedModel
from hypercaps.models.registry import get_method
from hypercaps.patches import PatchStore
from hypercaps.whitening import PCAWhitening

BANDS, CLASSES, BATCH, PLAIN_BATCH, SIDE = 200, 16, 64, 256, 2048


def multiply_adds(bands: int, classes: int) -> int:
    """Of one pixel through 1D-ConvCapsNet with the paper's sizes."""
    c2 = positions_after(bands, 9, 2)
    c3 = positions_after(c2, 9, 2)
    capsules = 4 * c3
    convolutions = 49 * 16 * bands + 9 * 16 * 16 * c2 + 9 * 16 * 32 * c3
    predictions = capsules * 8 * 16 * classes
    routing = (3 + 2) * capsules * 16 * classes  # three weighted sums, two agreements
    return convolutions + predictions + routing


def best_times(jobs: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """The shortest time of each job, the jobs taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            if turn:  # the first turn warms up
                times[name].append(time.perf_counter() - started)
    return {name: min(taken) for name, taken in times.items()}


class PlainClassCaps(ClassCaps):
    """ClassCaps by the reference routing: what a plain reading of the paper does."""

    def forward(self, capsules: Tensor) -> Tensor:
        return route(prediction_vectors(capsules, self.viewpoints), self.routings)


def measure(quick: bool) -> list[dict[str, Any]]:
    rows, cols = (48, 64) if quick else (96, 128)
    rng = np.random.default_rng(0)
    scene = Scene.from_array(rng.integers(0, 10_000, (rows, cols, BANDS), dtype=np.uint16))
    whitening = PCAWhitening.fit(scene)
    network = get_method("convcapsnet").network(BANDS, CLASSES, patch=7)
    model = TrainedModel("convcapsnet", 7, {}, network, whitening, Legend.of(range(1, CLASSES + 1)))
    store = PatchStore(scene, whitening, np.arange(rows * cols), 7)
    targets = torch.arange(rows * cols) % CLASSES
    margin_loss = get_method("convcapsnet").loss
    plain = copy.deepcopy(network)
    plain.classcaps.__class__ = PlainClassCaps  # the same weights, routed by the reference
    square = torch.randn(SIDE, SIDE)
    steps = 8

    def product() -> None:
        torch.mm(square, square)

    def mapping() -> None:
        network.eval()
        map_scene(model, scene)

    def plain_mapping() -> None:
        plain.eval()
        with torch.inference_mode():
            for which in torch.split(torch.arange(rows * cols), PLAIN_BATCH):
                plain(store.gather(which))

    def training(trained: nn.Module) -> None:
        trained.train()
        optimizer = torch.optim.Adam(trained.parameters(), lr=1e-6)
        for which in torch.split(torch.arange(steps * BATCH), BATCH):
            loss = margin_loss(trained(store.gather(which)), targets[which])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    times = best_times(
        {
            "product": product,
            "map": mapping,
            "map plain": plain_mapping,
            "train": lambda: training(network),
            "train plain": lambda: training(plain),
        },
        rounds=3 if quick else 8,
    )
    per_multiply_add = times["product"] / SIDE**3
    pixels, samples = rows * cols, steps * BATCH
    limit = multiply_adds(BANDS, CLASSES) * per_multiply_add
    return [
        {"name": "map_over_limit", "figure": times["map"] / pixels / limit},
        {"name": "train_over_limit", "figure": times["train"] / samples / (3 * limit)},
        {"name": "map_vs_plain", "figure": times["map plain"] / times["map"]},
        {"name": "train_vs_plain", "figure": times["train plain"] / times["train"]},
        {"name": "map_pixels_per_second", "figure": pixels / times["map"], "target": 3000.0, "at_least": True},
    ]


def measure_demo(epochs: int) -> list[dict[str, Any]]:
    """The demo's training, scaled to 50 epochs, beside the 61 s of a straight first reading."""
    scene: Scene = open_scene("indian-pines")
    labels: Labels = open_labels("indian-pines")
    fitted = ConvCapsClassifier(epochs=epochs).fit(scene, labels)
    fastest = min(record.seconds for record in fitted.history_.records)
    return [{"name": "demo_50_epochs_seconds", "figure": 50 * fastest, "target": 61.0, "at_least": False}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less than a minute")
    args = parser.parse_args()
    found = measure(args.quick) + measure_demo(3 if args.quick else 10)
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    print(f"{'name':<24} {'figure':>10}  {'target':>10}  met")
    for row in found:
        target, at_least = row.setdefault("target", None), row.pop("at_least", None)
        row["met"] = None if target is None else (row["figure"] >= target) == at_least
        row["machine"] = machine
        said = "" if target is None else f"{'>=' if at_least else '<='} {target:g}"
        print(f"{row['name']:<24} {row['figure']:>10.2f}  {said:>10}  {'' if target is None else row['met']}")
    path = Path(__file__).with_name("results.json")
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(f"written to {path.name}")


if __name__ == "__main__":
    main()
