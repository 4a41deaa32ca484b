"""Peak memory of `hypercaps map` on scenes ten times as large: `python benchmarks/map_memory.py [--memory 500MB]`.

For each file format, a scene of random numbers is written, mapped by the command line in its own process, and deleted.
Needs disk space of ten times the memory, and a few minutes per format.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import rasterio
from rasterio.windows import Window

from hypercaps import Legend
from hypercaps.cli.values import memory_bytes
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import write_model
from hypercaps.models.registry import get_method
from hypercaps.training.preprocessing import PCAWhitening

BANDS, CLASSES, TIMES, COLS = 400, 5, 10, 2048
KINDS = ("envi-bsq", "envi-bip", "envi-bil", "tiff-tiled", "tiff-strips", "npy")
ORDERS = {"envi-bsq": "bsq", "envi-bip": "bip", "envi-bil": "bil"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", default="500MB")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["envi-bsq", "tiff-tiled"])
    args = parser.parse_args()
    memory = memory_bytes(args.memory)
    rows = -(-TIMES * memory // (8 * BANDS * COLS))
    print(f"scenes of {rows} x {COLS} x {BANDS} float64 ({8 * rows * COLS * BANDS / 1e9:.1f} GB), memory {args.memory}")
    for kind in args.kinds:
        with tempfile.TemporaryDirectory() as folder:
            model, scene = Path(folder) / "model.safetensors", write_scene(Path(folder), kind, rows)
            write_model(model, untrained_model())
            command = ["map", str(model), str(scene), "--out", f"{folder}/map.tif", "--confidence", f"{folder}/c.tif"]
            started = time.perf_counter()
            peak = peak_of([sys.executable, "-m", "hypercaps", *command, "--memory", args.memory])
            seconds = time.perf_counter() - started
        print(f"{kind:12} peak {peak / 1e6:6.0f} MB = {peak / memory:.2f} of --memory, {seconds:.0f} s")


def peak_of(command: list[str]) -> int:
    """Peak memory of a process in bytes; getrusage would also count the memory of this process when it forked."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    status, peak = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None:
        lines = [
            line for line in status.read_text().splitlines() if line.startswith("VmHWM:")
        ]  # kB; missing when the process ends
        peak = max(peak, int(lines[0].split()[1]) * 1024) if lines else peak
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return peak


def untrained_model() -> TrainedModel:
    network = get_method("convcapsnet").network(BANDS, CLASSES, patch=7).eval()
    whitening = PCAWhitening.from_covariance(np.zeros(BANDS), np.diag(np.linspace(2, 1, BANDS)))
    return TrainedModel("convcapsnet", 7, {}, network, whitening, Legend.of(range(1, CLASSES + 1)))


def write_scene(folder: Path, kind: str, rows: int) -> Path:
    block = np.random.default_rng(0).standard_normal((256, COLS, BANDS))  # 1.7 GB, repeated down the scene
    starts = range(0, rows, 256)
    if kind == "npy":
        cube = np.lib.format.open_memmap(folder / "cube.npy", mode="w+", dtype=np.float64, shape=(rows, COLS, BANDS))
        for r in starts:
            cube[r : r + 256] = block[: rows - r]
        return folder / "cube.npy"
    if kind in ORDERS:
        header = f"ENVI\nsamples = {COLS}\nlines = {rows}\nbands = {BANDS}\ndata type = 5\nbyte order = 0\n"
        (folder / "cube.hdr").write_text(f"{header}interleave = {ORDERS[kind]}\n")
        with (folder / "cube.img").open("wb") as file:
            if kind == "envi-bsq":
                for band in range(BANDS):
                    for r in starts:
                        file.write(block[: rows - r, :, band].tobytes())
            else:
                for r in starts:
                    part = block[: rows - r]
                    file.write((part if kind == "envi-bip" else part.transpose(0, 2, 1)).tobytes())
        return folder / "cube.img"
    path = folder / "cube.tif"
    shape = {"height": rows, "width": COLS, "count": BANDS, "dtype": "float64", "transform": rasterio.Affine.scale(30)}
    tiled = {"tiled": True, "blockxsize": 256, "blockysize": 256} if kind == "tiff-tiled" else {}
    with rasterio.open(path, "w", driver="GTiff", bigtiff="yes", interleave="band", **shape, **tiled) as raster:
        for r in starts:
            part = np.moveaxis(block[: rows - r], 2, 0)
            raster.write(part, window=Window(0, r, COLS, part.shape[1]))
    return path


if __name__ == "__main__":
    main()
