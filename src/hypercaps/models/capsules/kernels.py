"""Fast implementations: layers and routing by the compiled kernels, and routing by torch without prediction vectors.

The compiled kernels (``hypercaps.compute.native``) are for float32 on the processor. Anything else, and installations
without compiled kernels, use ``route_through_weights``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from hypercaps.compute import native
from hypercaps.models.capsules.packing import Packed, addresses, class_padding, layer_sizes, pack, routing_sizes
from hypercaps.models.capsules.squash import squash


def usable(*tensors: Tensor) -> bool:
    """Whether the compiled kernels are available and take these tensors: float32 on the processor."""
    fitting = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    return fitting and not torch.is_autocast_enabled("cpu") and native.available()


# ---- the layers before the routing -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stack:
    """The weights of SpatialConv, PrimaryCaps and 1D-ConvCaps (or the layers of c-CNN) for the kernels.

    Shapes as in the modules: spatial (K, D*D), the others (out, in, window).
    """

    weights: tuple[Tensor, ...]  # weight and bias of each layer
    strides: tuple[int, int]
    capsule: int  # dimension of the squashed parent capsules; 0: neurons with ReLU

    def sizes(self, bands: int) -> native.Layers:
        return layer_sizes(self.weights, self.strides, self.capsule, bands)

    def packed(self) -> Packed:
        return pack([weight.detach().numpy() for weight in self.weights])


def layers(stack: Stack, spectra: Tensor, places: Tensor) -> Tensor:
    """Spectra (S, C) and the row of each patch's pixels in them (B, D*D) int32 -> children (B, c3, channels)"""
    children: Tensor = _Layers.apply(stack, spectra, places, *stack.weights)  # type: ignore[no-untyped-call]
    return children


@dataclass(frozen=True)
class _LayerResults:
    """Results of the layers for some pixels, and what the backward pass needs."""

    stack: Stack
    sizes: native.Layers
    packed: Packed
    spectra: Tensor
    places: Tensor
    features: Tensor  # (B, C, K)
    primary: Tensor  # (B, c2, channels)
    parents: Tensor  # (B, c3, channels), before their squash

    @classmethod
    def of(cls, stack: Stack, spectra: Tensor, places: Tensor) -> tuple[_LayerResults, Tensor]:
        """Run the layers; also returns the children (B, c3, channels).

        The children are not a field: kept in autograd's context together, they would form a reference cycle.
        """
        sizes, packed, pixels = stack.sizes(spectra.shape[1]), stack.packed(), len(places)
        spectra, places = spectra.contiguous(), places.contiguous()
        features = torch.empty(pixels, sizes.bands, sizes.filters)
        primary = torch.empty(pixels, sizes.positions1, sizes.channels1)
        parents = torch.empty(pixels, sizes.positions2, sizes.padded2)
        children = torch.empty(pixels, sizes.positions2, sizes.channels2)
        weights = addresses(packed)
        native.run("layers", sizes, weights, spectra, places, pixels, features, primary, parents, children)
        return cls(stack, sizes, packed, spectra, places, features, primary, parents), children

    def back(self, gradient: Tensor) -> tuple[Tensor, ...]:
        """Gradients with respect to ``stack.weights``, from the gradient with respect to the children."""
        shapes = [part.shape for part in self.packed]
        lengths = [math.prod(shape) for shape in shapes]
        pixels, weights, gradient = len(self.places), addresses(self.packed), gradient.contiguous()
        sums = torch.empty(-(-pixels // native.TRAIN_CHUNK), sum(lengths))
        inputs = self.sizes, weights, self.spectra, self.places, pixels
        native.run("layers_back", *inputs, self.features, self.primary, self.parents, gradient, sums)
        gradients = [part.view(shape) for part, shape in zip(torch.split(sums.sum(0), lengths), shapes, strict=True)]
        spatial, spatial_bias, primary, primary_bias, conv, conv_bias = gradients
        filters, channels1, channels2 = (len(weight) for weight in self.stack.weights[::2])
        return (
            spatial[:, :filters].T,
            spatial_bias[:filters][:, None],
            primary[:, :filters, :channels1].permute(2, 1, 0),
            primary_bias[:channels1],
            conv[:, :channels1, :channels2].permute(2, 1, 0),
            conv_bias[:channels2],
        )


class _Layers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stack: Stack, spectra: Tensor, places: Tensor, *_: Tensor) -> Tensor:
        ctx.results, children = _LayerResults.of(stack, spectra, places)
        return children

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, None, *ctx.results.back(gradients[0])


# ---- routing ---------------------------------------------------------------------------------------------------------


def route_compiled(children: Tensor, viewpoints: Tensor, iterations: int) -> Tensor:
    """children (B, I, e), viewpoints (I, n, e, d) -> class capsules (B, n, d) by the compiled kernel."""
    size = viewpoints.shape[3]
    capsules: Tensor = _Route.apply(children, _whole(viewpoints), iterations)  # type: ignore[no-untyped-call]
    return capsules if capsules.shape[2] == size else capsules[:, :, :size]


@dataclass(frozen=True)
class _RoutingResults:
    """Results of a routing, and what the backward pass needs."""

    routing: native.Routing
    children: Tensor  # (B, I, e)
    viewpoints: Tensor  # (I, n, e, d)
    sums: Tensor  # (B, n, d), s of Eq. 6, before the squash
    couplings: Tensor | None  # (blocks of 4 pixels, I, n, 4)

    @classmethod
    def of(cls, children: Tensor, viewpoints: Tensor, iterations: int, *, keep: bool) -> tuple[_RoutingResults, Tensor]:
        """Run the routing; also returns the class capsules (B, n, d)."""
        children, viewpoints = children.contiguous(), viewpoints.contiguous()
        routing, pixels = routing_sizes(viewpoints, iterations, len(children)), len(children)
        sums = torch.empty(pixels, routing.classes, routing.class_size)
        capsules = torch.empty_like(sums)
        blocks = -(-pixels // native.BLOCK)
        couplings = torch.empty(blocks, routing.capsules, routing.classes, native.BLOCK) if keep else None
        native.run("route", routing, children, viewpoints, pixels, sums, capsules, couplings)
        return cls(routing, children, viewpoints, sums, couplings), capsules

    def back(self, gradient: Tensor, *, of: str) -> tuple[Tensor, Tensor]:
        """Gradients with respect to children and viewpoints, from that of the ``capsules`` or of their ``lengths``."""
        pixels, gradient = len(self.children), gradient.contiguous()
        sums_back, by_class = torch.empty_like(self.sums), torch.empty_like(self.sums)
        kernel = {"capsules": "squash_back", "lengths": "lengths_back"}[of]
        native.run(kernel, self.routing, pixels, self.sums, gradient, sums_back, by_class)
        children_back, viewpoints_back = torch.empty_like(self.children), torch.empty_like(self.viewpoints)
        routed = self.routing, self.children, self.viewpoints, self.couplings
        native.run("route_back", *routed, pixels, sums_back, by_class, children_back, viewpoints_back)
        return children_back, viewpoints_back


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, children: Tensor, viewpoints: Tensor, iterations: int) -> Tensor:
        ctx.results, capsules = _RoutingResults.of(children, viewpoints, iterations, keep=any(ctx.needs_input_grad))
        return capsules

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return *ctx.results.back(gradients[0], of="capsules"), None


def _whole(viewpoints: Tensor) -> Tensor:
    """Viewpoints with the class capsules zero-padded to whole vectors of the widest variant."""
    missing = class_padding(viewpoints.shape[3])
    return pad(viewpoints, (0, missing)) if missing else viewpoints


# ---- all four layers -------------------------------------------------------------------------------------------------


def lengths(stack: Stack, viewpoints: Tensor, iterations: int, spectra: Tensor, places: Tensor) -> Tensor:
    """Lengths of the class capsules (B, n).

    Without gradients all layers run in one pass, and a pixel's result does not depend on its batch, to the bit.
    """
    viewpoints = _whole(viewpoints)
    if not torch.is_grad_enabled():
        viewpoints, spectra, places = viewpoints.contiguous(), spectra.contiguous(), places.contiguous()
        sizes, weights = stack.sizes(spectra.shape[1]), addresses(stack.packed())
        routing = routing_sizes(viewpoints, iterations, len(places))
        lengths = torch.empty(len(places), routing.classes)
        native.run("lengths", sizes, weights, routing, viewpoints, spectra, places, len(places), lengths)
        return lengths
    result: Tensor = _Lengths.apply(  # type: ignore[no-untyped-call]
        stack, iterations, spectra, places, viewpoints, *stack.weights
    )
    return result


def lengths_with_back(
    stack: Stack, viewpoints: Tensor, iterations: int, spectra: Tensor, places: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """Lengths of the class capsules (B, n) without autograd, and what takes their gradient back through the layers.

    That function returns the gradients with respect to the viewpoints and to each of ``stack.weights``, with the bits
    that autograd finds by ``lengths``.
    """
    results, found = _LengthResults.of(stack, _whole(viewpoints), iterations, spectra, places)

    def back(gradient: Tensor) -> tuple[Tensor, ...]:
        viewpoints_back, *weights_back = results.back(gradient)
        return viewpoints_back[..., : viewpoints.shape[3]], *weights_back

    return found, back


@dataclass(frozen=True)
class _LengthResults:
    """Results of all four layers for some pixels: what the backward pass needs."""

    layers: _LayerResults
    routed: _RoutingResults

    @classmethod
    def of(
        cls, stack: Stack, viewpoints: Tensor, iterations: int, spectra: Tensor, places: Tensor
    ) -> tuple[_LengthResults, Tensor]:
        """Run all layers; also returns the lengths (B, n)."""
        layers, children = _LayerResults.of(stack, spectra, places)
        children = children.view(len(places), len(viewpoints), stack.capsule)  # (B, I, e)
        routed, capsules = _RoutingResults.of(children, viewpoints, iterations, keep=True)
        found: Tensor = torch.linalg.vector_norm(capsules, dim=2)
        return cls(layers, routed), found

    def back(self, gradient: Tensor) -> tuple[Tensor, ...]:
        """Gradients with respect to the viewpoints and to each of ``stack.weights``."""
        children_back, viewpoints_back = self.routed.back(gradient, of="lengths")
        return viewpoints_back, *self.layers.back(children_back)


class _Lengths(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, stack: Stack, iterations: int, spectra: Tensor, places: Tensor, viewpoints: Tensor, *_: Tensor
    ) -> Tensor:
        ctx.results, found = _LengthResults.of(stack, viewpoints, iterations, spectra, places)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, None, None, *ctx.results.back(gradients[0])


# ---- routing by torch alone ------------------------------------------------------------------------------------------


def route_through_weights(children: Tensor, viewpoints: Tensor, iterations: int) -> Tensor:
    """children (B, I, e), viewpoints (I, n, e, d) -> class capsules (B, n, d) by torch, without prediction vectors.

    A pixel's prediction vectors are I * n * d numbers (180 kB for 200 bands and 16 classes), which the reference
    writes once and reads five times. Both of their uses can be rewritten with the viewpoint matrices:

        agreement   t(i,k) = <W(i,k) u(i), U(k)> = <u(i), W(i,k)^T U(k)>     U(k): sum of the parents so far
        weighted    s(k)   = sum_i l(i,k) W(i,k) u(i) = [l(i,k) u(i)]_i  @  [W(i,k)]_i

    so that an iteration is two matrix products per class. Gradients treat couplings as constants, as in the reference.
    """
    count, classes, size, class_size = viewpoints.shape
    weights = viewpoints.permute(1, 0, 2, 3).reshape(classes, count * size, class_size)  # (n, I*e, d)
    evenly = squash(torch.matmul(children.flatten(1), weights) / classes)  # (n, B, d): all couplings 1/n
    if iterations == 1:
        return evenly.transpose(0, 1)
    with torch.no_grad():
        # The log priors are linear in the parents, so only the sum of the parents is kept.
        parents = evenly.detach()
        couplings = _couplings(children, weights, parents)  # (n, B, I, 1)
        for _ in range(iterations - 2):
            parents = parents + _weighted(children, weights, couplings)
            couplings = _couplings(children, weights, parents)
    return _weighted(children, weights, couplings).transpose(0, 1)


def _couplings(children: Tensor, weights: Tensor, parents: Tensor) -> Tensor:
    """Eq. 7: softmax over classes of <u(i), W(i,k)^T U(k)>: (n, B, I, 1)"""
    back = torch.bmm(parents, weights.transpose(1, 2))  # (n, B, I*e)
    back = back.view(*parents.shape[:2], *children.shape[1:])  # (n, B, I, e)
    return back.mul_(children).sum(dim=3, keepdim=True).softmax(dim=0)


def _weighted(children: Tensor, weights: Tensor, couplings: Tensor) -> Tensor:
    """Eq. 6 and Eq. 8: squash(sum_i l(i,k) W(i,k) u(i)): (n, B, d)"""
    return squash(torch.bmm((couplings * children).flatten(2), weights))
