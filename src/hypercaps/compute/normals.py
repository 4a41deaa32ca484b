"""Normal numbers as numpy draws them, several times as fast by the compiled kernels."""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.compute import native

Values = npt.NDArray[np.float32]

_LAYERS = 256
_STEPS = 1 << 23  # into which the width of a layer is divided
_LAST = 3.6541528853610088  # where the lowest layer ends and the tail begins


class _Tables(NamedTuple):
    """The layers that cover half of the normal curve, all of the same area."""

    inside: npt.NDArray[np.uint32]  # steps up to which a number lies below the curve for certain
    widths: Values  # of a step
    heights: Values  # of the curve where the layer ends


def standard_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """``rng.standard_normal(shape, dtype=np.float32)``, to the bit."""
    library = native.library()
    if library is None:
        return rng.standard_normal(shape, dtype=np.float32)
    numbers, tables, generator = np.empty(shape, dtype=np.float32), _tables(), rng.bit_generator
    source: Any = generator.ctypes
    with generator.lock:
        library.hypercaps_normals(
            ctypes.cast(source.next_uint32, ctypes.c_void_p),
            source.state_address,
            *(table.ctypes.data for table in tables),
            _LAST,
            1 / _LAST,
            numbers.ctypes.data,
            numbers.size,
        )
    return numbers


@cache
def _tables() -> _Tables:
    """Marsaglia and Tsang (2000), as numpy rounds them."""
    below = [0.0] * (_LAYERS - 1) + [_LAST]  # where each layer ends
    area = _LAST * _curve(_LAST) + math.sqrt(math.pi / 2) * math.erfc(_LAST / math.sqrt(2))
    for layer in range(_LAYERS - 2, 0, -1):
        before = below[layer + 1]
        below[layer] = math.sqrt(-2 * math.log(area / before + _curve(before)))
    lowest = area / _curve(_LAST)  # the width of a rectangle as large as the lowest layer with its tail
    inside = [_LAST / lowest, 0.0, *(below[layer - 1] / below[layer] for layer in range(2, _LAYERS))]
    return _Tables(
        np.rint(np.multiply(inside, _STEPS)).astype(np.uint32),
        np.divide([lowest, *below[1:]], _STEPS).astype(np.float32),
        np.array([_curve(x) for x in below], dtype=np.float32),
    )


def _curve(x: float) -> float:
    return math.exp(-0.5 * x * x)
