"""Our optimizers are torch's, to the bit, without its compiler."""

from __future__ import annotations

import pytest
import torch
from torch.optim import SGD, Adam, Optimizer

from hypercaps.compute.optimizers import make_optimizer


def train(optimizer_of: type[Optimizer] | str, steps: int = 5) -> tuple[list[torch.Tensor], Optimizer]:
    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(4, 3, generator=generator, requires_grad=True), torch.zeros(4, requires_grad=True)]
    if isinstance(optimizer_of, str):
        optimizer = make_optimizer(optimizer_of, weights, 0.01)
    else:
        optimizer = optimizer_of(weights, lr=0.01, **({"fused": True} if optimizer_of is Adam else {}))
    for _ in range(steps):
        loss = torch.nn.functional.linear(torch.randn(8, 3, generator=generator), *weights).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights, optimizer


@pytest.mark.parametrize(("name", "kind"), [("Adam", Adam), ("SGD", SGD)])
def test_steps_are_those_of_torch(name: str, kind: type[Optimizer]) -> None:
    (ours, optimizer), (theirs, other) = train(name), train(kind)
    assert isinstance(optimizer, kind) and optimizer.state_dict().keys() == other.state_dict().keys()
    for one, two in zip(ours, theirs, strict=True):
        assert one.requires_grad and torch.equal(one, two)


def test_a_state_can_be_loaded() -> None:
    weights, optimizer = train("Adam")
    again = make_optimizer("Adam", [weight.detach().clone().requires_grad_() for weight in weights], 0.5)
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[0]["lr"] == 0.01
    for one, two in zip(optimizer.state.values(), again.state.values(), strict=True):
        assert torch.equal(one["exp_avg"], two["exp_avg"])


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_nothing_surrounds_a_step(name: str) -> None:
    """torch's wrappers for its profiler and for hooks take longer than a step of a small network."""
    weights, optimizer = train(name)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimizer.step()
        optimizer.zero_grad()
    assert not any(event.key.startswith("Optimizer.") for event in profile.key_averages())
    assert all(weight.grad is None for weight in weights)
