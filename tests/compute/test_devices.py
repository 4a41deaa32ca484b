from __future__ import annotations

import numpy as np
import pytest
import torch

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.compute.devices import Device, arithmetic_here, is_same_arithmetic
from hypercaps.errors import ModelError
from hypercaps.models.capsules import kernels
from support.scenes import QUICK


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "cpu:x"])
def test_a_missing_device_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(ModelError, match=f"device '{name}' can't be used here") as refusal:
        Device(name)
    assert "\n" not in str(refusal.value)


def test_an_unknown_precision_lists_the_known() -> None:
    with pytest.raises(ModelError, match="'float8': float32 or bfloat16 is expected"):
        Device("cpu", "float8")


def test_the_classifier_checks_the_device_before_it_starts(made: tuple[Scene, Labels]) -> None:
    with pytest.raises(ModelError, match="device 'gpu'"):
        ConvCapsClassifier(**QUICK, device="gpu").fit(*made)


@pytest.mark.parametrize("method", ["convcapsnet", "c-cnn"])
def test_half_precision_trains_through_torch(made: tuple[Scene, Labels], method: str) -> None:
    fitted = ConvCapsClassifier(**QUICK, method=method, precision="bfloat16").fit(*made)
    assert fitted.scores_.oa > 95
    scene, _ = made
    in_float = fitted.set_params(precision="float32").predict_proba(scene)
    in_half = fitted.set_params(precision="bfloat16").predict_proba(scene)
    assert not np.array_equal(in_float, in_half)
    np.testing.assert_allclose(in_half, in_float, atol=0.1)


def test_the_compiled_kernels_leave_half_precision_alone() -> None:
    tensor = torch.zeros(1)
    with Device("cpu", "bfloat16").arithmetic():
        assert not kernels.usable(tensor)
    assert not kernels.usable(tensor.double())
    assert not kernels.usable(torch.zeros(1, device="meta"))


def test_processes_compute_alike_if_one_has_not_used_torch() -> None:
    with_torch = arithmetic_here()  # this test has
    kernels = with_torch.partition(" and ")[0]
    assert with_torch != kernels and is_same_arithmetic(with_torch, kernels) and is_same_arithmetic(kernels, kernels)
    assert not is_same_arithmetic(with_torch, "other kernels") and not is_same_arithmetic(kernels, "other kernels")
    assert not is_same_arithmetic(with_torch, f"{kernels} and torch for another processor")
