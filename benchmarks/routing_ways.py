"""Implementations of routing by agreement for 200 bands and 16 classes: microseconds per pixel on all threads.

`.venv/bin/python benchmarks/routing_ways.py`; docs/speed.md has the figures. numba is included if it is installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from hypercaps.models.capsules import kernels
from hypercaps.models.capsules.routing import prediction_vectors, route
from hypercaps.models.capsules.squash import squash

CAPSULES, SIZE, CLASSES, CLASS_SIZE, PIXELS, ROUNDS = 176, 8, 16, 16, 1536, 8


def plain(children: Tensor, viewpoints: Tensor) -> Tensor:
    return route(prediction_vectors(children, viewpoints), 3)


def in_tiles(function: Callable[[Tensor, Tensor], Tensor], tile: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda children, viewpoints: torch.cat([function(part, viewpoints) for part in torch.split(children, tile)])


def by_numba() -> Callable[[Tensor, Tensor], Tensor]:
    """Parallel over pixels; the prediction vectors of a pixel fit into the L2 cache, an iteration is one pass."""
    import numba

    @numba.njit(parallel=True, fastmath=True, cache=True)
    def routed(children, viewpoints):  # type: ignore[no-untyped-def]  # (B, I, e), (I, n, e, d) -> (B, n, d)
        pixels, count, size = children.shape
        classes, class_size = viewpoints.shape[1], viewpoints.shape[3]
        out = np.empty((pixels, classes, class_size), dtype=np.float32)
        for p in numba.prange(pixels):
            predictions = np.zeros((count, classes, class_size), dtype=np.float32)
            sums = np.zeros((classes, class_size), dtype=np.float32)
            parents = np.zeros((classes, class_size), dtype=np.float32)
            t = np.empty(classes, dtype=np.float32)
            for i in range(count):
                for k in range(classes):
                    for e in range(size):
                        u = children[p, i, e]
                        for d in range(class_size):
                            predictions[i, k, d] += u * viewpoints[i, k, e, d]
                    for d in range(class_size):
                        sums[k, d] += predictions[i, k, d] / classes
            for iteration in range(3):
                if iteration:
                    sums[:] = 0
                    for i in range(count):
                        largest = np.float32(-1e30)
                        for k in range(classes):
                            t[k] = 0
                            for d in range(class_size):
                                t[k] += predictions[i, k, d] * parents[k, d]
                            largest = max(largest, t[k])
                        total = np.float32(0)
                        for k in range(classes):
                            t[k] = np.exp(t[k] - largest)
                            total += t[k]
                        for k in range(classes):
                            coupling = t[k] / total
                            for d in range(class_size):
                                sums[k, d] += coupling * predictions[i, k, d]
                for k in range(classes):
                    squared = np.float32(0)
                    for d in range(class_size):
                        squared += sums[k, d] * sums[k, d]
                    scale = np.sqrt(squared) / (1 + squared)  # squash
                    for d in range(class_size):
                        parents[k, d] += sums[k, d] * scale
                        out[p, k, d] = sums[k, d] * scale
        return out

    return lambda children, viewpoints: torch.from_numpy(routed(children.numpy(), viewpoints.numpy()))


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    children = squash(torch.randn(PIXELS, CAPSULES, SIZE, generator=generator))
    viewpoints = 0.1 * torch.randn(CAPSULES, CLASSES, SIZE, CLASS_SIZE, generator=generator)
    through = in_tiles(lambda u, w: kernels.route_through_weights(u, w, 3), 64)
    ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "plain torch, 32 pixels at once": in_tiles(plain, 32),
        "plain torch, 64 pixels at once": in_tiles(plain, 64),
        "plain torch, 256 pixels at once": in_tiles(plain, 256),
        "plain torch, 512 pixels at once": in_tiles(plain, 512),
        "torch.compile, 32 pixels at once": in_tiles(torch.compile(plain), 32),
        "torch.compile, 256 pixels at once": in_tiles(torch.compile(plain), 256),
        "through the weights, 64 pixels at once": through,
        "compiled kernel": lambda u, w: kernels.route_compiled(u, w, 3),
    }
    try:
        ways["numba"] = by_numba()
    except ImportError:
        print("numba is not installed and is left out")
    first: dict[str, float] = {}
    best: dict[str, float] = {}
    with torch.no_grad():
        expected = ways["plain torch, 32 pixels at once"](children, viewpoints)
        for repeat in range(ROUNDS + 1):
            for name, way in ways.items():
                started = time.perf_counter()
                result = way(children, viewpoints)
                taken = time.perf_counter() - started
                if repeat == 0:
                    first[name] = taken
                    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)
                else:
                    best[name] = min(taken, best.get(name, taken))
    print(f"{'implementation':<42} {'us/pixel':>10} {'first call, s':>14}")
    for name, taken in best.items():
        print(f"{name:<42} {taken / PIXELS * 1e6:>10.1f} {first[name]:>14.1f}")


if __name__ == "__main__":
    main()
