"""Accuracy of a trained model on scenes that have changed: light, calibration, wavelengths, dead bands, a shadow.

    python benchmarks/scene_shift.py --seeds 3 --methods best,paper,rbf-svm,random-forest --json shift.jsonl

Indian Pines, 20 % of the labels for training; OA on the same test pixels after each change, with the default options
(`--adapt auto`) and without adaptation. Runs that are in the file of --json are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hypercaps import ConvCapsClassifier, HypercapsError, Labels, Scene, Split, open_labels, open_scene, split_by_share
from hypercaps.compute.devices import use_threads

Cube = npt.NDArray[np.float32]
RECIPES = ("best", "paper")  # of 1D-ConvCapsNet; other names are methods
DEAD = 57  # a band in the near infrared


def half_a_band(cube: Cube) -> Cube:
    """Each band is the mean of itself and the next one."""
    shifted = cube.copy()
    shifted[:, :, :-1] = (cube[:, :, :-1] + cube[:, :, 1:]) / 2
    return shifted


def dead_band(cube: Cube) -> Cube:
    changed = cube.copy()
    changed[:, :, DEAD] = 0
    return changed


def shadow(cube: Cube) -> Cube:
    """The lower half of the scene 20 % darker."""
    changed = cube.copy()
    changed[len(cube) // 2 :] *= np.float32(0.8)
    return changed


CHANGES: dict[str, Callable[[Cube], Cube]] = {
    "none": lambda cube: cube,
    "gain 0.9": lambda cube: np.float32(0.9) * cube,
    "gain 1.1": lambda cube: np.float32(1.1) * cube,
    "offset 2 %": lambda cube: cube + np.float32(0.02) * cube.mean(),
    "dead band": dead_band,
    "half a band, wavelengths unknown": half_a_band,
    "half a band, wavelengths known": half_a_band,
    "shadow": shadow,
}


def changed_scene(scene: Scene, name: str) -> Scene:
    cube = CHANGES[name](scene.read(slice(None), slice(None)).values)
    waves = scene.wavelengths
    assert waves is not None
    if name == "half a band, wavelengths known":  # the last one stays where it is
        waves = np.append((waves[:-1] + waves[1:]) / 2, waves[-1])
    return Scene.from_array(cube, name=name, wavelengths=waves)


def accuracy(model: ConvCapsClassifier, scene: Scene, labels: Labels, tested: npt.NDArray[np.bool_]) -> float:
    return 100 * float((model.map(scene, only=tested).classes[tested] == labels.array[tested]).mean())


def run(method: str, seed: int, scene: Scene, labels: Labels, split: Split) -> dict[str, object]:
    """OA after every change, adapted and not."""
    chosen = {"recipe": method} if method in RECIPES else {"method": method}
    model = ConvCapsClassifier(seed=seed, **chosen).fit(scene, labels, split, evaluate=False)  # type: ignore[arg-type]
    found: dict[str, list[float | None]] = {}
    for name in CHANGES:
        tested = split.test_mask(labels)
        if name == "shadow":  # in it, and in the light
            tested[: len(tested) // 2] = False
        other = changed_scene(scene, name)
        fits = name != "half a band, wavelengths known"  # such a scene is refused, unless it is resampled
        plain = accuracy(model, other, labels, tested) if fits else None
        try:
            adapted = accuracy(model, model.adapted(other), labels, tested)
        except HypercapsError:  # shifted bands, without robust whitening
            adapted = None
        found[name] = [adapted, plain]
    return {"method": method, "seed": seed, "oa": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="best", help="best, paper, or names of other methods")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("shift.jsonl"))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    warnings.simplefilter("ignore")
    scene, labels = open_scene("indian-pines"), open_labels("indian-pines")
    runs = [json.loads(line) for line in args.json.read_text().splitlines()] if args.json.exists() else []
    methods, seeds = args.methods.split(","), range(args.first, args.first + args.seeds)
    for method in methods:
        for seed in seeds:
            if any((one["method"], one["seed"]) == (method, seed) for one in runs):
                continue
            runs.append(run(method, seed, scene, labels, split_by_share(labels, 0.2, 0.1, seed=seed)))
            with args.json.open("a") as file:
                file.write(json.dumps(runs[-1]) + "\n")
    print(f"| change | {' | '.join(methods)} |\n|---|{'---|' * len(methods)}")
    for name in CHANGES:
        cells = []
        for method in methods:
            both = [one["oa"][name] for one in runs if one["method"] == method and one["seed"] in seeds]
            adapted, plain = ([pair[i] for pair in both if pair[i] is not None] for i in (0, 1))
            shown = f"{statistics.median(adapted):.1f}" if adapted else "refused"
            cells.append(f"{shown} ({statistics.median(plain):.1f})" if plain else shown)
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
