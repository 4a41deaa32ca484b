"""The paper's equations: squash, routing and loss against versions written by hand, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.models.capsules.loss import margin_loss
from hypercaps.models.capsules.routing import class_capsules, prediction_vectors, route, weighted_parents
from hypercaps.models.capsules.squash import squash


def squash_by_hand(s: np.ndarray) -> np.ndarray:
    """The paper's formula, for one vector."""
    norm = np.sqrt((s**2).sum())
    return s * 0 if norm == 0 else norm**2 / (1 + norm**2) * s / norm


def route_by_hand(children: np.ndarray, viewpoints: np.ndarray, iterations: int) -> np.ndarray:
    """Section IV-D of the paper, one pixel, loops and scalars: children (c, a, e), viewpoints (c, a, n, e, d)."""
    positions, arrays, _ = children.shape
    classes, size = viewpoints.shape[2], viewpoints.shape[-1]
    predicted = {}
    for i in range(arrays):
        for j in range(positions):
            for k in range(classes):
                matrix = viewpoints[j, i, k].T  # (d, e)
                predicted[i, j, k] = matrix @ children[j, i]
    log_prior = dict.fromkeys(predicted, 0.0)
    for _ in range(iterations):
        coupling = {}
        for i in range(arrays):
            for j in range(positions):
                total = sum(np.exp(log_prior[i, j, g]) for g in range(classes))
                for k in range(classes):
                    coupling[i, j, k] = np.exp(log_prior[i, j, k]) / total
        parents = []
        for k in range(classes):
            s = np.zeros(size)
            for i in range(arrays):
                for j in range(positions):
                    s += coupling[i, j, k] * predicted[i, j, k]
            parents.append(squash_by_hand(s))
        for i, j, k in predicted:
            log_prior[i, j, k] += predicted[i, j, k] @ parents[k]
    return np.array(parents)


def draw(batch: int, i: int, e: int, n: int, d: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Children (B, I, e) and viewpoints (I, n, e, d)."""
    generator = torch.Generator().manual_seed(seed)
    children = torch.randn(batch, i, e, generator=generator, dtype=torch.float64)
    viewpoints = torch.randn(i, n, e, d, generator=generator, dtype=torch.float64)
    return children, viewpoints


def test_squash_is_the_papers_formula() -> None:
    vectors = torch.randn(5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = np.stack([squash_by_hand(v) for v in vectors.numpy()])
    np.testing.assert_allclose(squash(vectors).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(squash(vectors.T, dim=0).numpy(), expected.T, rtol=1e-12)


def test_squash_keeps_directions_and_shortens() -> None:
    vector = torch.tensor([[3.0, 4.0]])
    assert torch.allclose(squash(vector), vector / 5 * 25 / 26)


def test_squash_of_zero_is_zero_with_a_finite_gradient() -> None:
    zero = torch.zeros(2, 4, requires_grad=True)
    squash(zero).sum().backward()
    assert torch.equal(zero.grad, torch.zeros(2, 4))


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_reference_routing_is_the_papers(iterations: int) -> None:
    children, viewpoints = draw(3, 2 * 4, 3, n=5, d=6)
    found = route(prediction_vectors(children, viewpoints), iterations)
    for pixel in range(3):
        by_position = children[pixel].view(4, 2, 3).numpy(), viewpoints.view(4, 2, 5, 3, 6).numpy()
        expected = route_by_hand(*by_position, iterations)
        np.testing.assert_allclose(found[pixel].numpy(), expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 5),
    iterations=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_routing_through_the_weights_is_the_reference(sizes: tuple[int, ...], iterations: int, seed: int) -> None:
    batch, i, e, n, d = sizes
    children, viewpoints = draw(batch, i, e, n, d, seed)
    grads = []
    outputs = []
    for way in (
        lambda u, w: route(prediction_vectors(u, w), iterations),
        lambda u, w: class_capsules(u, w, iterations),  # float64: not for the compiled kernel
    ):
        u, w = children.clone().requires_grad_(), viewpoints.clone().requires_grad_()
        capsules = way(u, w)
        (capsules * torch.arange(1, d + 1)).sum().backward()
        outputs.append(capsules.detach())
        grads.append((u.grad, w.grad))
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-8, atol=1e-10)


def test_gradients_of_the_reference_through_the_couplings() -> None:
    children, viewpoints = (tensor.requires_grad_() for tensor in draw(2, 4, 3, n=3, d=4))

    def routed(u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return route(prediction_vectors(u, w), 3, through_couplings=True)

    assert torch.autograd.gradcheck(routed, (children, viewpoints))


def test_gradients_with_couplings_as_constants() -> None:
    """By default the gradient is that of the last weighted sum, its couplings held fixed."""
    children, viewpoints = draw(2, 4, 3, n=3, d=4)
    predictions = prediction_vectors(children, viewpoints).requires_grad_()
    route(predictions, 3).square().sum().backward()

    priors = torch.zeros(predictions.shape[:3], dtype=torch.float64)
    for _ in range(2):
        parents = weighted_parents(predictions.detach(), priors.softmax(2))
        priors = priors + torch.einsum("bind,bnd->bin", predictions.detach(), parents)
    fixed = predictions.detach().clone().requires_grad_()
    couplings = priors.softmax(2)
    assert torch.autograd.gradcheck(lambda p: weighted_parents(p, couplings), fixed)
    weighted_parents(fixed, couplings).square().sum().backward()
    torch.testing.assert_close(predictions.grad, fixed.grad)


@pytest.mark.parametrize("way", ["reference", "fast"])
def test_a_pixel_does_not_depend_on_its_batch(way: str) -> None:
    children, viewpoints = draw(6, 10, 4, n=4, d=3)

    def routed(u: torch.Tensor) -> torch.Tensor:
        return route(prediction_vectors(u, viewpoints)) if way == "reference" else class_capsules(u, viewpoints)

    whole = routed(children)
    order = torch.tensor([4, 0, 3])
    torch.testing.assert_close(routed(children[order]), whole[order], rtol=1e-12, atol=1e-14)


def test_margin_loss_is_the_papers() -> None:
    lengths = torch.tensor([[0.95, 0.30, 0.05], [0.20, 0.00, 0.60]])
    targets = torch.tensor([0, 1])
    first = 0.0 + 0.5 * (0.30 - 0.1) ** 2  # its class is past 0.9, one other past 0.1
    second = 0.9**2 + 0.5 * ((0.20 - 0.1) ** 2 + (0.60 - 0.1) ** 2)
    assert margin_loss(lengths, targets).item() == pytest.approx((first + second) / 2)


def test_margin_loss_gradients() -> None:
    lengths = torch.tensor([[0.7, 0.3, 0.2], [0.25, 0.5, 0.65]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: margin_loss(x, torch.tensor([0, 2])), lengths)
