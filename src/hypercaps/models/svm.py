"""RBF-SVM on one pixel's spectrum, or on the mean spectrum of a window: one machine for each pair of classes.

scikit-learn fits the machines. Support vectors and coefficients are kept as plain tensors, and pixels are classified
by the code below, so that the same patches, maps and model files serve SVMs and networks.
"""

from __future__ import annotations

import itertools
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from hypercaps.errors import ModelError
from hypercaps.models.parts import PatchNetwork
from hypercaps.models.protocols import Samples


class RBFSVM(PatchNetwork):
    """K(x, y) = exp(-gamma |x - y|^2), one against one; ``cost`` is the paper's C.

    ``support`` is the number of support vectors, 0 before ``solve``.
    """

    single_pixel_method: ClassVar[str | None] = "rbf-svm"

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 1,
        gamma: float = 0.005,
        cost: float = 100.0,
        support: int = 0,
        generator: Generator | None = None,  # not used; every method takes one
    ) -> None:
        super().__init__(bands, classes, patch, {"bands": bands, "classes": classes, "patch": patch})
        for name, value in (("gamma", gamma), ("cost", cost)):
            if not (isinstance(value, int | float) and value > 0):
                raise ModelError(f"{name} is {value!r}: a number above 0 is expected")
        self.gamma, self.cost = gamma, cost
        self._set(torch.zeros(support, bands), torch.zeros(support, _pairs(classes)), torch.zeros(_pairs(classes)))

    def _set(self, vectors: Tensor, coefficients: Tensor, intercepts: Tensor) -> None:
        self.vectors = nn.Parameter(vectors, requires_grad=False)  # (S, C)
        self.coefficients = nn.Parameter(coefficients, requires_grad=False)  # (S, pairs)
        self.intercepts = nn.Parameter(intercepts, requires_grad=False)  # (pairs,)

    @property
    def found(self) -> dict[str, int | float]:
        """The part of the structure that ``solve`` determined."""
        return {"support": len(self.vectors)}

    def most_bytes(self, pixels: int) -> int:
        """Largest size of the fitted machines: every training pixel may become a support vector."""
        return 4 * pixels * (self.bands + _pairs(self.classes))

    def features(self, patches: Tensor) -> Tensor:
        """The spectra: (B, 1, 1, C) -> (B, C) float64"""
        return patches.flatten(1).double()

    def solve(self, training: Samples, validation: Samples | None = None) -> None:
        """Fit to spectra; validation pixels and units are not used."""
        from sklearn.svm import SVC

        machine = SVC(C=self.cost, kernel="rbf", gamma=self.gamma, cache_size=500)
        machine.fit(training.features.numpy(), training.targets.numpy())
        dual, intercepts = torch.from_numpy(machine.dual_coef_), torch.from_numpy(machine.intercept_)
        if self.classes == 2:  # scikit-learn inverts the sign for two classes
            dual, intercepts = -dual, -intercepts
        counts = machine.n_support_.tolist()
        first = [sum(counts[:k]) for k in range(self.classes + 1)]  # where each class's vectors begin
        coefficients = torch.zeros(first[-1], _pairs(self.classes))
        # libsvm keeps n - 1 numbers for each vector: for its class against each of the others, in order.
        for pair, (one, two) in enumerate(itertools.combinations(range(self.classes), 2)):
            of_one, of_two = slice(first[one], first[one + 1]), slice(first[two], first[two + 1])
            coefficients[of_one, pair] = dual[two - 1, of_one].float()
            coefficients[of_two, pair] = dual[one, of_two].float()
        self._set(torch.from_numpy(machine.support_vectors_).float(), coefficients, intercepts.float())

    def forward(self, patches: Tensor) -> Tensor:
        """(B, 1, 1, C) -> scores (B, n) in [0, 1]: share of the pairs won, ties broken by the margins"""
        # In float64: a squared distance computed from products is a difference of large numbers.
        return self._scores(self.features(patches))

    def decisions(self, spectra: Tensor) -> Tensor:
        """(B, C) float64 -> (B, pairs): above 0 where the first class of a pair won"""
        vectors = self.vectors.double()
        lengths = spectra.square().sum(dim=1, keepdim=True) + vectors.square().sum(dim=1)
        distances = (lengths - 2 * spectra @ vectors.T).clamp(min=0)  # (B, S), squared
        kernel = torch.exp(-self.gamma * distances)
        return kernel @ self.coefficients.double() + self.intercepts.double()

    def scores_of_votes(self, votes: Tensor, margins: Tensor) -> Tensor:
        """Scores (B, n) from the number of pairs that each class won (B, n) and the sum of its decisions (B, n)."""
        # A vote weighs more than any margin: margins are mapped into (-1/3, 1/3).
        scores = votes + margins / (3 * (margins.abs() + 1))
        return ((scores + 1 / 3) / (self.classes - 1 / 3)).float()

    def _scores(self, spectra: Tensor) -> Tensor:
        decisions = self.decisions(spectra)
        votes = decisions.new_zeros(len(spectra), self.classes)
        margins = torch.zeros_like(votes)
        for pair, (one, two) in enumerate(itertools.combinations(range(self.classes), 2)):
            decision = decisions[:, pair]
            votes[:, one] += decision > 0
            votes[:, two] += decision <= 0
            margins[:, one] += decision
            margins[:, two] -= decision
        return self.scores_of_votes(votes, margins)


class WindowSVM(RBFSVM):
    """RBF-SVM on the mean of each band over the patch, which averages noise and includes the surroundings of a pixel.

    ``gamma`` and ``cost`` are chosen by validation where they are None; without validation pixels, the first of
    ``CHOICES`` is used.
    """

    single_pixel_method: ClassVar[str | None] = None
    CHOICES = ((0.002, 100.0), (0.0005, 100.0), (0.005, 100.0), (0.002, 10.0))  # gamma, cost

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 7,
        gamma: float | None = None,
        cost: float | None = None,
        support: int = 0,
        generator: Generator | None = None,
    ) -> None:
        choices = [(g if gamma is None else gamma, c if cost is None else cost) for g, c in self.CHOICES]
        gamma, cost = choices[0]
        super().__init__(bands, classes, patch=patch, gamma=gamma, cost=cost, support=support, generator=generator)
        self.choices = list(dict.fromkeys(choices))

    @property
    def found(self) -> dict[str, int | float]:
        return super().found | {"gamma": self.gamma, "cost": self.cost}

    def features(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> means (B, C) float64"""
        return patches.double().mean(dim=(1, 2))

    def solve(self, training: Samples, validation: Samples | None = None) -> None:
        best = -1
        kept: tuple[Tensor, Tensor, Tensor] | None = None
        for gamma, cost in self.choices if validation else self.choices[:1]:
            before = self.gamma, self.cost
            self.gamma, self.cost = gamma, cost
            super().solve(training)
            right = self._count_correct(validation) if validation else 0
            if right > best:
                best, kept = right, (self.vectors.data, self.coefficients.data, self.intercepts.data)
            else:
                self.gamma, self.cost = before
        assert kept is not None
        self._set(*kept)

    def _count_correct(self, pixels: Samples) -> int:
        batches = zip(torch.split(pixels.features, 1024), torch.split(pixels.targets, 1024), strict=True)
        return sum(int((self._scores(some).argmax(dim=1) == those).sum()) for some, those in batches)


def error_share(scores: Tensor, targets: Tensor) -> Tensor:
    """Share of misclassified pixels: (B, n), (B,) -> scalar"""
    return (scores.argmax(dim=1) != targets).float().mean()


def _pairs(classes: int) -> int:
    return classes * (classes - 1) // 2
