"""Compare recipe best with the paper's recipe and other methods on the same splits: accuracy, confidence, time.

    python benchmarks/best_recipe.py --scene indian-pines --draw 0.05 --seeds 3
    python benchmarks/best_recipe.py --draw blocks --first 10 --seeds 10 --json runs.jsonl
    python benchmarks/best_recipe.py --draw per-class:10 --methods best,mlp,capsnet --epochs mlp=80

Prints one line per run and the medians; uses one thread by default, so that times can be compared. Blocks have 16 x 16
pixels, 40 % for training and 10 % for validation; the guard band is that of patches of 7 x 7 for all methods. With
--json each run is also written as a line of that file, and runs that are in the file are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from hypercaps import (
    ConvCapsClassifier,
    Labels,
    Scene,
    Split,
    open_labels,
    open_scene,
    split_blocks,
    split_by_share,
    split_per_class,
)
from hypercaps.compute.devices import use_threads

FAST = ("best", "paper", "rbf-svm-window")
SHOWN = ("oa", "aa", "seconds", "ece_before", "ece_after", "coverage_90", "set_size_90")


def draw(labels: Labels, mode: str, seed: int) -> Split:
    """A share of each class (0.05), per-class:N, or blocks: 40 % for training, 10 % for validation."""
    if mode == "blocks":
        return split_blocks(labels, 0.4, 0.1, seed=seed)
    if mode.startswith("per-class:"):
        return split_per_class(labels, int(mode.removeprefix("per-class:")), 0.1, seed=seed)
    return split_by_share(labels, float(mode), 0.1, seed=seed)


def run(scene: Scene, labels: Labels, split: Split, name: str, epochs: int | None, seed: int) -> dict[str, Any]:
    """One training; ``best`` and ``paper`` are recipes of 1D-ConvCapsNet, other names are methods."""
    options: dict[str, Any] = {"recipe": name} if name in ("best", "paper") else {"method": name}
    before = time.process_time()
    fitted = ConvCapsClassifier(**options, epochs=epochs, seed=seed).fit(scene, labels, split, evaluate=False)
    seconds = time.process_time() - before
    scores = fitted.evaluate(scene, labels, split).to_json()
    figures = {key: scores[key] for key in SHOWN if key in scores}
    patch = fitted.model_.patch
    return {**figures, "kappa": scores["kappa"], "seconds": seconds, "leakage": split.with_patch(patch).leakage}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", default="indian-pines", help="name of a public scene, or CUBE=LABELS")
    parser.add_argument("--draw", default="0.05", help="a share, per-class:N, or blocks")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(FAST), help="best, paper, or names of other methods")
    parser.add_argument("--epochs", default="", help="METHOD=N,...: instead of the recipe's")
    parser.add_argument("--json", type=Path, help="file to append one line per run to")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    epochs = {name: int(n) for name, n in (pair.split("=") for pair in args.epochs.split(",") if pair)}
    cube, _, truth = args.scene.partition("=")
    scene = open_scene(cube)
    labels = open_labels(truth or cube, scene=scene)
    lines = args.json.read_text().splitlines() if args.json and args.json.exists() else []
    done = {(r["scene"], r["draw"], r["seed"], r["method"], r["epochs"]): r for r in map(json.loads, lines)}
    results: dict[str, list[dict[str, Any]]] = {}
    for seed in range(args.first, args.first + args.seeds):
        split = draw(labels, args.draw, seed)
        for name in args.methods.split(","):
            setting = {"scene": cube, "draw": args.draw, "seed": seed, "method": name, "epochs": epochs.get(name)}
            result = done.get(tuple(setting.values()))
            if result is None:
                result = setting | run(scene, labels, split, name, epochs.get(name), seed)
                if args.json:
                    with args.json.open("a") as file:
                        file.write(json.dumps(result) + "\n")
            results.setdefault(name, []).append(result)
            print(f"seed {seed}  {name:15} {_line(result)}", flush=True)
    for name, runs in results.items():
        medians = {key: statistics.median(r[key] for r in runs) for key in SHOWN if runs[0].get(key) is not None}
        print(f"median  {name:15} {_line(medians)}  of {len(runs)} (seconds of processor time)")


def _line(figures: dict[str, Any]) -> str:
    return "  ".join(f"{key} {figures[key]:.4g}" for key in SHOWN if figures.get(key) is not None)


if __name__ == "__main__":
    main()
