"""Compare labelling the pixels that `hypercaps suggest` proposes with labelling random pixels (see docs/suggest.md).

Indian Pines. Half of the labelled pixels are the test set; the others can be added to the training set. A model starts
with 5 labels per class and gets 20 more per round: those that it suggests, or random ones. Both start with the same
labels. With --everywhere, points are suggested in the whole scene, as the workbench does, and those of no class are
skipped; without it, only among the pixels that can be labelled.

python benchmarks/suggest_study.py --seeds 4 --rounds 6
python benchmarks/suggest_study.py --everywhere --start 3 --add 40 --rounds 1
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import defaultdict

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # before torch is loaded, as the command line does

import numpy as np
import numpy.typing as npt

from hypercaps import ConvCapsClassifier, Split, open_labels, open_scene, split_per_class
from hypercaps.compute.devices import use_threads
from hypercaps.inference.predict import windows_of
from hypercaps.inference.suggest import suggest

Pixels = npt.NDArray[np.int64]  # flat indices
_MOST = 500  # points in the whole scene, of which many are of no class
Scores = dict[tuple[str, int], list[tuple[float, float]]]  # (strategy, number of labels) -> OA and AA of each seed


class Experiment:
    """One seed: its first labels, the pixels that can be labelled, and the test set."""

    def __init__(self, args: argparse.Namespace, seed: int) -> None:
        self.args, self.seed = args, seed
        self.scene, self.labels = open_scene("indian-pines"), open_labels("indian-pines")
        self.rng = np.random.default_rng(seed)
        self.start = split_per_class(self.labels, args.start, 0.0, seed=seed).train
        others = np.setdiff1d(np.flatnonzero(self.labels.array > 0), self.start)
        self.test = np.sort(self.rng.choice(others, others.size // 2, replace=False))
        self.unlabelled = np.setdiff1d(others, self.test)

    def fit(self, train: Pixels) -> ConvCapsClassifier:
        split = Split.from_indices(self.labels, train, np.empty(0, dtype=np.int64), self.test)
        classifier = ConvCapsClassifier(epochs=self.args.epochs, batch_size=16, seed=self.seed)
        return classifier.fit(self.scene, self.labels, split)

    def suggested(self, model: ConvCapsClassifier, train: Pixels, unlabelled: Pixels) -> Pixels:
        only, labelled = np.zeros(self.labels.shape, dtype=bool), np.zeros(self.labels.shape, dtype=bool)
        only.ravel()[unlabelled] = labelled.ravel()[train] = True
        asked = None if self.args.everywhere else only
        windows = model.map_windows(self.scene, windows_of(self.scene, 128), only=asked, with_scores=True, raw=True)
        most = _MOST if self.args.everywhere else self.args.add
        points = suggest(windows, model.legend_, most, labelled=labelled)
        return np.array([point.row * self.scene.cols + point.col for point in points if only[point.row, point.col]])[
            : self.args.add
        ]

    def run(self, scores: Scores) -> None:
        """Add labels round by round with both strategies; adds to ``scores``."""
        first = self.fit(self.start)
        for strategy in ("suggested", "random"):
            model, train, unlabelled = first, self.start, self.unlabelled
            for step in range(self.args.rounds + 1):
                scores[strategy, train.size].append((model.scores_.oa, model.scores_.aa))
                print(f"seed {self.seed} {strategy:9} {train.size} labels: OA {model.scores_.oa:.2f}", flush=True)
                if step == self.args.rounds:
                    break
                if strategy == "suggested":
                    more = self.suggested(model, train, unlabelled)
                else:
                    more = self.rng.choice(unlabelled, self.args.add, False)
                train, unlabelled = np.sort(np.concatenate([train, more])), np.setdiff1d(unlabelled, more)
                model = self.fit(train)


def print_summary(scores: Scores) -> None:
    curves: dict[str, dict[int, float]] = {"suggested": {}, "random": {}}
    for (strategy, size), pairs in scores.items():
        oa, aa = zip(*pairs, strict=True)
        curves[strategy][size] = statistics.mean(oa)
        print(f"{strategy:9} {size:4} labels: OA {statistics.mean(oa):.2f} ({min(oa):.2f}-{max(oa):.2f}), "
              f"AA {statistics.mean(aa):.2f}")  # fmt: skip
    for size, mean in curves["suggested"].items():
        gains = [one[0] - two[0] for one, two in zip(scores["suggested", size], scores["random", size], strict=True)]
        error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
        sizes, means = zip(*sorted(curves["random"].items()), strict=True)
        equivalent = np.interp(mean, np.maximum.accumulate(means), sizes)
        beyond = "more than " if mean > max(means) else ""
        wins = f"{sum(gain > 0 for gain in gains)} of {len(gains)} seeds"
        print(f"{size:4} labels: better by {statistics.mean(gains):+.2f} points (standard error {error:.2f}, {wins}); "
              f"as good as {beyond}{equivalent:.0f} random labels")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--add", type=int, default=20, help="labels per round")
    parser.add_argument("--start", type=int, default=5, help="labels per class at the start")
    parser.add_argument(
        "--everywhere", action="store_true", help="suggest in the whole scene, and skip what has no class"
    )
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    scores: Scores = defaultdict(list)
    for seed in range(args.seeds):
        Experiment(args, seed).run(scores)
    print_summary(scores)


if __name__ == "__main__":
    main()
