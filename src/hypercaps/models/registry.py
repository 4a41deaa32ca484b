"""The methods by name, each with what it looks at and the ways it is trained."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from hypercaps.errors import ModelError
from hypercaps.models.c_cnn import ConvCNN
from hypercaps.models.capsnet import CapsNet
from hypercaps.models.capsules.loss import margin_loss
from hypercaps.models.cnn3d import CNN3D
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.models.mlp import MLP
from hypercaps.models.se_cnn2d import SemiCNN, semi_supervised_loss
from hypercaps.models.svm import RBFSVM, WindowSVM, error_share

LARGE_SCENE = 20_000  # labelled pixels from which the paper's larger batch is used
_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam": partial(torch.optim.Adam, fused=True),
    "SGD": torch.optim.SGD,
}


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: a fixed learning rate, weights of the best validation epoch."""

    name: str
    epochs: int
    learning_rate: float
    batch_small: int = 64  # scenes with fewer than LARGE_SCENE labelled pixels
    batch_large: int = 256
    optimizer: str = "Adam"
    structure: Mapping[str, Any] | None = None  # sizes and starting weights that belong to the recipe
    also: str = ""  # what the structure means, in words

    def epochs_for(self, training_pixels: int) -> int:
        """Epochs, if the user wishes no other number."""
        return self.epochs

    def batch_size(self, labelled: int) -> int:
        return self.batch_small if labelled < LARGE_SCENE else self.batch_large

    def make_optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        return _OPTIMIZERS[self.optimizer](network.parameters(), lr=self.learning_rate)

    def describe(self) -> str:
        batches = str(self.batch_small)
        if self.batch_large != self.batch_small:
            batches += f" or {self.batch_large}"
        also = f", {self.also}" if self.also else ""
        return f"{self.optimizer} {self.learning_rate:g}, {self.epochs} epochs, batch {batches}{also}"


class Stages(NamedTuple):
    """How long the two stages of self-training are."""

    first: int  # epochs over the training pixels
    second: int  # epochs over these and the extra ones; 0: there are none to be had
    extra: int  # pixels drawn in each of the second's epochs


@dataclass(frozen=True)
class SelfTraining(Recipe):
    """Two networks one after the other, of which the first labels the scene for the second.

    ``epochs`` is the most of the first: many training pixels need fewer.
    """

    least_epochs: int = 8
    looked_at: int = 30_000  # training pixels that the first network sees, epochs times pixels, where that lies between
    noise: float = 0.7  # standard deviation, of whitened components

    def epochs_for(self, training_pixels: int) -> int:
        return min(max(round(self.looked_at / training_pixels), self.least_epochs), self.epochs)

    def stages(self, training_pixels: int, unlabelled: int, epochs: int) -> Stages:
        """For so many pixels; ``epochs`` are those of the first stage, and the second's follow from them."""
        extra = min(max(training_pixels, 1000), unlabelled)
        # Half as much work again as the first stage, and never so little that the learning rate can't rise and fall.
        second = max(round(1.5 * epochs * training_pixels / (training_pixels + extra)), min(6, epochs))
        return Stages(epochs, second if extra else 0, extra)

    def describe(self) -> str:
        return (
            f"{self.optimizer}, one cycle up to {self.learning_rate:g}, {self.least_epochs} to {self.epochs} epochs, "
            f"batch {self.batch_small}, patches turned, noise {self.noise:g}; then again with labels that flowed along "
            "the scene"
        )


@dataclass(frozen=True)
class SolvedRecipe:
    """A method without epochs: it is solved at once."""

    name: str
    how: str
    structure: Mapping[str, Any] | None = None

    def describe(self) -> str:
        return self.how


def _as_it_is(scores: Tensor) -> Tensor:
    return scores


def _softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=-1)


@dataclass(frozen=True)
class Method:
    """A network that maps patches (B, D, D, C) to class scores (B, n)."""

    name: str
    title: str
    looks_at: str
    build: Callable[..., nn.Module]  # (bands, classes, *, patch, generator, **structure)
    loss: Callable[[Tensor, Tensor], Tensor]  # scores (B, n), class positions (B,) -> scalar
    recipes: Mapping[str, Recipe | SolvedRecipe]
    patch: int = 7  # side of the patch, if the user wishes no other
    preprocessing: str = "centred whitening"  # what is done to the spectra before: a name of whitening.PREPROCESSINGS
    confidence: Callable[[Tensor], Tensor] = _as_it_is  # scores -> in [0, 1], the order kept
    # Where unlabelled pixels take part: (network, patches, targets, unlabelled patches) -> scalar
    semi_supervised: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor] | None = None

    @property
    def default_recipe(self) -> str:
        """The best that is known; the paper's own, unless there is one or that does not train."""
        return next(name for name in ("best", "tuned", "paper") if name in self.recipes)

    def recipe(self, name: str | None = None) -> Recipe | SolvedRecipe:
        try:
            return self.recipes[name or self.default_recipe]
        except KeyError:
            raise ModelError(f"method {self.name} has no recipe {name!r}: it has {', '.join(self.recipes)}") from None

    def network(
        self,
        bands: int,
        classes: int,
        *,
        patch: int | None = None,
        seed: int = 0,
        structure: Mapping[str, Any] | None = None,
    ) -> nn.Module:
        """A new network with weights drawn from ``seed``."""
        with torch.random.fork_rng(devices=[]):  # torch's own layers draw weights of theirs before ours
            return self._build(bands, classes, patch, structure, Generator().manual_seed(seed))

    def blueprint(
        self, bands: int, classes: int, *, patch: int | None = None, structure: Mapping[str, Any] | None = None
    ) -> nn.Module:
        """The network's shapes without memory: to count, or to put loaded weights in. Any size costs nothing."""
        with torch.device("meta"):
            return self._build(bands, classes, patch, structure, None)

    def _build(
        self,
        bands: int,
        classes: int,
        patch: int | None,
        structure: Mapping[str, Any] | None,
        generator: Generator | None,
    ) -> nn.Module:
        side = self.patch if patch is None else patch
        try:
            return self.build(bands, classes, patch=side, generator=generator, **(structure or {}))
        except TypeError as error:
            raise ModelError(f"method {self.name} can't be built: {error}") from error

    def describe(self, bands: int | None = None, classes: int | None = None) -> dict[str, Any]:
        """For lists of methods. Parameters need both sizes, and are None where their number depends on the data."""
        parameters, problem = None, None
        if bands is not None and classes is not None and not isinstance(self.recipe(), SolvedRecipe):
            try:
                parameters = count_parameters(self.blueprint(bands, classes))
            except ModelError as error:
                problem = str(error)
        return {
            "name": self.name,
            "title": self.title,
            "parameters": parameters,
            "patch": self.patch,
            "looks_at": self.looks_at,
            "preprocessing": self.preprocessing,
            "recipe": self.default_recipe,
            "recipes": {name: recipe.describe() for name, recipe in self.recipes.items()},
            "problem": problem,  # why it can't be built for these sizes
        }


def _recipes(*recipes: Recipe | SolvedRecipe) -> dict[str, Recipe | SolvedRecipe]:
    return {recipe.name: recipe for recipe in recipes}


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="convcapsnet",
            title="1D-ConvCapsNet",
            looks_at="patches of whitened components",
            build=ConvCapsNet,
            loss=margin_loss,
            recipes=_recipes(SelfTraining("best", 40, 0.01, batch_large=64), Recipe("paper", 50, 0.01)),
        ),
        Method(
            name="rbf-svm",
            title="RBF-SVM",
            looks_at="spectra of single pixels",
            build=RBFSVM,
            loss=error_share,
            recipes=_recipes(SolvedRecipe("paper", "gamma 0.005, C 100")),
            patch=1,
            preprocessing="standardising",
        ),
        Method(
            name="rbf-svm-window",
            title="RBF-SVM on windows",
            looks_at="mean spectra of windows",
            build=WindowSVM,
            loss=error_share,
            recipes=_recipes(SolvedRecipe("tuned", "gamma 0.0005 to 0.005 and C 10 or 100, chosen by validation")),
            preprocessing="standardising",
        ),
        Method(
            name="mlp",
            title="MLP",
            looks_at="spectra of single pixels",
            build=MLP,
            loss=cross_entropy,
            recipes=_recipes(Recipe("paper", 500, 0.01), Recipe("tuned", 500, 0.0003, batch_small=256)),
            patch=1,
            preprocessing="standardising",
            confidence=_softmax,
        ),
        Method(
            name="se-2d-cnn",
            title="Se-2D-CNN",
            looks_at="patches of all bands, those of unlabelled pixels too",
            build=SemiCNN,
            loss=cross_entropy,
            recipes=_recipes(Recipe("paper", 40, 0.001, optimizer="SGD"), Recipe("tuned", 40, 0.001)),
            patch=9,
            preprocessing="standardising",
            confidence=_softmax,
            semi_supervised=semi_supervised_loss,
        ),
        Method(
            name="3d-cnn",
            title="3D-CNN",
            looks_at="large patches of all bands as volumes",
            build=CNN3D,
            loss=cross_entropy,
            recipes=_recipes(
                Recipe("paper", 400, 0.003, batch_small=100, batch_large=100, optimizer="SGD"),
                Recipe(
                    "tuned",
                    400,
                    0.0003,  # sums over 16,384 inputs: at 0.001 the first steps kill the neurons
                    batch_small=20,
                    batch_large=100,
                    structure={"weight_std": None},
                    also="He's starting weights, the output layer's a tenth of that",
                ),
            ),
            patch=27,
            preprocessing="standardising",
            confidence=_softmax,
        ),
        Method(
            name="c-cnn",
            title="c-CNN",
            looks_at="patches of whitened components",
            build=ConvCNN,
            loss=cross_entropy,
            recipes=_recipes(Recipe("paper", 500, 0.01)),
            confidence=_softmax,
        ),
        Method(
            name="capsnet",
            title="CapsNet",
            looks_at="patches of whitened components",
            build=CapsNet,
            loss=margin_loss,
            recipes=_recipes(Recipe("paper", 50, 0.01), Recipe("tuned", 50, 0.001)),
        ),
    )
}


def get_method(name: str) -> Method:
    """A registered method, or an error that lists them."""
    if name in METHODS:
        return METHODS[name]
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ModelError(f"there is no method {name!r}: known are {', '.join(METHODS)}{hint}")


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
