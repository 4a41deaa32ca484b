"""Whether the bands that `hypercaps explain` names matter: docs/explain.md shows the outcome.

Each scene's model (10 % of the labels, 30 epochs) is asked about every class. In each pixel the bands that speak most
for the class are put to the scene's mean, and so are as many at random.

python benchmarks/explain_deletion.py --pixels 10 indian-pines salinas-a
"""

from __future__ import annotations

import argparse
import os
from dataclasses import astuple

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command line does, before torch is loaded

import numpy as np

from hypercaps import ConvCapsClassifier, open_labels, open_scene
from hypercaps.compute.devices import use_threads
from hypercaps.errors import SceneError
from hypercaps.inference.explain import explain_class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", default=["indian-pines", "salinas-a"])
    parser.add_argument("--pixels", type=int, default=10, help="of each class")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    for name in args.scenes:
        scene, labels = open_scene(name), open_labels(name)
        model = ConvCapsClassifier(train=0.1, epochs=30).fit(scene, labels, evaluate=False).model_
        checks = []
        for entry in model.legend:
            try:
                check = explain_class(model, scene, entry.label, most=args.pixels).deletion
            except SceneError:  # the model gives it no pixel
                continue
            checks.append(check)
            print(f"{name} {entry.name:30} {check.length:.3f} top {check.without_top:.3f} "
                  f"random {check.without_random:.3f} larger in {check.larger_drop:.0%}", flush=True)  # fmt: skip
        length, top, random, larger = np.mean([astuple(check)[1:] for check in checks], axis=0)
        print(f"{name}: mean of {len(checks)} classes, {checks[0].bands} of {scene.bands} bands: length {length:.3f}, "
              f"top {top:.3f}, random {random:.3f}, larger drop in {larger:.0%} of the pixels", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
