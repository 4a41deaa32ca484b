"""The accuracy that the README states: overall accuracy of several seeds with the paper's recipe and split.

python benchmarks/accuracy.py                        Indian Pines, seeds 0 to 4
python benchmarks/accuracy.py CUBE.mat LABELS.mat    any other scene
"""

from __future__ import annotations

import argparse
import statistics

from hypercaps import ConvCapsClassifier, open_labels, open_scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", nargs="?", default="indian-pines")
    parser.add_argument("labels", nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--train", type=float, default=0.2)
    args = parser.parse_args()
    scene, labels = open_scene(args.scene), open_labels(args.labels or args.scene)
    found = []
    for seed in range(args.seeds):
        fitted = ConvCapsClassifier(train=args.train, seed=seed).fit(scene, labels)
        scores, history = fitted.scores_, fitted.history_
        found.append(scores.oa)
        print(
            f"seed {seed}: OA {scores.oa:.2f}  AA {scores.aa:.2f}  kappa {scores.kappa:.2f}  "
            f"kept epoch {history.best_epoch}  first epoch {history.records[0].val_oa}  {history.seconds:.1f} s",
            flush=True,
        )
    print(f"{args.scene}, {args.train:.0%} of labels: median OA {statistics.median(found):.2f} of {args.seeds} seeds")


if __name__ == "__main__":
    main()
