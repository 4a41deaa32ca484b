"""The compiled kernels against the layers and the reference routing in torch, for any sizes, threads and company."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypercaps.compute import native
from hypercaps.errors import ModelError
from hypercaps.models.c_cnn import ConvCNN
from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.routing import class_capsules, prediction_vectors, route
from hypercaps.models.capsules.squash import squash
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.models.parts import as_places

pytestmark = pytest.mark.skipif(not native.available(), reason="hypercaps was installed without compiled kernels")


@pytest.fixture(params=native.VARIANTS)
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each variant that this processor can run."""
    monkeypatch.setenv("HYPERCAPS_NATIVE", request.param)
    if native.variant() != request.param:
        pytest.skip(f"this processor has no {request.param}")
    return str(request.param)


@pytest.fixture(autouse=True)
def torch_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def drawn(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(found: torch.Tensor, by_torch: torch.Tensor, exact: torch.Tensor) -> None:
    """1e-4 of the largest from the exact gradient; where large terms cancel, as near as torch's own float32 comes."""
    nearest = float((by_torch.double() - exact).abs().max())
    allowed = 1e-4 * float(exact.abs().max()) + 2 * nearest + 1e-10
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=allowed)


each_variant = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@each_variant
@given(
    pixels=st.integers(1, 60),
    capsules=st.integers(1, 40),
    size=st.integers(1, 10),
    classes=st.integers(1, 19),
    class_size=st.sampled_from([1, 3, 8, 15, 16, 17, 33]),
    iterations=st.integers(1, 8),
    threads=st.integers(1, 3),
)
def test_routing_is_the_reference(
    variant: str, pixels: int, capsules: int, size: int, classes: int, class_size: int, iterations: int, threads: int
) -> None:
    torch.set_num_threads(threads)
    u0 = squash(drawn(pixels, capsules, size, seed=1))
    w0 = drawn(capsules, classes, size, class_size, seed=2, scale=0.3)
    towards = drawn(pixels, classes, class_size, seed=3)
    found = []
    for way, kind in (
        (lambda u, w: route(prediction_vectors(u, w), iterations), torch.float64),
        (lambda u, w: route(prediction_vectors(u, w), iterations), torch.float32),
        (lambda u, w: kernels.route_compiled(u, w, iterations), torch.float32),
    ):
        u, w = (start.clone().to(kind).requires_grad_() for start in (u0, w0))
        capsule = way(u, w)
        (capsule * towards).sum().backward()
        found.append((capsule.detach(), u.grad, w.grad))
    exact, by_torch, compiled = found
    torch.testing.assert_close(compiled[0], by_torch[0], rtol=0, atol=1e-5)
    for gradient in (1, 2):
        close(compiled[gradient], by_torch[gradient], exact[gradient])


@each_variant
@given(
    pixels=st.integers(1, 20),
    bands=st.integers(26, 60),
    classes=st.integers(1, 5),
    patch=st.sampled_from([1, 3, 5]),
    filters=st.integers(1, 18),
    arrays=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    capsule=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    windows=st.tuples(st.integers(1, 9), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    threads=st.integers(1, 3),
)
def test_the_whole_network_is_its_layers(
    variant: str,
    pixels: int,
    bands: int,
    classes: int,
    patch: int,
    filters: int,
    arrays: tuple[int, int],
    capsule: tuple[int, int],
    windows: tuple[int, int],
    strides: tuple[int, int],
    threads: int,
) -> None:
    torch.set_num_threads(threads)
    network = ConvCapsNet(
        bands,
        classes,
        patch=patch,
        spatial_filters=filters,
        primary_arrays=arrays[0],
        primary_size=capsule[0],
        primary_window=windows[0],
        primary_stride=strides[0],
        conv_arrays=arrays[1],
        conv_size=capsule[1],
        conv_window=windows[1],
        conv_stride=strides[1],
        generator=torch.Generator().manual_seed(4),
    )
    with torch.no_grad():
        for number, weight in enumerate(network.parameters()):  # biases too
            weight += drawn(*weight.shape, seed=number, scale=0.05)
    patches = drawn(pixels, patch, patch, bands, seed=5)
    check_against_layers(network, patches, lambda x: torch.linalg.vector_norm(network.capsules(x), dim=2))


def test_the_scalar_network_is_its_layers(variant: str) -> None:
    network = ConvCNN(60, 4, generator=torch.Generator().manual_seed(4))
    check_against_layers(network, drawn(13, 7, 7, 60, seed=5), lambda x: network._logits(network.features(x)))


def check_against_layers(network: torch.nn.Module, patches: torch.Tensor, by_layers: object) -> None:
    network.double()  # to float64 and back changes nothing
    exact, terms = ([torch.zeros_like(weight) for weight in network.parameters()] for _ in range(2))
    by_torch = []
    factors = drawn(len(patches), by_layers(patches[:1].double()).shape[1], seed=6)
    for pixel, own in zip(patches.double(), factors, strict=True):
        network.zero_grad()
        scores = by_layers(pixel[None])
        by_torch.append(scores.detach())
        (scores * own).sum().backward()
        for total, size, weight in zip(exact, terms, network.parameters(), strict=True):
            total += weight.grad
            size += weight.grad.abs()
    network.float().zero_grad()
    compiled = network(patches)
    (compiled * factors).sum().backward()
    with torch.no_grad():
        in_one_pass = network(patches)
    for found in (compiled, in_one_pass):
        torch.testing.assert_close(found.double(), torch.cat(by_torch), rtol=1e-5, atol=1e-5)
    for total, size, weight in zip(exact, terms, network.parameters(), strict=True):
        # Gradients of pixels may cancel to a thousandth of themselves: what is rounded is the terms, not their sum.
        torch.testing.assert_close(weight.grad.double(), total, rtol=0, atol=1e-5 * float(size.max()) + 1e-10)


def test_a_pixel_is_the_same_to_the_bit_whatever_its_company_and_the_threads(variant: str) -> None:
    network = ConvCapsNet(60, 5, generator=torch.Generator().manual_seed(1))
    patches = drawn(101, 7, 7, 60, seed=2)
    found = []
    with torch.no_grad():
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(network(patches))
            for some in (1, 3, 4, 23, 24, 25, 100):
                assert torch.equal(network(patches[-some:]), found[0][-some:])
            order = torch.randperm(101, generator=torch.Generator().manual_seed(3))
            assert torch.equal(network(patches[order]), found[0][order])
    assert all(torch.equal(one, other) for one, other in pairwise(found))


def test_gradients_are_the_same_to_the_bit_for_any_number_of_threads(variant: str) -> None:
    patches, found = drawn(37, 7, 7, 60, seed=2), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        network = ConvCapsNet(60, 5, generator=torch.Generator().manual_seed(1))
        network(patches).square().sum().backward()
        found.append([weight.grad for weight in network.parameters()])
    for one, other in pairwise(found):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_patches_need_not_be_copied() -> None:
    network = ConvCapsNet(60, 5, patch=3)
    spectra = drawn(50, 60, seed=1)
    places = torch.randint(50, (9, 9), dtype=torch.int32, generator=torch.Generator().manual_seed(2))
    patches = spectra[places.long()].view(9, 3, 3, 60)
    with torch.no_grad():
        assert torch.equal(network.forward_indexed(spectra, places), network(patches))
        together, where = as_places(patches)
        assert torch.equal(network.forward_indexed(together, where), network(patches))


def test_couplings_far_apart_stay_finite(variant: str) -> None:
    """Agreements of hundreds: an exponential without care would overflow, or leave nothing to divide by."""
    children, viewpoints = drawn(5, 6, 8, seed=1, scale=30.0), drawn(6, 3, 8, 16, seed=2, scale=30.0)
    found = kernels.route_compiled(children, viewpoints, 3)
    expected = route(prediction_vectors(children.double(), viewpoints.double()), 3).float()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_gradients_of_the_input_go_through_torch() -> None:
    """The kernels give none for the patches: with them, as for a saliency map, the layers are used."""
    network = ConvCapsNet(60, 5, patch=3)
    patches = drawn(2, 3, 3, 60, seed=1).requires_grad_()
    network(patches).sum().backward()
    assert patches.grad is not None and patches.grad.abs().max() > 0


@pytest.mark.parametrize("shape", [(30, 5, 5, 60), (30, 9, 9, 60), (3, 7, 7, 10), (3, 7, 7, 200), (7, 7, 60)])
@pytest.mark.parametrize("kind", [ConvCapsNet, ConvCNN])
def test_patches_of_another_size_are_refused_before_memory_is_touched(kind: type, shape: tuple[int, ...]) -> None:
    with torch.no_grad(), pytest.raises(ModelError, match=r"\(pixels, 7, 7, 60\) is expected"):
        kind(60, 5)(torch.zeros(shape))


@pytest.mark.parametrize("place", [-1, 50])
def test_places_beyond_the_spectra_are_refused(place: int) -> None:
    places = torch.zeros(2, 9, dtype=torch.int32)
    places[1, 4] = place
    with pytest.raises(ModelError, match="beyond the 50 spectra"):
        ConvCapsNet(60, 5, patch=3).forward_indexed(torch.zeros(50, 60), places)
    with pytest.raises(ModelError, match="are expected"):
        ConvCapsNet(60, 5, patch=3).forward_indexed(torch.zeros(50, 60), places.long())


@pytest.mark.parametrize(("capsules", "iterations"), [(6, 3), (4, 0)])
def test_routing_that_makes_no_sense_is_refused(capsules: int, iterations: int) -> None:
    with pytest.raises(ValueError, match="can't be routed"):
        class_capsules(torch.zeros(5, 4, 8), torch.zeros(capsules, 3, 8, 16), iterations)


def test_no_pixels_give_no_scores_and_nan_stays_nan() -> None:
    network = ConvCapsNet(60, 5, patch=3)
    with torch.no_grad():
        assert network(torch.zeros(0, 3, 3, 60)).shape == (0, 5)
        assert network(torch.full((2, 3, 3, 60), torch.nan)).isnan().all()


def test_a_step_leaves_nothing_behind_for_the_garbage_collector() -> None:
    network = ConvCNN(60, 4)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            network(torch.zeros(8, 7, 7, 60)).sum().backward()
        alive = [thing for thing in gc.get_objects() if type(thing) is kernels._LayerResults]
    finally:
        gc.enable()
    assert alive == []
