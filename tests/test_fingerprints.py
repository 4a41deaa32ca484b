"""Fingerprints of trainings, maps and run folders: a restructuring must not change a bit of them.

Results are the same bits only on the same kind of processor with the same numpy and torch, so ``fingerprints.json``
has one entry for each. ``python tests/test_fingerprints.py --write`` writes the entry of this machine; write it on a
commit whose results are correct, before the code is changed. This file goes when the restructuring is finished.

Only public names and the command line are used, because every other module may move.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line does, before torch is loaded

import numpy as np
import pytest
import rasterio
import safetensors
import torch

import hypercaps
from hypercaps import (
    ConvCapsClassifier,
    Labels,
    Scene,
    Split,
    load_model,
    open_labels,
    open_scene,
    split_blocks,
    split_by_share,
    split_per_class,
    split_polygons,
)

FILE = Path(__file__).with_name("fingerprints.json")
MACHINE = f"{torch.backends.cpu.get_cpu_capability()}, numpy {np.__version__}, torch {torch.__version__}"
THREADS = 2  # trainings of se-2d-cnn, 3d-cnn and capsnet depend on it

Parts = dict[str, str]  # part of a result -> its fingerprint

# Small structures keep the slow networks quick; convcapsnet and c-cnn have the sizes of the paper.
MLP = {"structure": {"hidden": (48, 32)}}
SE_CNN = {"structure": {"maps": 20}}
CNN3D = {"structure": {"filters": 2, "kernel": 2, "window": 8}, "patch": 11}
CAPSNET = {"structure": {"filters": 16, "primary_arrays": 2}}
RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("convcapsnet", "best"): {"epochs": 3},
    ("convcapsnet", "paper"): {"epochs": 3},
    ("rbf-svm", "paper"): {},
    ("rbf-svm-window", "tuned"): {},
    ("mlp", "paper"): {"epochs": 2, **MLP},
    ("mlp", "tuned"): {"epochs": 2, **MLP},
    ("se-2d-cnn", "paper"): {"epochs": 2, **SE_CNN},
    ("se-2d-cnn", "tuned"): {"epochs": 2, **SE_CNN},
    ("3d-cnn", "paper"): {"epochs": 1, **CNN3D},
    ("3d-cnn", "tuned"): {"epochs": 1, **CNN3D},
    ("c-cnn", "paper"): {"epochs": 2},
    ("capsnet", "paper"): {"epochs": 1, **CAPSNET},
    ("capsnet", "tuned"): {"epochs": 1, **CAPSNET},
}


# --- Fingerprints of arrays, models and scores


def of_arrays(*arrays: Any) -> str:
    """SHA-256 over the type, shape and bytes of arrays."""
    sha = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        sha.update(f"{array.dtype.str}{array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def of_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def of_split(split: Split) -> str:
    return of_arrays(split.train, split.val, split.test)


def of_model(path: Path) -> Parts:
    """The arrays of a model file by what they are for, and its description without versions."""
    with safetensors.safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
        about = json.loads(file.metadata()["hypercaps-model"])["description"]
    del about["versions"]
    parts: dict[str, list[Any]] = {"weights": [], "calibration": [], "preprocessing": []}
    for name, array in arrays.items():
        part = {"network": "weights", "calibration": "calibration"}.get(name.split(".")[0], "preprocessing")
        parts[part] += [np.frombuffer(name.encode(), np.uint8), array]
    return {part: of_arrays(*content) for part, content in parts.items()} | {"model description": of_json(about)}


def of_maps(classifier: ConvCapsClassifier, scene: Scene) -> Parts:
    """Classes and confidence of a whole scene; all scores and set sizes, those by windows of one tile."""
    mapped = classifier.map(scene)
    parts = {"map": of_arrays(mapped.classes), "confidence": of_arrays(mapped.confidence)}
    parts["probabilities"] = of_arrays(classifier.predict_proba(scene))
    parts["lengths"] = of_arrays(classifier.lengths(scene))
    window = type(scene.whole)
    sides = [(r, min(r + 16, scene.rows), c, min(c + 16, scene.cols)) for r in (0, 16, 32) for c in (0, 16, 32)]
    tiles = list(classifier.map_windows(scene, [window(*side) for side in sides], with_scores=True, coverage=0.9))
    parts["sets"] = of_arrays(*(tile.sets for tile in tiles))
    parts["windows"] = of_arrays(*(a for tile in tiles for a in (tile.classes, tile.confidence, tile.scores)))
    return parts


def of_training(scene: Scene, labels: Labels, folder: Path, **options: Any) -> Parts:
    """Everything a training gives; maps are made by the model as it comes back from its file."""
    classifier = ConvCapsClassifier(**options).fit(scene, labels)
    path = folder / "model.safetensors"
    classifier.save(path)
    scores = classifier.scores_
    return {
        "split": of_split(classifier.split_),
        **of_model(path),
        "scores": of_arrays(scores.oa, scores.aa, scores.kappa, scores.confusion),
        "confidence report": of_json(scores.to_json()),
        **of_maps(load_model(path, precision=options.get("precision", "float32")), scene),
    }


# --- Scenes


def made() -> tuple[Scene, Labels]:
    """36 x 36 pixels of 3 classes in 26 bands, half of them labelled."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(36) // 12 + 1, 36).reshape(36, 36).T
    spectra = np.stack([np.sin(2 * np.pi * (k + 1) * np.linspace(0, 1, 26)) for k in range(3)])
    cube = 1000 + 100 * spectra[truth - 1] + 40 * rng.standard_normal((36, 36, 26))
    labels = np.where(rng.random((36, 36)) < 0.5, truth, 0).astype(np.int16)
    scene = Scene.from_array(cube.astype(np.float32), name="made", wavelengths=np.arange(26) * 10.0 + 400)
    return scene, Labels.from_array(labels, name="made")


@cache
def indian_pines() -> tuple[Scene, Labels]:
    """A corner of 40 x 40 pixels of the bundled scene, without the classes that have few pixels in it."""
    rows, cols = slice(20, 60), slice(10, 50)
    cube, labels = open_scene("indian-pines").read(rows, cols).values, open_labels("indian-pines").array[rows, cols]
    numbers, counts = np.unique(labels, return_counts=True)
    labels = np.where(np.isin(labels, numbers[counts >= 40]), labels, 0)
    return Scene.from_array(cube, name="pines"), Labels.from_array(labels, name="pines")


def with_gaps() -> tuple[Scene, Labels]:
    """The corner with NaN and nodata in single pixels, a line and an edge, some of them labelled."""
    scene, labels = indian_pines()
    cube = scene.read().values.copy()
    cube[5, :, 100] = np.nan
    cube[:, 39] = np.nan
    cube[20:24, 8:12, :] = -9999
    cube[::7, ::9, 3] = -9999
    return Scene.from_array(cube, name="gaps", nodata=-9999), labels


# --- What is fingerprinted: functions that take an empty folder


def training(method: str, recipe: str, scene: Callable[[], tuple[Scene, Labels]], folder: Path, **other: Any) -> Parts:
    options = {**RECIPES[method, recipe], **other}
    return of_training(*scene(), folder, method=method, recipe=recipe, seed=3, **options)


def splits(folder: Path) -> Parts:
    labels = open_labels("indian-pines")
    grouped = Labels.from_array(labels.array, groups=labels.array.astype(np.int32) * 4 + np.arange(145) // 40)
    return {
        "by share": of_split(split_by_share(labels, 0.1, 0.1, seed=1)),
        "per class": of_split(split_per_class(labels, 12, 0.1, seed=1)),
        "blocks": of_split(split_blocks(labels, 0.3, 0.1, block=8, seed=1)),
        "polygons": of_split(split_polygons(grouped, 0.3, 0.1, seed=1)),
        "connected areas": of_split(split_polygons(labels, 0.3, 0.1, seed=1)),
    }


def resampled(folder: Path) -> Parts:
    """A map of a scene with 60 narrower bands, by a model of 26."""
    classifier = ConvCapsClassifier(epochs=2, seed=3).fit(*made())
    cube, waves = made()[0].read().values, np.linspace(395, 655, 60)
    other = np.stack([np.interp(waves, np.arange(26) * 10 + 400, row) for row in cube.reshape(-1, 26)])
    scene = classifier.resampled(Scene.from_array(other.reshape(36, 36, 60).astype(np.float32), wavelengths=waves))
    return {"values": of_arrays(scene.read().values), **of_maps(classifier, scene)}


def uncalibrated(folder: Path) -> Parts:
    """Without validation pixels, and without a mask's pixels."""
    scene, labels = made()
    classifier = ConvCapsClassifier(epochs=2, val=0, seed=3).fit(scene, labels)
    classifier.save(folder / "model.safetensors")
    mapped = classifier.map(scene, only=labels.array > 0)
    parts = {"map": of_arrays(mapped.classes), "confidence": of_arrays(mapped.confidence)}
    return parts | of_model(folder / "model.safetensors")


def command(folder: Path, *words: str) -> str:
    """What ``hypercaps ...`` prints."""
    line = [sys.executable, "-m", "hypercaps", *words]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def of_run(run: Path) -> Parts:
    """The files of a run's folder, without times, versions and the command."""
    parts = {f"model: {part}": sha for part, sha in of_model(run / "model.safetensors").items()}
    for name in ("map", "confidence", "probabilities", "sets"):
        with rasterio.open(run / f"{name}.tif") as raster:
            parts[f"{name}.tif pixels"] = of_arrays(raster.read())
    for name in ("map.tif", "confidence.tif", "probabilities.tif", "sets.tif", "model.safetensors", "map.tif.aux.xml"):
        parts[f"{name} bytes"] = hashlib.sha256((run / name).read_bytes()).hexdigest()
    with np.load(run / "split.npz") as split:
        parts["split.npz"] = of_arrays(*(split[name] for name in ("train", "val", "test")))
    with (run / "history.csv").open(newline="") as file:
        parts["history.csv"] = of_json([{**row, "seconds": None} for row in csv.DictReader(file)])
    metrics = json.loads((run / "metrics.json").read_text())
    for name in ("train_seconds", "command", "versions"):
        del metrics[name]
    parts["metrics.json"] = of_json(metrics)
    parts["classes.json"] = of_json(json.loads((run / "classes.json").read_text()))
    return parts


def commands(folder: Path) -> Parts:
    """One run with every layer, two explained pixels, suggestions."""
    scene, labels = made()
    np.save(folder / "cube.npy", scene.read().values)
    np.save(folder / "labels.npy", labels.array)
    np.savetxt(folder / "waves.txt", np.arange(26) * 10.0 + 400)
    common = ("--wavelengths", "waves.txt", "--threads", str(THREADS))
    layers = ("--probabilities", "--coverage", "0.9", "--reject", "0.5")
    command(folder, "train", "cube.npy", "labels.npy", "--out", "run", "--epochs", "3", "--seed", "5", *layers, *common)
    parts = of_run(folder / "run")
    for at in ("3,4", "20,30"):
        found = command(folder, "explain", "run/model.safetensors", "cube.npy", "--at", at, "--json", "-", *common)
        parts[f"explain {at}"] = of_json(json.loads(found))
    command(folder, "suggest", "run/model.safetensors", "cube.npy", "--out", "points.csv", "--n", "9", *common)
    parts["suggest"] = hashlib.sha256((folder / "points.csv").read_bytes()).hexdigest()
    return parts


def methods(folder: Path) -> Parts:
    """The registered methods and their sizes, without the wording."""
    found = json.loads(command(folder, "methods", "--bands", "200", "--classes", "16", "--json"))
    listed = {(method["name"], recipe) for method in found for recipe in method["recipes"]}
    assert listed == set(RECIPES), "RECIPES of this test does not list every method and recipe"
    kept = ("name", "parameters", "patch", "recipe")
    return {method["name"]: of_json([[method[key] for key in kept], sorted(method["recipes"])]) for method in found}


SCENES = {"made": made, "pines": indian_pines}
CASES: dict[str, Callable[[Path], Parts]] = {
    f"{method}-{recipe}-{name}": partial(training, method, recipe, scene)
    for method, recipe in RECIPES
    for name, scene in SCENES.items()
}
for recipe in ("best", "paper"):
    gaps = partial(training, "convcapsnet", recipe, with_gaps)
    CASES[f"convcapsnet-{recipe}-gaps"] = gaps
    CASES[f"convcapsnet-{recipe}-gaps-blocks"] = partial(gaps, split_by="blocks", block=7, patch=3, train=0.4)
    CASES[f"convcapsnet-{recipe}-gaps-per_class"] = partial(gaps, per_class=8)
CASES["convcapsnet-paper-made-bfloat16"] = partial(training, "convcapsnet", "paper", made, precision="bfloat16")
CASES["convcapsnet-best-made-all-epochs"] = partial(training, "convcapsnet", "best", made, epochs=None)
CASES |= {"splits": splits, "resampled": resampled, "uncalibrated": uncalibrated}
CASES |= {"commands": commands, "methods": methods}


def fingerprint(case: str, folder: Path) -> Parts:
    assert any(Path(hypercaps.__file__).parent.rglob("_kernels_*")), "install hypercaps to compile the kernels"
    assert "HYPERCAPS_NATIVE" not in os.environ, (
        "fingerprints are those of the compiled kernels: unset HYPERCAPS_NATIVE"
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return CASES[case](folder)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("case", CASES)
def test_every_bit_is_as_before(case: str, tmp_path: Path) -> None:
    stored = json.loads(FILE.read_text())
    if MACHINE not in stored:
        pytest.skip(
            f"no fingerprints for {MACHINE}: write them with 'python tests/test_fingerprints.py --write', on a commit "
            "whose results are known to be right"
        )
    expected, found = stored[MACHINE][case], fingerprint(case, tmp_path)
    assert expected.keys() == found.keys()
    changed = [part for part in expected if expected[part] != found[part]]
    assert not changed, f"{case}: {', '.join(changed)} changed; the same: {sorted(expected.keys() - set(changed))}"


def write(path: Path) -> None:
    entry = {}
    for case in CASES:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            entry[case] = fingerprint(case, Path(folder))
        sys.stdout.write(f"{time.perf_counter() - begun:6.1f} s  {case}\n")
    stored = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**stored, MACHINE: entry}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit("usage: python tests/test_fingerprints.py --write [FILE]")
    write(Path(sys.argv[2]) if len(sys.argv) > 2 else FILE)
