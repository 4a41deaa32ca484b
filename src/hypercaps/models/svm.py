"""RBF-SVM: one pixel's spectrum, a support vector machine for each pair of classes.

scikit-learn solves it; what it found is kept as plain arrays, and pixels are classified by the few lines below, so
that it goes through the same patches, mapping and model file as the networks.
"""

from __future__ import annotations

import itertools

import torch
from torch import Generator, Tensor, nn

from hypercaps.errors import ModelError
from hypercaps.models.parts import check_single_pixel, check_sizes


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
        check_single_pixel("rbf-svm", patch)
        for name, value in (("gamma", gamma), ("cost", cost)):
            if not (isinstance(value, int | float) and value > 0):
                raise ModelError(f"{name} is {value!r}: a number above 0 is expected")
        self.bands, self.classes, self.patch = bands, classes, patch
        self.gamma, self.cost = gamma, cost
        self._hold(torch.zeros(support, bands), torch.zeros(support, _pairs(classes)), torch.zeros(_pairs(classes)))

    def _hold(self, vectors: Tensor, coefficients: Tensor, intercepts: Tensor) -> None:
        self.vectors = nn.Parameter(vectors, requires_grad=False)  # (S, C)
        self.coefficients = nn.Parameter(coefficients, requires_grad=False)  # (S, pairs)
        self.intercepts = nn.Parameter(intercepts, requires_grad=False)  # (pairs,)

    @property
    def found(self) -> dict[str, int]:
        """What of the structure was not known before it was solved."""
        return {"support": len(self.vectors)}

    def solve(self, patches: Tensor, targets: Tensor) -> None:
        """Find the support vectors of spectra (N, 1, 1, C) and their class positions (N,): all at once."""
        from sklearn.svm import SVC

        machine = SVC(C=self.cost, kernel="rbf", gamma=self.gamma, cache_size=500)
        machine.fit(patches.flatten(1).double().numpy(), targets.numpy())
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
        spectra, vectors = patches.flatten(1).double(), self.vectors.double()
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


def error_share(scores: Tensor, targets: Tensor) -> Tensor:
    """Share of pixels that get the wrong class: (B, n), (B,) -> scalar"""
    return (scores.argmax(dim=1) != targets).float().mean()


def _pairs(classes: int) -> int:
    return classes * (classes - 1) // 2
