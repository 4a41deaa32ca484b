"""The median is numpy's, to the bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hypercaps.data.median import median


@pytest.mark.parametrize("size", [1, 2, 3, 10, 101])
def test_it_is_that_of_numpy(size: int) -> None:
    for seed in range(20):
        values = np.random.default_rng(seed).standard_normal(size) * 10.0**seed
        assert median(values) == np.median(values)


def test_numpy_ma_is_not_imported() -> None:
    code = "import sys, numpy as np; from hypercaps.data.median import median; median(np.ones(2)); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "numpy.ma" not in done.stdout.split()
