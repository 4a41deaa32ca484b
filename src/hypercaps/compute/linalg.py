"""Matrix products and decompositions whose result does not depend on the number of threads.

BLAS and LAPACK split sums between their threads. On processors with AVX-512 the last digits of a product then depend on
how many threads there are, and training amplifies the difference. Everything here runs on one thread of torch's and of
numpy's library alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from hypercaps.compute import native
from hypercaps.compute.blas import one_blas_thread

Matrix = npt.NDArray[np.float64]


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch's and numpy's linear algebra to one thread each."""
    with native.torch_on_one_thread(), one_blas_thread():
        yield


def gram(block: Matrix) -> Matrix:
    """block.T @ block: (n, k) -> (k, k)."""
    import torch

    with one_thread():
        tensor = torch.from_numpy(block)
        return (tensor.T @ tensor).numpy()


def eigh(symmetric: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues (k,), ascending, and eigenvectors (k, k) in columns of a symmetric matrix (k, k)."""
    with one_thread():
        values, vectors = np.linalg.eigh(symmetric)
    return values, vectors


def product(left: npt.NDArray[np.floating], right: Matrix) -> Matrix:
    """left @ right, (n, k), (k, m) -> (n, m), summed in a fixed order without BLAS."""
    return np.asarray(np.einsum("nk,km->nm", left, right, optimize=False))
