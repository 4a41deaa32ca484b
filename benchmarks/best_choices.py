"""Candidate changes of recipe best, one at a time, compared on validation pixels.

    python benchmarks/best_choices.py --seeds 4              # about 15 minutes on one core

Indian Pines, blocks of 16 x 16 pixels, 40 % for training, 10 % for validation; the guard band is that of the largest
patch, so that all changes use the same pixels. Prints the validation accuracy of each split and the means, which are
listed in docs/best.md.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from hypercaps import ConvCapsClassifier, Labels, Scene, Split, open_labels, open_scene, split_blocks
from hypercaps.compute.devices import use_threads
from hypercaps.models.capsules.loss import margin_loss
from hypercaps.models.recipes import SelfTraining
from hypercaps.models.registry import METHODS
from hypercaps.training.patches import PatchStore, symmetries

LARGEST = 11  # patch
RECIPE = METHODS["convcapsnet"].recipes["best"]


def smoothed(share: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Margin loss with label smoothing by ``share``."""

    def loss(lengths: Tensor, targets: Tensor) -> Tensor:
        n = lengths.shape[1]
        classes = torch.arange(n)[:, None].expand(n, len(targets))
        uniform = torch.stack([margin_loss(lengths, one) for one in classes]).mean()
        return (1 - share) * margin_loss(lengths, targets) + share * uniform

    return loss


class Averaging(torch.optim.Adam):
    """Adam with a moving average of the weights."""

    averages: dict[int, list[Tensor]] = {}  # noqa: RUF012  # by the id of a network's first weight

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        weights = [p for group in self.param_groups for p in group["params"]]
        averages = self.averages.setdefault(id(weights[0]), [p.detach().clone() for p in weights])
        for average, weight in zip(averages, weights, strict=True):
            average.lerp_(weight.detach(), 0.01)
        return result


class Tuned(SelfTraining):
    """The recipe with another optimizer."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer]) -> None:
        assert isinstance(RECIPE, SelfTraining)
        super().__init__(**{field.name: getattr(RECIPE, field.name) for field in fields(RECIPE)})
        object.__setattr__(self, "make", make)

    def make_optimizer(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        return self.make(network.parameters())  # type: ignore[attr-defined, no-any-return]


NOISE = PatchStore.with_noise


def component_dropout(share: float) -> Callable[..., PatchStore]:
    """Noise, and a share of all components set to the mean."""

    def with_noise(self: PatchStore, which: Tensor, sigma: float, rng: np.random.Generator) -> PatchStore:
        noisy = NOISE(self, which, sigma, rng)
        keep = torch.from_numpy(rng.random(noisy._spectra.shape, dtype=np.float32) >= share)
        noisy._spectra = noisy._spectra * keep
        return noisy

    return with_noise


def scaled_brightness(deviation: float, dark: Tensor) -> Callable[..., PatchStore]:
    """Noise, and every spectrum scaled by a random factor; ``dark`` is a spectrum of zeros, whitened."""

    def with_noise(self: PatchStore, which: Tensor, sigma: float, rng: np.random.Generator) -> PatchStore:
        noisy = NOISE(self, which, sigma, rng)
        factor = 1 + deviation * torch.from_numpy(rng.standard_normal((len(noisy._spectra), 1), dtype=np.float32))
        noisy._spectra = dark + factor * (noisy._spectra - dark)
        return noisy

    return with_noise


class Trial:
    """One split: trains networks on it, each with one change, and measures their validation accuracy."""

    def __init__(self, scene: Scene, labels: Labels, split: Split, seed: int) -> None:
        self.scene, self.labels, self.split, self.seed = scene, labels, split, seed
        self.truth = torch.from_numpy(np.searchsorted(labels.legend.labels, labels.array.ravel()[split.val]))

    def fit(self, repeat: int = 0, **options: Any) -> ConvCapsClassifier:
        seed = self.seed + 1000 * repeat
        return ConvCapsClassifier(recipe="best", seed=seed, **options).fit(
            self.scene, self.labels, self.split, evaluate=False
        )

    @functools.lru_cache(maxsize=3)  # noqa: B019  # a trial lives as long as its split
    def plain(self, repeat: int = 0) -> ConvCapsClassifier:
        return self.fit(repeat)

    def scores(self, fitted: ConvCapsClassifier, *, symmetric: bool = False) -> Tensor:
        """Lengths (N, n) at the validation pixels, or their mean over the eight symmetries."""
        model = fitted.model_
        store = PatchStore(self.scene, model.preprocessing, self.split.val, model.patch)
        which = torch.arange(len(store))
        views = symmetries(model.patch)[: 8 if symmetric else 1]
        with torch.inference_mode():
            lengths = [model.module(store.gather(which, view.expand(len(which), -1))) for view in views]
        return torch.stack(lengths).mean(dim=0)

    def changed(self, method: dict[str, Any] | None = None, store: Callable[..., PatchStore] | None = None) -> Tensor:
        """Scores with other parts of the registered method, or another augmentation of the patches."""
        parts = replace(METHODS["convcapsnet"], **(method or {}))
        augmentation = mock.patch.object(PatchStore, "with_noise", store or NOISE)
        with mock.patch.dict(METHODS, {"convcapsnet": parts}), augmentation:
            return self.scores(self.fit())

    def optimized(self, make: Callable[..., torch.optim.Optimizer], **options: Any) -> Tensor:
        return self.changed({"recipes": {"best": Tuned(functools.partial(make, lr=0.01, **options))}})

    def averaged(self) -> Tensor:
        Averaging.averages.clear()
        recipes = {"best": Tuned(functools.partial(Averaging, lr=0.01))}
        with mock.patch.dict(METHODS, {"convcapsnet": replace(METHODS["convcapsnet"], recipes=recipes)}):
            fitted = self.fit()
        weights = list(fitted.model_.module.parameters())
        with torch.no_grad():
            for weight, average in zip(weights, Averaging.averages[id(weights[0])], strict=True):
                weight.copy_(average)
        return self.scores(fitted)

    def brighter(self, deviation: float) -> Tensor:
        preprocessing = self.plain().model_.preprocessing
        dark = torch.from_numpy(preprocessing.transform(np.zeros((1, self.scene.bands), dtype=np.float32)))
        return self.changed(store=scaled_brightness(deviation, dark))

    def accuracy(self, scores: Tensor) -> float:
        return 100 * float((scores.argmax(dim=1) == self.truth).double().mean())


CHANGES: dict[str, Callable[[Trial], Tensor]] = {
    "best": lambda t: t.scores(t.plain()),
    "another seed": lambda t: t.scores(t.plain(1)),
    "mean over the eight symmetries": lambda t: t.scores(t.plain(), symmetric=True),
    "mean of three seeds": lambda t: t.scores(t.plain()) + t.scores(t.plain(1)) + t.scores(t.plain(2)),
    "patch 9": lambda t: t.scores(t.fit(patch=9)),
    "patch 11": lambda t: t.scores(t.fit(patch=11)),
    "weight decay 0.0001": lambda t: t.optimized(torch.optim.AdamW, weight_decay=1e-4),
    "weight decay 0.001": lambda t: t.optimized(torch.optim.AdamW, weight_decay=1e-3),
    "weight decay 0.01": lambda t: t.optimized(torch.optim.AdamW, weight_decay=1e-2),
    "moving average of weights": lambda t: t.averaged(),
    "labels smoothed by 0.05": lambda t: t.changed({"loss": smoothed(0.05)}),
    "labels smoothed by 0.1": lambda t: t.changed({"loss": smoothed(0.1)}),
    "labels smoothed by 0.2": lambda t: t.changed({"loss": smoothed(0.2)}),
    "a tenth of the components dropped": lambda t: t.changed(store=component_dropout(0.1)),
    "brightness changed by 1 %": lambda t: t.brighter(0.01),
    "brightness changed by 5 %": lambda t: t.brighter(0.05),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=100, help="first seed")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", action="append", choices=CHANGES, metavar="CHANGE", help="only these changes")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    scene = open_scene("indian-pines")
    labels = open_labels("indian-pines", scene=scene)
    results: dict[str, list[float]] = defaultdict(list)
    for seed in range(args.first, args.first + args.seeds):
        trial = Trial(scene, labels, split_blocks(labels, 0.4, 0.1, seed=seed, patch=LARGEST), seed)
        for name in args.only or CHANGES:
            accuracy = trial.accuracy(CHANGES[name](trial))
            results[name].append(accuracy)
            print(f"seed {seed}  {name:35} {accuracy:6.2f}", flush=True)
    for name, accuracies in results.items():
        listed = ", ".join(f"{accuracy:.1f}" for accuracy in accuracies)
        print(f"mean  {name:35} {statistics.mean(accuracies):6.2f}  ({listed})")


if __name__ == "__main__":
    main()
