"""Speed of training and mapping, as ratios within one run: `make bench`, or `make bench QUICK=1`.

Times depend on the machine and its load; ratios of times measured alternately are more reliable. The limit is the time
that the network's multiply-adds take in one large float32 matrix product on the same threads. The plain implementation
is the package's own layers in torch with the reference routing, as in the paper, patch by patch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cold_start import cold_map_over_import, warm_retrain_over_cold
from file_pace import file_ratios, map_job
from hypercaps import Legend, Scene
from hypercaps.compute import native
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import write_model
from hypercaps.inference.predict import map_scene
from hypercaps.models.capsnet import CapsNet
from hypercaps.models.capsules.routing import prediction_vectors, route
from hypercaps.models.capsules.sizes import positions_after
from hypercaps.models.capsules.squash import squash
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.models.recipes import EpochRecipe, Stage
from hypercaps.models.registry import get_method
from hypercaps.training.examples import Examples
from hypercaps.training.loop import LoopSettings, TrainingLoop
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PCAWhitening
from speed_tables import DemoStage, Figure, Results, figures_table, stages_table

BANDS, CLASSES, BATCH, PLAIN_BATCH, SIDE = 200, 16, 64, 256, 2048
LARGE = 2000  # side of the scene for the peak memory, pixels


def multiply_adds(bands: int, classes: int) -> int:
    """Number of multiply-adds of 1D-ConvCapsNet per pixel, with the paper's sizes."""
    c2 = positions_after(bands, 9, 2)
    c3 = positions_after(c2, 9, 2)
    capsules = 4 * c3
    convolutions = 49 * 16 * bands + 9 * 16 * 16 * c2 + 9 * 16 * 32 * c3
    predictions = capsules * 8 * 16 * classes
    routing = (3 + 2) * capsules * 16 * classes  # three weighted sums, two agreements
    return convolutions + predictions + routing


def best_times(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each job; the jobs alternate."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            taken = timed(job)
            if number:  # the first round warms up
                times[name].append(taken)
    return {name: min(taken) for name, taken in times.items()}


def timed(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def plain_convcapsnet(network: ConvCapsNet, patches: Tensor) -> Tensor:
    """1D-ConvCapsNet layer by layer in torch, with the reference routing: capsule lengths (B, n)."""
    children = network.conv(network.primary(network.spatial(patches))).flatten(1, 2)
    predictions = prediction_vectors(children, network.classcaps.viewpoints.flatten(0, 1))
    lengths: Tensor = torch.linalg.vector_norm(route(predictions, network.classcaps.routings), dim=2)
    return lengths


def plain_capsnet(network: CapsNet, patches: Tensor) -> Tensor:
    """The paper's CapsNet, likewise."""
    channels = network.primary(network.conv(patches.flatten(1, 2)).relu())
    children = squash(channels.transpose(1, 2).reshape(len(channels), -1, network.size))
    predictions = prediction_vectors(children, network.classcaps.viewpoints.flatten(0, 1))
    lengths: Tensor = torch.linalg.vector_norm(route(predictions, network.classcaps.routings), dim=2)
    return lengths


def plain_training(network: Any, scores: Any, store: PatchStore, targets: Tensor, steps: int, batch: int) -> None:
    """Training steps of the plain implementation."""
    loss_of = get_method("convcapsnet").loss
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-6)
    for which in torch.split(torch.arange(steps * batch), batch):
        loss = loss_of(scores(network, store.gather(which)), targets[which])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def plain_mapping(network: nn.Module, scores: Any, store: PatchStore, pixels: int, batch: int) -> None:
    with torch.inference_mode():
        for which in torch.split(torch.arange(pixels), batch):
            scores(network, store.gather(which))


def measure(quick: bool) -> list[Figure]:
    """Training and mapping compared with the limit and with the plain implementations."""
    rows, cols = (48, 64) if quick else (96, 128)
    rng = np.random.default_rng(0)
    scene = Scene.from_array(rng.integers(0, 10_000, (rows, cols, BANDS), dtype=np.uint16))
    whitening = PCAWhitening.fit(scene)
    method = get_method("convcapsnet")
    network, plain = (method.network(BANDS, CLASSES, patch=7) for _ in range(2))
    capsnet = get_method("capsnet").network(BANDS, CLASSES, patch=7)
    model = TrainedModel("convcapsnet", 7, {}, network.eval(), whitening, Legend.of(range(1, CLASSES + 1)))
    store = PatchStore(scene, whitening, np.arange(rows * cols), 7)
    targets = torch.arange(rows * cols) % CLASSES
    square = torch.randn(SIDE, SIDE)
    pixels, steps, few = rows * cols, 8, 128
    examples = Examples(store, targets, train=torch.arange(steps * BATCH), val=torch.empty(0, dtype=torch.int64))
    trained = method.network(BANDS, CLASSES, patch=7)
    recipe = method.recipe("paper")
    assert isinstance(recipe, EpochRecipe)
    optimizer = recipe.make_optimizer(trained)

    def training() -> None:  # an epoch of the package's own loop, without validation pixels
        TrainingLoop(trained, optimizer, examples, LoopSettings(method.loss, BATCH), Stage(epochs=1, seed=0)).run()

    times = best_times(
        {
            "product": lambda: torch.mm(square, square),
            "map": lambda: map_scene(model, scene),
            "map plain": partial(plain_mapping, plain, plain_convcapsnet, store, pixels, PLAIN_BATCH),
            "map capsnet": partial(plain_mapping, capsnet, plain_capsnet, store, few, BATCH),
            "train": training,
            "train plain": partial(plain_training, plain, plain_convcapsnet, store, targets, steps, BATCH),
            "train capsnet": partial(plain_training, capsnet, plain_capsnet, store, targets, 1, BATCH),
        },
        rounds=4 if quick else 10,
    )
    limit = multiply_adds(BANDS, CLASSES) * times["product"] / SIDE**3
    wide = native.variant() == "avx512"  # the limit of such a processor is lower
    mapped, stepped = times["map"] / pixels, times["train"] / (steps * BATCH)
    return [
        Figure("map_over_limit", mapped / limit, 2.6 if wide else 1.9),
        Figure("train_over_limit", stepped / (3 * limit), 3.0 if wide else 2.2),
        Figure("sgemm_gflops", 2 * SIDE**3 / times["product"] / 1e9),
        Figure("map_vs_plain", times["map plain"] / times["map"], 7.0, at_least=True),
        Figure("train_vs_plain", times["train plain"] / times["train"], 2.5, at_least=True),
        Figure("map_vs_capsnet", times["map capsnet"] / few / mapped, 30.0, at_least=True),
        Figure("train_vs_capsnet", times["train capsnet"] / BATCH / stepped, 30.0, at_least=True),
        Figure("map_pixels_per_second", 1 / mapped),
        Figure("train_samples_per_second", 1 / stepped),
    ]


def measure_growth(quick: bool) -> list[Figure]:
    """Growth of the time to classify whitened pixels with the numbers of pixels, bands and classes."""

    def classifying(pixels: int, bands: int, classes: int) -> Callable[[], object]:
        network = get_method("convcapsnet").network(bands, classes, patch=7)
        width, around = 64, torch.arange(7)
        spectra = torch.randn((pixels // width + 6) * (width + 6), bands)
        first = torch.arange(pixels) // width * (width + 6) + torch.arange(pixels) % width
        places = (first[:, None] + (around[:, None] * (width + 6) + around).flatten()).int()

        def job() -> None:
            with torch.inference_mode():
                network.forward_indexed(spectra, places)  # type: ignore[operator]

        return job

    few = 384
    base = classifying(few, BANDS, CLASSES)
    jobs: dict[str, tuple[Callable[[], object], float]] = {
        "growth_pixels": (classifying(4 * few, BANDS, CLASSES), 4.1),
        "growth_bands": (classifying(few, 4 * BANDS, CLASSES), 4.4),  # 4.3 times the multiply-adds
        "growth_classes": (classifying(few, BANDS, 2 * CLASSES), 2.1),
    }
    # The base job is run four times in a row, so that what is compared takes about as long, and is disturbed as often.
    alternating = {"base": lambda: [base() for _ in range(4)], **{name: job for name, (job, _) in jobs.items()}}
    times = best_times(alternating, rounds=15 if quick else 50)
    return [Figure(name, 4 * times[name] / times["base"], target) for name, (_, target) in jobs.items()]


def measure_files(quick: bool) -> list[Figure]:
    """Mapping from files over the kernels' pace; quick: a fifth of the rows."""
    ratios = file_ratios(untrained_model(), 200 if quick else 1000)
    return [
        Figure(f"file_over_kernels_{layout}", ratio, 1.25 if layout == "deflate" else 1.1)
        for layout, ratio in ratios.items()
    ]


def untrained_model() -> TrainedModel:
    network = get_method("convcapsnet").network(BANDS, CLASSES, patch=7).eval()
    whitening = PCAWhitening.from_covariance(np.full(BANDS, 5000.0), np.diag(np.linspace(2e6, 1e6, BANDS)))
    return TrainedModel("convcapsnet", 7, {}, network, whitening, Legend.of(range(1, CLASSES + 1)))


def measure_peak(quick: bool) -> list[Figure]:
    """Peak memory of mapping a large scene from a file, in its own process; quick: every 16th row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.npy"
        cube = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint16, shape=(LARGE, LARGE, BANDS))
        block = np.random.default_rng(0).integers(0, 10_000, (LARGE // 20, LARGE, BANDS), dtype=np.uint16)
        for r in range(0, LARGE, len(block)):
            cube[r : r + len(block)] = block
        del cube
        model = Path(folder) / "model.safetensors"
        write_model(model, untrained_model())
        return [Figure("map_peak_mb", map_job("peak", model, path, 16 if quick else 1), 500.0)]


def measure_demo(quick: bool) -> list[Figure]:
    """`make demo` without setting up the environment; quick: a tenth of its epochs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hypercaps", "train", "indian-pines", "--out", f"{folder}/demo"]
        command += ["--epochs", "5"] if quick else []
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        seconds = time.perf_counter() - started
        training = float(json.loads((Path(folder) / "demo" / "metrics.json").read_text())["train_seconds"])
    if quick:
        return [Figure("demo_5_epochs_seconds", seconds)]
    return [Figure("demo_seconds", seconds), Figure("cold_train_over_work", seconds / training, 1.45)]


def demo_stages() -> list[DemoStage]:
    """Where the time of the demo goes, in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("demo_stages.py")), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [DemoStage(*row) for row in json.loads(done.stdout.splitlines()[-1])]


def measure_start(quick: bool) -> list[Figure]:
    """Starting a map, and training again in a warm process."""
    return [
        Figure("cold_map_over_import", cold_map_over_import(3 if quick else 10), 0.7),
        Figure("warm_retrain_over_cold", warm_retrain_over_cold(1 if quick else 3), 0.4),
    ]


def machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiled_kernels": native.variant(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="takes less than two minutes")
    args = parser.parse_args()
    os.environ.pop("HYPERCAPS_DATA", None)  # a folder with another copy of the bundled scene
    figures: list[Figure] = []
    started = time.perf_counter()
    print(f"{'name':<26} {'figure':>10}  {'target':>10}  met")
    for part in (measure, measure_growth, measure_files, measure_start, measure_demo, measure_peak):
        for row in part(args.quick):
            met = {None: "", True: "yes", False: "no"}[row.met]
            print(f"{row.name:<26} {row.figure:>10.2f}  {row.shown_target(('<=', '>=')):>10}  {met}", flush=True)
            figures.append(row)
    results = Results(figures, [] if args.quick else demo_stages(), machine(), args.quick)
    results.write()
    print(f"\n{figures_table(results)}\n")
    if results.stages:
        print(f"{stages_table(results.stages)}\n")
    print(f"written to benchmarks/results.json, after {(time.perf_counter() - started) / 60:.1f} minutes")
    print("benchmarks/speed_tables.py writes these tables into docs/speed.md and README.md")


if __name__ == "__main__":
    main()
