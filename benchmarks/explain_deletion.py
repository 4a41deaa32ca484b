"""Deletion test of the band attributions of `hypercaps explain` (see docs/explain.md for the results).

For each scene, a model is trained on 10 % of the labels for 30 epochs. For every class and pixel, the bands with the
highest attribution are replaced by the scene's mean, and for comparison as many random bands.

python benchmarks/explain_deletion.py --pixels 10 indian-pines salinas-a
"""

from __future__ import annotations

import argparse
import os
from dataclasses import astuple

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # before torch is loaded, as the command line does

import numpy as np

from hypercaps import ConvCapsClassifier, open_labels, open_scene
from hypercaps.compute.devices import use_threads
from hypercaps.errors import SceneError
from hypercaps.inference.explain import explain_class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", default=["indian-pines", "salinas-a"])
    parser.add_argument("--pixels", type=int, default=10, help="pixels per class")
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
            except SceneError:  # no pixel was classified as this class
                continue
            checks.append(check)
            print(f"{name} {entry.name:30} {check.length:.3f} top {check.without_top:.3f} "
                  f"random {check.without_random:.3f} larger in {check.larger_drop:.0%}", flush=True)  # fmt: skip
        length, top, random, larger = np.mean([astuple(check)[1:] for check in checks], axis=0)
        print(f"{name}: mean of {len(checks)} classes, {checks[0].bands} of {scene.bands} bands: length {length:.3f}, "
              f"top {top:.3f}, random {random:.3f}, larger drop in {larger:.0%} of the pixels", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
