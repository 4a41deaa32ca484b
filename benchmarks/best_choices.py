"""What else might have been part of the recipe best: one change at a time, judged by validation pixels.

    python benchmarks/best_choices.py --seeds 4              # about 15 minutes on one core

Indian Pines, blocks of 16 x 16 pixels, 40 % for training, 10 % for validation; the guard band is that of the largest
patch tried, so that all have the same pixels. Prints the validation accuracy of each draw and the means, which are in
docs/best.md.
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
    """Margin loss that takes each label for right in all but ``share`` of the cases, else for any class."""

    def loss(lengths: Tensor, targets: Tensor) -> Tensor:
        n = lengths.shape[1]
        every = torch.arange(n)[:, None].expand(n, len(targets))
        uniform = torch.stack([margin_loss(lengths, one) for one in every]).mean()
        return (1 - share) * margin_loss(lengths, targets) + share * uniform

    return loss


class Averaging(torch.optim.Adam):
    """Adam that also keeps a moving average of the weights."""

    averages: dict[int, list[Tensor]] = {}  # noqa: RUF012  # by the address of a network's first weight

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        weights = [p for group in self.param_groups for p in group["params"]]
        kept = self.averages.setdefault(id(weights[0]), [p.detach().clone() for p in weights])
        for average, weight in zip(kept, weights, strict=True):
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


def dropping(share: float) -> Callable[..., PatchStore]:
    """Noise, and a share of all components put to the mean."""

    def with_noise(self: PatchStore, which: Tensor, sigma: float, rng: np.random.Generator) -> PatchStore:
        noisy = NOISE(self, which, sigma, rng)
        keep = torch.from_numpy(rng.random(noisy._spectra.shape, dtype=np.float32) >= share)
        noisy._spectra = noisy._spectra * keep
        return noisy

    return with_noise


def brighter(deviation: float, dark: Tensor) -> Callable[..., PatchStore]:
    """Noise, and every spectrum brighter or darker by a factor; ``dark`` is a spectrum of zeros, whitened."""

    def with_noise(self: PatchStore, which: Tensor, sigma: float, rng: np.random.Generator) -> PatchStore:
        noisy = NOISE(self, which, sigma, rng)
        factor = 1 + deviation * torch.from_numpy(rng.standard_normal((len(noisy._spectra), 1), dtype=np.float32))
        noisy._spectra = dark + factor * (noisy._spectra - dark)
        return noisy

    return with_noise


class Trial:
    """One draw: networks trained on it, each with one change, and how many validation pixels they get right."""

    def __init__(self, scene: Scene, labels: Labels, split: Split, seed: int) -> None:
        self.scene, self.labels, self.split, self.seed = scene, labels, split, seed
        self.truth = torch.from_numpy(np.searchsorted(labels.legend.labels, labels.array.ravel()[split.val]))

    def fit(self, another: int = 0, **options: Any) -> ConvCapsClassifier:
        seed = self.seed + 1000 * another
        return ConvCapsClassifier(recipe="best", seed=seed, **options).fit(
            self.scene, self.labels, self.split, evaluate=False
        )

    @functools.lru_cache(maxsize=3)  # noqa: B019  # a trial lives as long as its draw
    def plain(self, another: int = 0) -> ConvCapsClassifier:
        return self.fit(another)

    def scores(self, fitted: ConvCapsClassifier, *, turned: bool = False) -> Tensor:
        """Lengths (N, n) at the validation pixels, or their mean over the eight symmetries."""
        model = fitted.model_
        store = PatchStore(self.scene, model.preprocessing, self.split.val, model.patch)
        which = torch.arange(len(store))
        ways = symmetries(model.patch)[: 8 if turned else 1]
        with torch.inference_mode():
            found = [model.network(store.gather(which, way.expand(len(which), -1))) for way in ways]
        return torch.stack(found).mean(dim=0)

    def changed(self, method: dict[str, Any] | None = None, store: Callable[..., PatchStore] | None = None) -> Tensor:
        """With other parts of the registered method, or patches that are spoilt in another way."""
        parts = replace(METHODS["convcapsnet"], **(method or {}))
        spoiling = mock.patch.object(PatchStore, "with_noise", store or NOISE)
        with mock.patch.dict(METHODS, {"convcapsnet": parts}), spoiling:
            return self.scores(self.fit())

    def optimized(self, make: Callable[..., torch.optim.Optimizer], **options: Any) -> Tensor:
        return self.changed({"recipes": {"best": Tuned(functools.partial(make, lr=0.01, **options))}})

    def averaged(self) -> Tensor:
        Averaging.averages.clear()
        recipes = {"best": Tuned(functools.partial(Averaging, lr=0.01))}
        with mock.patch.dict(METHODS, {"convcapsnet": replace(METHODS["convcapsnet"], recipes=recipes)}):
            fitted = self.fit()
        weights = list(fitted.model_.network.parameters())
        with torch.no_grad():
            for weight, average in zip(weights, Averaging.averages[id(weights[0])], strict=True):
                weight.copy_(average)
        return self.scores(fitted)

    def brighter(self, deviation: float) -> Tensor:
        dark = self.plain().model_.preprocessing.transform(np.zeros((1, self.scene.bands), dtype=np.float32))
        return self.changed(store=brighter(deviation, dark))

    def right(self, said: Tensor) -> float:
        return 100 * float((said.argmax(dim=1) == self.truth).double().mean())


CHANGES: dict[str, Callable[[Trial], Tensor]] = {
    "best": lambda t: t.scores(t.plain()),
    "another seed": lambda t: t.scores(t.plain(1)),
    "mean over the eight symmetries": lambda t: t.scores(t.plain(), turned=True),
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
    "a tenth of the components dropped": lambda t: t.changed(store=dropping(0.1)),
    "brightness changed by 1 %": lambda t: t.brighter(0.01),
    "brightness changed by 5 %": lambda t: t.brighter(0.05),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=100, help="the first seed")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", action="append", choices=CHANGES, metavar="CHANGE", help="these and no others")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    scene = open_scene("indian-pines")
    labels = open_labels("indian-pines", scene=scene)
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(args.first, args.first + args.seeds):
        trial = Trial(scene, labels, split_blocks(labels, 0.4, 0.1, seed=seed, patch=LARGEST), seed)
        for name in args.only or CHANGES:
            accuracy = trial.right(CHANGES[name](trial))
            found[name].append(accuracy)
            print(f"seed {seed}  {name:35} {accuracy:6.2f}", flush=True)
    for name, accuracies in found.items():
        listed = ", ".join(f"{accuracy:.1f}" for accuracy in accuracies)
        print(f"mean  {name:35} {statistics.mean(accuracies):6.2f}  ({listed})")


if __name__ == "__main__":
    main()
