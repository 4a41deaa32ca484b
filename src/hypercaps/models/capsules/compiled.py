"""1D-ConvCapsNet by the compiled kernels and numpy alone: to classify without torch.

Same numbers, to the bit, as the module gives without gradients, because both run the same kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hypercaps.compute import native
from hypercaps.compute.devices import import_torch
from hypercaps.errors import ModelError
from hypercaps.models.capsules.packing import (
    Packed,
    addresses,
    layer_sizes,
    pack,
    routing_sizes,
    whole_class_capsules,
)
from hypercaps.models.capsules.sizes import ConvCapsSizes

if TYPE_CHECKING:
    from torch import nn

Array = npt.NDArray[np.float32]


class CompiledConvCapsNet:
    """The weights of a trained network, and the kernel that applies them; ``module`` is the same for torch.

    Parameters
    ----------
    sizes : of the network
    weights : float32 arrays by their names in the module; other names, shapes and types are refused
    """

    def __init__(self, sizes: ConvCapsSizes, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        shapes = sizes.shapes
        if different := sorted(shapes.keys() ^ weights.keys()):
            raise ValueError(f"{different[0]} is missing or not expected")
        for name, shape in shapes.items():
            if weights[name].shape != shape:
                raise ValueError(f"its {name} has shape {weights[name].shape} and not {shape}")
            if weights[name].dtype != np.float32:
                raise TypeError(f"its {name} holds {weights[name].dtype} and not float32")
        self.sizes = sizes
        self.weights: dict[str, Array] = dict(weights)

    @property
    def parameters(self) -> int:
        return sum(weight.size for weight in self.weights.values())

    def lengths(self, spectra: Array, places: npt.NDArray[np.int32]) -> Array:
        """Lengths of the class capsules (B, n), of patches that need not be assembled.

        Parameters
        ----------
        spectra : (S, C) whitened
        places : (B, D*D) row of each patch's pixels in ``spectra``
        """
        self._check(spectra, places)
        sizes, spectra, places = self.sizes, np.ascontiguousarray(spectra), np.ascontiguousarray(places)
        strides = sizes.primary[1], sizes.conv[1]
        layers = layer_sizes(self._layers, strides, sizes.conv_size, sizes.bands)
        routing = routing_sizes(self._viewpoints, sizes.routings, len(places))
        lengths = np.empty((len(places), sizes.classes), dtype=np.float32)
        inputs = self._viewpoints, spectra, places, len(places)
        native.run("lengths", layers, addresses(self._packed), routing, *inputs, lengths)
        return lengths

    def _check(self, spectra: Array, places: npt.NDArray[np.int32]) -> None:
        """Refuse what the kernel would read beyond its end."""
        bands, area = self.sizes.bands, self.sizes.patch**2
        fits = spectra.ndim == places.ndim == 2 and spectra.shape[1] == bands and places.shape[1] == area
        if not fits or spectra.dtype != np.float32 or places.dtype != np.int32:
            raise ModelError(
                f"spectra have shape {spectra.shape} of {spectra.dtype} and places {places.shape} of {places.dtype}: "
                f"(number, {bands}) of float32 and (pixels, {area}) of int32 are expected"
            )
        if places.size and not (int(places.min()) >= 0 and int(places.max()) < len(spectra)):
            raise ModelError(f"places go beyond the {len(spectra)} spectra: whole numbers from 0 are expected")

    @property
    def _layers(self) -> tuple[Array, ...]:
        """Weight and bias of the layers before the routing."""
        names = (f"{layer}.{part}" for layer in ("spatial", "primary.conv", "conv.conv") for part in ("weight", "bias"))
        return tuple(self.weights[name] for name in names)

    @cached_property
    def _packed(self) -> Packed:
        return pack(self._layers)

    @cached_property
    def _viewpoints(self) -> Array:
        viewpoints = self.weights["classcaps.viewpoints"]  # (positions, arrays, n, e, d)
        return whole_class_capsules(viewpoints.reshape(math.prod(viewpoints.shape[:2]), *viewpoints.shape[2:]))

    @cached_property
    def module(self) -> nn.Module:
        """The same network for torch, with the same memory for its weights."""
        torch = import_torch("this use of a trained network")
        from hypercaps.models.convcapsnet import ConvCapsNet

        with torch.inference_mode(False):  # or its weights could never be differentiated
            with torch.device("meta"):
                network = ConvCapsNet(**vars(self.sizes))
            weights = {name: torch.from_numpy(weight) for name, weight in self.weights.items()}
            network.load_state_dict(weights, strict=True, assign=True)
        return network.eval()
