"""torch's optimizers without torch's compiler, which they import when they are first used: that takes a second.

The compiler is there for networks that it compiles, which ours are not. If another version of torch arranges this
differently, optimizers work all the same, and only the second is lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import SGD, Adam, Optimizer


def make_optimizer(kind: str, parameters: Iterable[Any], learning_rate: float) -> Optimizer:
    """Adam, fused, or SGD of parameters, or of groups with learning rates of their own."""
    _skip_wrappers()
    if kind == "SGD":
        return _PlainSGD(parameters, lr=learning_rate)
    return _PlainAdam(parameters, lr=learning_rate, fused=True)


class _PlainStep:
    """Steps as torch's function computes them, without what surrounds it for the compiler, the profiler and hooks."""

    param_groups: list[dict[str, Any]]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        kind = next(parent for parent in type(self).__mro__ if parent in (Adam, SGD))
        inspect.unwrap(kind.step)(self, closure)

    step.hooked = True  # type: ignore[attr-defined]  # torch wraps it unless it is

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


class _PlainAdam(_PlainStep, Adam):  # type: ignore[misc]  # its step takes no closure
    pass


class _PlainSGD(_PlainStep, SGD):  # type: ignore[misc]
    pass


def _skip_wrappers() -> None:
    """Let the methods that torch hides from its compiler run as they are.

    torch keeps a wrapper of such a method in an attribute of it, which the compiler makes at the first call. The method
    itself is sufficient.
    """
    for method in vars(Optimizer).values():
        hidden = getattr(method, "__wrapped__", None)
        if hidden is not None:
            vars(hidden).setdefault("__dynamo_disable", hidden)
