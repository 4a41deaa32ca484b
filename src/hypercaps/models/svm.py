"""RBF-SVM: one pixel's spectrum, a support vector machine for each pair of classes; or the mean over a window.

scikit-learn solves it; what it found is kept as plain arrays, and pixels are classified by the few lines below, so
that it goes through the same patches, mapping and model file as the networks.
"""

from __future__ import annotations

import itertools

import torch
from torch import Generator, Tensor, nn

from hypercaps.errors import ModelError
from hypercaps.models.parts import check_odd, check_single_pixel, check_sizes


class RBFSVM(nn.Module):
    """K(x, y) = exp(-gamma |x - y|^2), one against one; ``cost`` is the paper's C.

    ``support`` is the number of support vectors: 0 before it is solved, and then what was found.
    """

    def __init__(
        self,
        bands: int,
        classes: int,
        *,
        patch: int = 1,
        gamma: float = 0.005,
        cost: float = 100.0,
        support: int = 0,
        generator: Generator | None = None,  # nothing is drawn; every method takes one
    ) -> None:
        super().__init__()
        check_sizes({"bands": bands, "classes": classes, "patch": patch})
        self.check_patch(patch)
        for name, value in (("gamma", gamma), ("cost", cost)):
            if not (isinstance(value, int | float) and value > 0):
                raise ModelError(f"{name} is {value!r}: a number above 0 is expected")
        self.bands, self.classes, self.patch = bands, classes, patch
        self.gamma, self.cost = gamma, cost
        self._hold(torch.zeros(support, bands), torch.zeros(support, _pairs(classes)), torch.zeros(_pairs(classes)))

    @staticmethod
    def check_patch(patch: int) -> None:
        check_single_pixel("rbf-svm", patch)

    def _hold(self, vectors: Tensor, coefficients: Tensor, intercepts: Tensor) -> None:
        self.vectors = nn.Parameter(vectors, requires_grad=False)  # (S, C)
        self.coefficients = nn.Parameter(coefficients, requires_grad=False)  # (S, pairs)
        self.intercepts = nn.Parameter(intercepts, requires_grad=False)  # (pairs,)

    @property
    def found(self) -> dict[str, int | float]:
        """What of the structure was not known before it was solved."""
        return {"support": len(self.vectors)}

    def features(self, patches: Tensor) -> Tensor:
        """What of patches it looks at: (B, 1, 1, C) -> (B, C) float64"""
        return patches.flatten(1).double()

    def solve(self, features: Tensor, targets: Tensor, val_features: Tensor, val_targets: Tensor) -> None:
        """Find the support vectors of features (N, C) and their class positions (N,): all at once.

        Validation pixels decide nothing here.
        """
        from sklearn.svm import SVC

        machine = SVC(C=self.cost, kernel="rbf", gamma=self.gamma, cache_size=500)
        machine.fit(features.numpy(), targets.numpy())
        dual, intercepts = torch.from_numpy(machine.dual_coef_), torch.from_numpy(machine.intercept_)
        if self.classes == 2:  # scikit-learn turns the sign round for two classes
            dual, intercepts = -dual, -intercepts
        counts = machine.n_support_.tolist()
        first = [sum(counts[:k]) for k in range(self.classes + 1)]  # where each class's vectors begin
        coefficients = torch.zeros(first[-1], _pairs(self.classes))
        # libsvm keeps n - 1 numbers for each vector: for its class against each of the others, in order.
        for pair, (one, two) in enumerate(itertools.combinations(range(self.classes), 2)):
            ours, theirs = slice(first[one], first[one + 1]), slice(first[two], first[two + 1])
            coefficients[ours, pair] = dual[two - 1, ours].float()
            coefficients[theirs, pair] = dual[one, theirs].float()
        self._hold(torch.from_numpy(machine.support_vectors_).float(), coefficients, intercepts.float())

    def forward(self, patches: Tensor) -> Tensor:
        """(B, 1, 1, C) -> scores (B, n) in [0, 1]: pairs won, ties broken by how clearly they were won"""
        # In float64: a squared distance by products is a difference of large numbers.
        return self._scores(self.features(patches))

    def _scores(self, spectra: Tensor) -> Tensor:
        vectors = self.vectors.double()
        lengths = spectra.square().sum(dim=1, keepdim=True) + vectors.square().sum(dim=1)
        distances = (lengths - 2 * spectra @ vectors.T).clamp(min=0)  # (B, S), squared
        kernel = torch.exp(-self.gamma * distances)
        decisions = kernel @ self.coefficients.double() + self.intercepts.double()  # (B, pairs), > 0: the first won
        votes = decisions.new_zeros(len(spectra), self.classes)
        margins = torch.zeros_like(votes)
        for pair, (one, two) in enumerate(itertools.combinations(range(self.classes), 2)):
            decision = decisions[:, pair]
            votes[:, one] += decision > 0
            votes[:, two] += decision <= 0
            margins[:, one] += decision
            margins[:, two] -= decision
        # A vote weighs more than any margin: those are bent into (-1/3, 1/3).
        scores = votes + margins / (3 * (margins.abs() + 1))
        return ((scores + 1 / 3) / (self.classes - 1 / 3)).float()


class WindowSVM(RBFSVM):
    """The same on the mean of each band over the patch: noise averages out, and a pixel sees the field it lies in.

    What of ``gamma`` and ``cost`` is not given is chosen by validation, the first of ``CHOICES`` without any.
    """

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
        asked = [(g if gamma is None else gamma, c if cost is None else cost) for g, c in self.CHOICES]
        first = asked[0]
        super().__init__(
            bands, classes, patch=patch, gamma=first[0], cost=first[1], support=support, generator=generator
        )
        self.choices = list(dict.fromkeys(asked))

    @staticmethod
    def check_patch(patch: int) -> None:
        check_odd(patch)

    @property
    def found(self) -> dict[str, int | float]:
        return super().found | {"gamma": self.gamma, "cost": self.cost}

    def features(self, patches: Tensor) -> Tensor:
        """(B, D, D, C) -> means (B, C) float64"""
        return patches.double().mean(dim=(1, 2))

    def solve(self, features: Tensor, targets: Tensor, val_features: Tensor, val_targets: Tensor) -> None:
        best = -1
        kept: tuple[Tensor, Tensor, Tensor] | None = None
        for gamma, cost in self.choices if len(val_targets) else self.choices[:1]:
            before = self.gamma, self.cost
            self.gamma, self.cost = gamma, cost
            super().solve(features, targets, val_features, val_targets)
            batches = zip(torch.split(val_features, 1024), torch.split(val_targets, 1024), strict=True)
            right = sum(int((self._scores(some).argmax(dim=1) == those).sum()) for some, those in batches)
            if right > best:
                best, kept = right, (self.vectors.data, self.coefficients.data, self.intercepts.data)
            else:
                self.gamma, self.cost = before
        assert kept is not None
        self._hold(*kept)


def error_share(scores: Tensor, targets: Tensor) -> Tensor:
    """Share of pixels that get the wrong class: (B, n), (B,) -> scalar"""
    return (scores.argmax(dim=1) != targets).float().mean()


def _pairs(classes: int) -> int:
    return classes * (classes - 1) // 2
