"""What each method is, without its network: names, recipes, patches and preprocessing.

Nothing here imports torch, so that options can be checked at once; ``registry.py`` adds networks and losses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hypercaps.errors import ModelError, did_you_mean
from hypercaps.models.recipes import EpochRecipe, NeighbourSteps, OneCycle, Recipe, SelfTraining, SolvedRecipe

# Names for users -> names in ``training.preprocessing.PREPROCESSINGS``
WHITENINGS = {"plain": "centred whitening", "damped": "damped whitening", "robust": "robust whitening"}
_STANDARDISING = "standardising"
_SINGLE_PIXELS = (1,)


@dataclass(frozen=True, kw_only=True)
class MethodDescription:
    """A method as users choose it."""

    name: str
    title: str
    looks_at: str
    recipes: Mapping[str, Recipe]
    patch: int = 7  # default side of the patch in pixels
    patches: Collection[int] | None = None  # sides that it takes, with its default sizes; None: all odd ones
    preprocessing: str = WHITENINGS["plain"]  # of the spectra: a name in training.preprocessing.PREPROCESSINGS

    @property
    def default_recipe(self) -> str:
        """The most accurate recipe: ``best`` or ``tuned`` where the method has one, else the paper's."""
        return next(name for name in ("best", "tuned", "paper") if name in self.recipes)

    def recipe(self, name: str | None = None) -> Recipe:
        try:
            return self.recipes[name or self.default_recipe]
        except KeyError:
            known = f"it has {', '.join(self.recipes)}{did_you_mean(str(name), self.recipes)}"
            raise ModelError(f"method {self.name} has no recipe {name!r}: {known}") from None

    def preprocessing_with(self, whitening: str | None, recipe: str | None = None) -> str:
        """The preprocessing with the user's whitening, or the recipe's: a name in ``preprocessing.PREPROCESSINGS``."""
        whitening = whitening or self.recipe(recipe).whitening
        if whitening is None:
            return self.preprocessing
        if whitening not in WHITENINGS:
            hint = did_you_mean(whitening, WHITENINGS)
            raise ModelError(f"there is no whitening {whitening!r}: {', '.join(WHITENINGS)} are known{hint}")
        if self.preprocessing not in WHITENINGS.values():
            raise ModelError(f"method {self.name} does not whiten its spectra: leave the whitening out")
        return WHITENINGS[whitening]

    def check_patch(self, patch: int) -> None:
        """Refuse a patch that the network of this method, in its default sizes, does not take."""
        if self.patches == _SINGLE_PIXELS and patch != 1:
            raise ModelError(f"{self.name} looks at single pixels and patch is {patch}: leave it out, or give 1")
        if patch % 2 == 0:
            raise ModelError(f"patch is {patch}: an odd number is expected, so that the pixel is its centre")
        if self.patches is not None and patch not in self.patches:
            several = f"{min(self.patches)} or more" if len(self.patches) > 2 else " or ".join(map(str, self.patches))
            raise ModelError(f"{self.name} takes patches of {several}, and patch is {patch}: leave it out")


def _recipes(*recipes: Recipe) -> dict[str, Recipe]:
    return {recipe.name: recipe for recipe in recipes}


DESCRIPTIONS: dict[str, MethodDescription] = {
    method.name: method
    for method in (
        MethodDescription(
            name="convcapsnet",
            title="1D-ConvCapsNet",
            looks_at="patches of whitened components",
            recipes=_recipes(
                SelfTraining("best", 40, 0.01, batch_large=64),
                EpochRecipe("paper", 50, 0.01),
                OneCycle("augmented", 40, 0.01, batch_large=64),
                SelfTraining("guided", 40, 0.01, batch_large=64, guided=True),
            ),
        ),
        MethodDescription(
            name="rbf-svm",
            title="RBF-SVM",
            looks_at="spectra of single pixels",
            recipes=_recipes(SolvedRecipe("paper", "gamma 0.005, C 100")),
            patch=1,
            patches=_SINGLE_PIXELS,
            preprocessing=_STANDARDISING,
        ),
        MethodDescription(
            name="rbf-svm-window",
            title="RBF-SVM on windows",
            looks_at="mean spectra of windows",
            recipes=_recipes(SolvedRecipe("tuned", "gamma 0.0005 to 0.005 and C 10 or 100, chosen by validation")),
            preprocessing=_STANDARDISING,
        ),
        MethodDescription(
            name="mlp",
            title="MLP",
            looks_at="spectra of single pixels",
            recipes=_recipes(EpochRecipe("paper", 500, 0.01), EpochRecipe("tuned", 500, 0.0003, batch_small=256)),
            patch=1,
            patches=_SINGLE_PIXELS,
            preprocessing=_STANDARDISING,
        ),
        MethodDescription(
            name="se-2d-cnn",
            title="Se-2D-CNN",
            looks_at="patches of all bands, those of unlabelled pixels too",
            recipes=_recipes(EpochRecipe("paper", 40, 0.001, optimizer="SGD"), EpochRecipe("tuned", 40, 0.001)),
            patch=9,
            patches=range(5, 1000, 2),
            preprocessing=_STANDARDISING,
        ),
        MethodDescription(
            name="3d-cnn",
            title="3D-CNN",
            looks_at="large patches of all bands as volumes",
            recipes=_recipes(
                EpochRecipe("paper", 400, 0.003, batch_small=100, batch_large=100, optimizer="SGD"),
                NeighbourSteps(
                    "tuned",
                    60,
                    0.0003,
                    batch_small=50,
                    batch_large=100,
                    structure={"weight_std": None},
                    also="He's starting weights, the output layer's a tenth of that",
                ),
            ),
            patch=27,
            patches=(25, 27),
            preprocessing=_STANDARDISING,
        ),
        MethodDescription(
            name="c-cnn",
            title="c-CNN",
            looks_at="patches of whitened components",
            recipes=_recipes(EpochRecipe("paper", 500, 0.01)),
        ),
        MethodDescription(
            name="capsnet",
            title="CapsNet",
            looks_at="patches of whitened components",
            recipes=_recipes(
                EpochRecipe("paper", 50, 0.01),
                # 2,944 capsules add up to a class capsule (in 1D-ConvCapsNet 176): with the same deviation as there,
                # all class capsules start with a length of about 0.5, and validation stays 5 points lower.
                EpochRecipe(
                    "tuned",
                    50,
                    0.001,
                    structure={"viewpoint_std": 0.01},
                    also="viewpoint matrices of standard deviation 0.01",
                ),
            ),
        ),
        MethodDescription(
            name="lda",
            title="LDA",
            looks_at="spectra of single pixels",
            recipes=_recipes(SolvedRecipe("tuned", "shrinkage by Ledoit and Wolf, priors by label shares")),
            patch=1,
            preprocessing=_STANDARDISING,
        ),
        MethodDescription(
            name="logistic",
            title="logistic regression",
            looks_at="spectra of single pixels",
            recipes=_recipes(SolvedRecipe("tuned", "L2, C 0.01 to 10, chosen by cross-validation")),
            patch=1,
            preprocessing=_STANDARDISING,
        ),
        MethodDescription(
            name="random-forest",
            title="random forest",
            looks_at="spectra of single pixels",
            recipes=_recipes(SolvedRecipe("tuned", "200 trees, square root of the number of bands at each node")),
            patch=1,
            preprocessing=_STANDARDISING,
        ),
    )
}


def get_description(name: str) -> MethodDescription:
    """The description of a method by name."""
    if name not in DESCRIPTIONS:
        hint = did_you_mean(name, DESCRIPTIONS)
        raise ModelError(f"there is no method {name!r}: known are {', '.join(DESCRIPTIONS)}{hint}")
    return DESCRIPTIONS[name]
