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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from hypercaps import ConvCapsClassifier, Labels, Scene, Split, open_labels, open_scene, split_blocks
from hypercaps.capsules.loss import margin_loss
from hypercaps.models.registry import METHODS, SelfTraining
from hypercaps.patches import PatchStore, symmetries
from hypercaps.training import use_threads

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


@contextmanager
def changed(method: dict[str, Any] | None = None, store: Callable[..., PatchStore] | None = None) -> Iterator[None]:
    """The registered method with other parts, or patches that are spoilt in another way."""
    known = METHODS["convcapsnet"]
    with mock.patch.dict(METHODS, {"convcapsnet": replace(known, **(method or {}))}):
        if store is None:
            yield
        else:
            with mock.patch.object(PatchStore, "with_noise", store):
                yield


class Tuned(SelfTraining):
    """The recipe with another optimizer."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer]) -> None:
        assert isinstance(RECIPE, SelfTraining)
        super().__init__(**{name: getattr(RECIPE, name) for name in RECIPE.__dataclass_fields__})
        object.__setattr__(self, "make", make)

    def make_optimizer(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        return self.make(network.parameters())  # type: ignore[attr-defined, no-any-return]


def tuned(make: Callable[[Any], torch.optim.Optimizer]) -> dict[str, Any]:
    return {"recipes": {"best": Tuned(make)}}


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


def scores(fitted: ConvCapsClassifier, scene: Scene, pixels: Any, *, turned: bool = False) -> Tensor:
    """Lengths (N, n) of pixels, or their mean over the eight symmetries."""
    model = fitted.model_
    store = PatchStore(scene, model.preprocessing, pixels, model.patch)
    which = torch.arange(len(store))
    ways = symmetries(model.patch)[: 8 if turned else 1]
    with torch.inference_mode():
        found = [model.network(store.gather(which, way.expand(len(which), -1))) for way in ways]
    return torch.stack(found).mean(dim=0)


def judge(scene: Scene, labels: Labels, split: Split, seed: int) -> Iterator[tuple[str, float]]:
    """The name of a change and its validation accuracy."""
    truth = torch.from_numpy(np.searchsorted(labels.legend.labels, labels.array.ravel()[split.val]))

    def fit(seed: int = seed, **options: Any) -> ConvCapsClassifier:
        return ConvCapsClassifier(recipe="best", seed=seed, **options).fit(scene, labels, split, evaluate=False)

    def right(said: Tensor) -> float:
        return 100 * float((said.argmax(dim=1) == truth).double().mean())

    plain = fit()
    said = scores(plain, scene, split.val)
    yield "best", right(said)
    yield "mean over the eight symmetries", right(scores(plain, scene, split.val, turned=True))
    others = [scores(fit(seed + 1000 * k), scene, split.val) for k in (1, 2)]
    yield "best, another seed", right(others[0])
    yield "mean of three seeds", right(said + others[0] + others[1])
    for patch in (9, LARGEST):
        yield f"patch {patch}", right(scores(fit(patch=patch), scene, split.val))
    for decay in (1e-4, 1e-3, 1e-2):
        with changed(tuned(functools.partial(torch.optim.AdamW, lr=0.01, weight_decay=decay))):
            yield f"weight decay {decay:g}", right(scores(fit(), scene, split.val))
    Averaging.averages.clear()
    with changed(tuned(functools.partial(Averaging, lr=0.01))):
        averaged = fit()
    weights = list(averaged.model_.network.parameters())
    with torch.no_grad():
        for weight, average in zip(weights, Averaging.averages[id(weights[0])], strict=True):
            weight.copy_(average)
    yield "moving average of weights", right(scores(averaged, scene, split.val))
    with changed({"loss": smoothed(0.1)}):
        yield "labels smoothed by 0.1", right(scores(fit(), scene, split.val))
    with changed(store=dropping(0.1)):
        yield "a tenth of the components dropped", right(scores(fit(), scene, split.val))
    dark = plain.model_.preprocessing.transform(np.zeros((1, scene.bands), dtype=np.float32))
    for deviation in (0.01, 0.05):
        with changed(store=brighter(deviation, dark)):
            yield f"brightness changed by {deviation:.0%}", right(scores(fit(), scene, split.val))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=100, help="the first seed")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    use_threads(args.threads)
    scene = open_scene("indian-pines")
    labels = open_labels("indian-pines", scene=scene)
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(args.first, args.first + args.seeds):
        for name, accuracy in judge(scene, labels, split_blocks(labels, 0.4, 0.1, seed=seed, patch=LARGEST), seed):
            found[name].append(accuracy)
            print(f"seed {seed}  {name:35} {accuracy:6.2f}", flush=True)
    for name, accuracies in found.items():
        listed = ", ".join(f"{accuracy:.1f}" for accuracy in accuracies)
        print(f"mean  {name:35} {statistics.mean(accuracies):6.2f}  ({listed})")


if __name__ == "__main__":
    main()
