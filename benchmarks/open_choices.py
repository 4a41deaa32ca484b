"""Choices that the paper does not specify, compared on validation pixels only (see docs/open-choices.md).

python benchmarks/open_choices.py                              5 % of the labels, seeds 0 to 4, all choices
python benchmarks/open_choices.py --train 0.2 --epochs 12 --val 0.3 --first-seed 100 middle middle-spatial-x0.5
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # before torch is loaded, as the command line does

import numpy as np
import torch
from torch import Tensor, nn

from hypercaps import open_labels, open_scene, split_by_share
from hypercaps.models.recipes import Stage
from hypercaps.models.registry import get_method
from hypercaps.training.examples import Examples
from hypercaps.training.loop import LoopSettings, TrainingLoop
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PCAWhitening

Order = Callable[[int, int], Tensor]  # (number of components, seed) -> order of the components


def largest_first(components: int, seed: int) -> Tensor:
    return torch.arange(components)


def in_the_middle(components: int, seed: int) -> Tensor:
    rank = torch.arange(components)
    return torch.cat([rank[1::2].flip(0), rank[0::2]])


def at_random(components: int, seed: int) -> Tensor:
    return torch.randperm(components, generator=torch.Generator().manual_seed(seed))


def spread_evenly(components: int, seed: int) -> Tensor:
    return ((torch.arange(components) * 0.6180339887498949) % 1.0).argsort()  # by the golden ratio


# Factors from the layers' initial range (SpatialConv: half of Xavier's, 1D-ConvCaps: twice) to Xavier's.
_XAVIER = {"spatial": 2.0, "primary": 1.0, "conv": 0.5, "classcaps": 1.0}


def scale_start(network: nn.Module, factors: dict[str, float]) -> None:
    """Scale the initial weights of layers, relative to Xavier's (ClassCaps: relative to a deviation of 0.1)."""
    for name, weight in network.named_parameters():
        layer = name.split(".")[0]
        if not name.endswith("bias"):
            weight.data.mul_(_XAVIER[layer] * factors.get(layer, 1.0))


# Each changes the order of the components, the initial weights, or the training.
CHOICES: dict[str, dict[str, Any]] = {
    "largest-first": {},
    "largest-last": {"order": lambda components, seed: torch.arange(components).flip(0)},
    "spread-evenly": {"order": spread_evenly},
    "random-order": {"order": at_random},
    "spatial-x1.4-primary-x1.4": {"start": {"spatial": 2**0.5, "primary": 2**0.5}},
    "spatial-x2": {"start": {"spatial": 2.0}},
    "viewpoints-0.02": {"start": {"classcaps": 0.2}},
    "viewpoints-0.0054": {"start": {"classcaps": 0.054}},  # Glorot's, the default of Keras
    "batch-16": {"batch_size": 16},
    "batch-32": {"batch_size": 32},
    "epochs-150": {"epochs": 150},
    "rate-0.003": {"learning_rate": 0.003},
    "middle": {"order": in_the_middle},
    "middle-spatial-x2": {"order": in_the_middle, "start": {"spatial": 2.0}},
    "middle-spatial-x0.5": {"order": in_the_middle, "start": {"spatial": 0.5}},
    "middle-spatial-x0.5-conv-x2": {"order": in_the_middle, "start": {"spatial": 0.5, "conv": 2.0}},  # hypercaps
    "middle-spatial-x0.5-conv-x2.8": {"order": in_the_middle, "start": {"spatial": 0.5, "conv": 2.8}},
    "middle-spatial-x0.5-conv-x1.4": {"order": in_the_middle, "start": {"spatial": 0.5, "conv": 1.4}},
    "middle-spatial-x0.5-conv-x0.5": {"order": in_the_middle, "start": {"spatial": 0.5, "conv": 0.5}},
    "middle-spatial-x0.25-conv-x1.4": {"order": in_the_middle, "start": {"spatial": 0.25, "conv": 1.4}},
    "middle-spatial-x0.25-conv-x2": {"order": in_the_middle, "start": {"spatial": 0.25, "conv": 2.0}},
    "middle-spatial-x0.25": {"order": in_the_middle, "start": {"spatial": 0.25}},
    "middle-primary-x0.5": {"order": in_the_middle, "start": {"primary": 0.5}},
    "middle-conv-x0.5": {"order": in_the_middle, "start": {"conv": 0.5}},
    "middle-viewpoints-0.05": {"order": in_the_middle, "start": {"classcaps": 0.5}},
    "middle-viewpoints-0.2": {"order": in_the_middle, "start": {"classcaps": 2.0}},
    "middle-spatial-x0.5-viewpoints-0.05": {"order": in_the_middle, "start": {"spatial": 0.5, "classcaps": 0.5}},
}


class Trial:
    """Indian Pines, whitened, to train on with each choice."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.scene, self.labels = open_scene("indian-pines"), open_labels("indian-pines")
        self.labelled = np.flatnonzero(self.labels.array > 0)
        self.store = PatchStore(self.scene, PCAWhitening.fit(self.scene), self.labelled, 7)
        self.spectra = self.store.spectra
        classes = np.searchsorted(self.labels.legend.labels, self.labels.array.ravel()[self.labelled])
        self.targets = torch.from_numpy(classes)

    def validation_oa(self, choice: dict[str, Any], seed: int) -> float:
        """Highest validation accuracy of a training, percent."""
        split = split_by_share(self.labels, self.args.train, self.args.val, seed=seed)
        order: Order = choice.get("order", largest_first)
        self.store._spectra = self.spectra[:, order(self.scene.bands, seed)].contiguous()
        examples = Examples(
            self.store,
            self.targets,
            train=torch.from_numpy(np.searchsorted(self.labelled, split.train)),
            val=torch.from_numpy(np.searchsorted(self.labelled, split.val)),
        )
        method = get_method("convcapsnet")
        network = method.network(self.scene.bands, len(self.labels.legend), seed=seed)
        scale_start(network, choice.get("start", {}))
        optimizer = torch.optim.Adam(network.parameters(), lr=choice.get("learning_rate", 0.01))
        settings = LoopSettings(method.loss, choice.get("batch_size", 64))
        stage = Stage(choice.get("epochs", self.args.epochs), seed)
        history = TrainingLoop(network, optimizer, examples, settings, stage).run()
        return max(record.val_oa or 0.0 for record in history.records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("choices", nargs="*", default=list(CHOICES), help=", ".join(CHOICES))
    parser.add_argument("--train", type=float, default=0.05)
    parser.add_argument("--val", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=50)
    args = parser.parse_args()
    trial = Trial(args)
    for name in args.choices:
        seeds = range(args.first_seed, args.first_seed + args.seeds)
        oas = [trial.validation_oa(CHOICES[name], seed) for seed in seeds]
        listed = ", ".join(f"{oa:.2f}" for oa in oas)
        print(f"{name:36} mean {statistics.mean(oas):.2f}  median {statistics.median(oas):.2f}  ({listed})", flush=True)


if __name__ == "__main__":
    main()
