"""Weights and sizes in the form that the compiled kernels take: padded to whole vector registers, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hypercaps.compute import native

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[np.float32]
Packed = tuple[Array, ...]  # weight and bias of the three layers before the routing


def pack(weights: Sequence[Array]) -> Packed:
    """Weights and biases of the layers as padded matrices (k, out), k over the window and, faster, over the channels.

    Shapes as in the modules: spatial (K, D*D), the others (out, in, window).
    """
    spatial, spatial_bias, primary, primary_bias, conv, conv_bias = weights
    filters, channels1, channels2 = (padded(len(weight)) for weight in (spatial, primary, conv))
    return (
        _fill(spatial.T, -1, filters),
        _fill(spatial_bias.reshape(-1), filters),
        _fill(primary.transpose(2, 1, 0), -1, filters, channels1),  # (window, in, out)
        _fill(primary_bias, channels1),
        _fill(conv.transpose(2, 1, 0), -1, channels1, channels2),
        _fill(conv_bias, channels2),
    )


def padded(channels: int) -> int:
    """Number of channels with those that fill the last vector register."""
    return -(-channels // native.LANES) * native.LANES


def class_padding(class_size: int) -> int:
    """Zeros that are appended to class capsules, to whole vectors of the widest variant."""
    return -class_size % native.LANES


def whole_class_capsules(viewpoints: Array) -> Array:
    """A copy of viewpoints (I, n, e, d) with the class capsules padded."""
    return _fill(viewpoints, viewpoints.shape[-1] + class_padding(viewpoints.shape[-1]))


def addresses(packed: Packed) -> native.LayerWeights:
    weights = native.LayerWeights(*(part.ctypes.data for part in packed))
    weights.keep = packed  # keeps the memory alive as long as its addresses are used
    return weights


def layer_sizes(weights: Sequence[Array | Tensor], strides: tuple[int, int], capsule: int, bands: int) -> native.Layers:
    """Sizes of the layers whose weights and biases these are; ``capsule`` as in ``kernels.Stack``."""
    (filters, area), (channels1, _, window1), (channels2, _, window2) = (weight.shape for weight in weights[::2])
    stride1, stride2 = strides
    positions1 = (bands - window1) // stride1 + 1
    return native.Layers(
        bands=bands,
        area=area,
        filters=padded(filters),
        channels1=padded(channels1),
        window1=window1,
        stride1=stride1,
        positions1=positions1,
        channels2=channels2,
        padded2=padded(channels2),
        window2=window2,
        stride2=stride2,
        positions2=(positions1 - window2) // stride2 + 1,
        capsule=capsule,
    )


def routing_sizes(viewpoints: Array | Tensor, iterations: int, pixels: int) -> native.Routing:
    """Sizes of a routing through padded viewpoints (I, n, e, d), and the tiles in which threads compute it."""
    count, classes, size, class_size = viewpoints.shape
    share = -(-pixels // native.threads())  # pixels of a thread, divided into equal tiles
    tile = -(-share // max(1, -(-share // native.TILE)))
    tile = max(1, -(-tile // native.BLOCK)) * native.BLOCK
    return native.Routing(count, size, classes, class_size, iterations, tile)


def _fill(array: Array, *sizes: int) -> Array:
    """A copy with zeros at the ends of its last dimensions up to ``sizes`` (-1: as it is), on whole cache lines."""
    kept, last = array.shape[: -len(sizes)], array.shape[-len(sizes) :]
    full = tuple(have if size == -1 else size for size, have in zip(sizes, last, strict=True))
    filled: Array = native.empty((*kept, *full))
    if full == last:
        filled[...] = array
        return filled
    filled[...] = 0
    filled[tuple(slice(size) for size in array.shape)] = array
    return filled
