"""Statistics and decompositions: the same matrices to the bit, whatever the number of threads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from hypercaps.compute import blas, linalg
from hypercaps.compute.devices import threads_in_use, use_threads
from hypercaps.data.scene import Scene
from hypercaps.training.label_propagation import edge_features
from hypercaps.training.preprocessing import PCAWhitening, Standardising

THREADS = (1, 2, 3)


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = threads_in_use()
    yield
    use_threads(before)


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.usefixtures("restored_threads")
def test_the_statistics_of_a_scene_are_the_same_to_the_bit_for_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((200, 200))
    scene = Scene.from_array(rng.standard_normal((60, 70, 200)) @ mixing + 100)
    results: list[dict[str, np.ndarray]] = []
    for threads in THREADS:
        use_threads(threads)
        with threadpool_limits(threads, user_api="blas"):
            whitening = PCAWhitening.fit(scene)
            edges = edge_features(whitening, whitening.transform(scene.read().values).reshape(-1, scene.bands))
            results.append(whitening.arrays() | Standardising.fit(scene).arrays() | {"guide": edges})
    for other in results[1:]:
        for name, array in results[0].items():
            np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.usefixtures("restored_threads")
def test_products_and_decompositions_run_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every processor shows in the result how many threads there were."""
    use_threads(2)
    observed: list[tuple[int, set[int]]] = []

    def observing(function: Any) -> Any:
        def call(*args: Any) -> Any:
            observed.append((torch.get_num_threads(), blas_threads()))
            return function(*args)

        return call

    monkeypatch.setattr(np.linalg, "eigh", observing(np.linalg.eigh))
    monkeypatch.setattr(torch, "from_numpy", observing(torch.from_numpy))
    with threadpool_limits(2, user_api="blas"):
        block = np.random.default_rng(0).standard_normal((50, 4))
        scatter = linalg.gram(block)
        values, vectors = linalg.eigh(scatter)
        assert blas_threads() == {2} and threads_in_use() == 2
    assert observed == [(1, {1}), (1, {1})]
    np.testing.assert_allclose(scatter, block.T @ block, rtol=1e-12)
    np.testing.assert_allclose(vectors * values @ vectors.T, scatter, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(linalg.product(block, scatter), block @ scatter, rtol=1e-12)


def test_libraries_that_are_loaded_later_are_limited_too() -> None:
    code = """
import numpy.linalg
from threadpoolctl import threadpool_info, threadpool_limits
from hypercaps.compute.blas import one_blas_thread

def libraries():
    return {found["filepath"]: found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}

with one_blas_thread():
    before = libraries()
import scipy.linalg
with threadpool_limits(2, user_api="blas"):
    with one_blas_thread():
        after = libraries()
    assert len(after) >= len(before) > 0, (before, after)  # wheels of scipy have their own
    assert {*before.values(), *after.values()} == {1}, (before, after)
    assert set(libraries().values()) == {2}
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_libraries_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes a millisecond, and a training does a few hundred small decompositions."""
    linalg.eigh(np.eye(3))
    monkeypatch.setattr(blas, "ThreadpoolController", None)
    linalg.eigh(np.eye(3))
