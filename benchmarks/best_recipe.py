"""Recipe best against recipe paper and RBF-SVM on windows: accuracy and training time on the same draws.

    python benchmarks/best_recipe.py --scene indian-pines --draw 0.05 --seeds 3
    python benchmarks/best_recipe.py --draw per-class:10
    python benchmarks/best_recipe.py --draw blocks        # needs hypercaps.splits.split_blocks

Prints a line a run and the medians; one thread unless told otherwise, so that times can be compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from hypercaps import (
    ConvCapsClassifier,
    Labels,
    Split,
    open_labels,
    open_scene,
    split_by_share,
    split_per_class,
    splits,
)
from hypercaps.training import use_threads

RIVALS: dict[str, dict[str, Any]] = {
    "best": {"recipe": "best"},
    "paper": {"recipe": "paper"},
    "rbf-svm-window": {"method": "rbf-svm-window"},
}


def draw(labels: Labels, how: str, seed: int) -> Split:
    """A share of each class (0.05), per-class:N, or blocks: 40 % for training, 10 % for validation."""
    if how == "blocks":
        blocks: Callable[..., Split] | None = getattr(splits, "split_blocks", None)
        if blocks is None:
            raise SystemExit("this hypercaps can't draw blocks: take a share or per-class:N")
        return blocks(labels, 0.4, 0.1, seed=seed)
    if how.startswith("per-class:"):
        return split_per_class(labels, int(how.removeprefix("per-class:")), 0.1, seed=seed)
    return split_by_share(labels, float(how), 0.1, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", default="indian-pines")
    parser.add_argument("--draw", default="0.05", help="a share, per-class:N, or blocks")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(RIVALS), help="some of best, paper, rbf-svm-window")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    scene = open_scene(args.scene)
    labels = open_labels(args.scene, scene=scene)
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(args.first, args.first + args.seeds):
        split = draw(labels, args.draw, seed)
        for name in args.methods.split(","):
            before = time.process_time()
            fitted = ConvCapsClassifier(**RIVALS[name], seed=seed).fit(scene, labels, split, evaluate=False)
            seconds = time.process_time() - before
            scores = fitted.evaluate(scene, labels, split)
            found.setdefault(name, []).append((scores.oa, scores.aa, seconds))
            print(f"seed {seed}  {name:15} OA {scores.oa:6.2f}  AA {scores.aa:6.2f}  {seconds:6.1f} s", flush=True)
    for name, runs in found.items():
        oa, aa, seconds = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"median  {name:15} OA {oa:6.2f}  AA {aa:6.2f}  {seconds:6.1f} s of processor time")


if __name__ == "__main__":
    main()
