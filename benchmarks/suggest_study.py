"""How many labels `hypercaps suggest` saves against labels at random: docs/suggest.md shows the outcome.

Indian Pines. Half of the labelled pixels are the test set; the others can be labelled. A model starts from 5 labels of
each class and gets 20 more a round: those that it suggests, or as many at random. Both start from the same labels.

python benchmarks/suggest_study.py --seeds 4 --rounds 6
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import defaultdict

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line does, before torch is loaded

import numpy as np
import numpy.typing as npt

from hypercaps import ConvCapsClassifier, Split, open_labels, open_scene, split_per_class
from hypercaps.compute.devices import use_threads
from hypercaps.inference.predict import windows_of
from hypercaps.inference.suggest import suggest

Pixels = npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--add", type=int, default=20, help="labels a round")
    parser.add_argument("--start", type=int, default=5, help="labels of each class to start from")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    scene, labels = open_scene("indian-pines"), open_labels("indian-pines")
    empty = np.empty(0, dtype=np.int64)
    found: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for seed in range(args.seeds):
        rng = np.random.default_rng(seed)
        start = split_per_class(labels, args.start, 0.0, seed=seed).train
        others = np.setdiff1d(np.flatnonzero(labels.array > 0), start)
        test = np.sort(rng.choice(others, others.size // 2, replace=False))
        free = np.setdiff1d(others, test)

        def trained(train: Pixels, test: Pixels = test, seed: int = seed) -> ConvCapsClassifier:
            split = Split.from_indices(labels, train, empty, test)
            return ConvCapsClassifier(epochs=args.epochs, batch_size=16, seed=seed).fit(scene, labels, split)

        def by_suggestion(model: ConvCapsClassifier, train: Pixels, free: Pixels) -> Pixels:
            only, known = np.zeros(labels.shape, dtype=bool), np.zeros(labels.shape, dtype=bool)
            only.ravel()[free] = known.ravel()[train] = True
            windows = model.map_windows(scene, windows_of(scene, 128), only=only, with_scores=True, raw=True)
            points = suggest(windows, model.legend_, args.add, labelled=known)
            return np.array([point.row * scene.cols + point.col for point in points])

        first = trained(start)
        for how in ("suggested", "random"):
            model, train, left = first, start, free
            for step in range(args.rounds + 1):
                found[how, train.size].append((model.scores_.oa, model.scores_.aa))
                print(f"seed {seed} {how:9} {train.size} labels: OA {model.scores_.oa:.2f}", flush=True)
                if step == args.rounds:
                    break
                more = by_suggestion(model, train, left) if how == "suggested" else rng.choice(left, args.add, False)
                train, left = np.sort(np.concatenate([train, more])), np.setdiff1d(left, more)
                model = trained(train)
    curves: dict[str, dict[int, float]] = {"suggested": {}, "random": {}}
    for (how, size), scores in found.items():
        oa, aa = zip(*scores, strict=True)
        curves[how][size] = statistics.mean(oa)
        print(f"{how:9} {size:4} labels: OA {statistics.mean(oa):.2f} ({min(oa):.2f}-{max(oa):.2f}), "
              f"AA {statistics.mean(aa):.2f}")  # fmt: skip
    for size in curves["suggested"]:
        pairs = zip(found["suggested", size], found["random", size], strict=True)
        ahead = [one[0] - two[0] for one, two in pairs]
        error = statistics.stdev(ahead) / len(ahead) ** 0.5 if len(ahead) > 1 else float("nan")
        sizes, means = zip(*sorted(curves["random"].items()), strict=True)
        as_good = np.interp(curves["suggested"][size], np.maximum.accumulate(means), sizes)
        beyond = "more than " if curves["suggested"][size] > max(means) else ""
        wins = f"{sum(a > 0 for a in ahead)} of {len(ahead)} seeds"
        print(f"{size:4} labels: ahead by {statistics.mean(ahead):+.2f} points (standard error {error:.2f}, {wins}); "
              f"as good as {beyond}{as_good:.0f} at random")  # fmt: skip


if __name__ == "__main__":
    main()
