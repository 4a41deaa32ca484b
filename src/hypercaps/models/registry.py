"""The registered methods, each with its network, loss, preprocessing and recipes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from hypercaps.errors import ModelError
from hypercaps.models.c_cnn import ConvCNN
from hypercaps.models.capsnet import CapsNet
from hypercaps.models.capsules.loss import margin_loss
from hypercaps.models.cnn3d import CNN3D
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.models.lda import LDA
from hypercaps.models.linear import softmax
from hypercaps.models.logistic import LogisticRegression
from hypercaps.models.mlp import MLP
from hypercaps.models.protocols import Solvable
from hypercaps.models.random_forest import RandomForest
from hypercaps.models.recipes import EpochRecipe, OneCycle, Recipe, SelfTraining, SolvedRecipe
from hypercaps.models.se_cnn2d import SemiCNN, semi_supervised_loss
from hypercaps.models.svm import RBFSVM, WindowSVM, error_share

_softmax = partial(torch.softmax, dim=-1)


@dataclass(frozen=True)
class Method:
    """A network that maps patches (B, D, D, C) to class scores (B, n)."""

    name: str
    title: str
    looks_at: str
    build: Callable[..., nn.Module]  # (bands, classes, *, patch, generator, **structure)
    loss: Callable[[Tensor, Tensor], Tensor]  # scores (B, n), class indices (B,) -> scalar
    recipes: Mapping[str, Recipe]
    patch: int = 7  # default side of the patch in pixels
    preprocessing: str = "centred whitening"  # of the spectra: a name in training.preprocessing.PREPROCESSINGS
    confidence: Callable[[Tensor], Tensor] = torch.positive  # scores -> in [0, 1], same order; default: as is
    # Loss that also uses unlabelled pixels: (network, patches, targets, unlabelled patches) -> scalar
    semi_supervised: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor] | None = None

    @property
    def default_recipe(self) -> str:
        """The most accurate recipe: ``best`` or ``tuned`` where the method has one, else the paper's."""
        return next(name for name in ("best", "tuned", "paper") if name in self.recipes)

    def recipe(self, name: str | None = None) -> Recipe:
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
        structure: Mapping[str, object] | None = None,
    ) -> nn.Module:
        """A new network with weights drawn from ``seed``."""
        with torch.random.fork_rng(devices=[]):  # torch's layers first draw weights of their own
            return self._build(bands, classes, patch, structure, Generator().manual_seed(seed))

    def blueprint(
        self, bands: int, classes: int, *, patch: int | None = None, structure: Mapping[str, object] | None = None
    ) -> nn.Module:
        """The network on torch's meta device, with shapes but no memory: to count weights, or to load them into."""
        with torch.device("meta"):
            return self._build(bands, classes, patch, structure, None)

    def _build(
        self,
        bands: int,
        classes: int,
        patch: int | None,
        structure: Mapping[str, object] | None,
        generator: Generator | None,
    ) -> nn.Module:
        side = self.patch if patch is None else patch
        try:
            return self.build(bands, classes, patch=side, generator=generator, **(structure or {}))
        except TypeError as error:
            raise ModelError(f"method {self.name} can't be built: {error}") from error

    def describe(self, bands: int | None = None, classes: int | None = None) -> dict[str, object]:
        """Description for lists of methods; ``parameters`` is None without both sizes, or if it depends on the data."""
        parameters, problem = None, None
        if bands is not None and classes is not None:
            try:
                network = self.blueprint(bands, classes)
                parameters = None if isinstance(network, Solvable) else count_parameters(network)
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
            "problem": problem,  # why it cannot be built for these sizes
        }


def _recipes(*recipes: Recipe) -> dict[str, Recipe]:
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
            recipes=_recipes(
                SelfTraining("best", 40, 0.01, batch_large=64),
                EpochRecipe("paper", 50, 0.01),
                OneCycle("augmented", 40, 0.01, batch_large=64),
            ),
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
            recipes=_recipes(EpochRecipe("paper", 500, 0.01), EpochRecipe("tuned", 500, 0.0003, batch_small=256)),
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
            recipes=_recipes(EpochRecipe("paper", 40, 0.001, optimizer="SGD"), EpochRecipe("tuned", 40, 0.001)),
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
                EpochRecipe("paper", 400, 0.003, batch_small=100, batch_large=100, optimizer="SGD"),
                EpochRecipe(
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
            recipes=_recipes(EpochRecipe("paper", 500, 0.01)),
            confidence=_softmax,
        ),
        Method(
            name="capsnet",
            title="CapsNet",
            looks_at="patches of whitened components",
            build=CapsNet,
            loss=margin_loss,
            recipes=_recipes(EpochRecipe("paper", 50, 0.01), EpochRecipe("tuned", 50, 0.001)),
        ),
        Method(
            name="lda",
            title="LDA",
            looks_at="spectra of single pixels",
            build=LDA,
            loss=cross_entropy,
            recipes=_recipes(SolvedRecipe("tuned", "shrinkage by Ledoit and Wolf, priors by label shares")),
            patch=1,
            preprocessing="standardising",
            confidence=softmax,
        ),
        Method(
            name="logistic",
            title="logistic regression",
            looks_at="spectra of single pixels",
            build=LogisticRegression,
            loss=cross_entropy,
            recipes=_recipes(SolvedRecipe("tuned", "L2, C 0.01 to 10, chosen by cross-validation")),
            patch=1,
            preprocessing="standardising",
            confidence=softmax,
        ),
        Method(
            name="random-forest",
            title="random forest",
            looks_at="spectra of single pixels",
            build=RandomForest,
            loss=error_share,
            recipes=_recipes(SolvedRecipe("tuned", "200 trees, square root of the number of bands at each node")),
            patch=1,
            preprocessing="standardising",
        ),
    )
}


def get_method(name: str) -> Method:
    """A registered method by name."""
    if name in METHODS:
        return METHODS[name]
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ModelError(f"there is no method {name!r}: known are {', '.join(METHODS)}{hint}")


def count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
