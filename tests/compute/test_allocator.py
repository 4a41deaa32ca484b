"""Freed memory is used again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from hypercaps.compute import allocator
from hypercaps.compute.allocator import reused_memory

# In a process of its own: what other tests left in the heap changes what the C library does.
MEASURE = """
import resource
import torch
from hypercaps.compute.allocator import reused_memory
from hypercaps.compute.memory import resident_memory

SIZE = 12 << 20  # values: 48 MB, which glibc gets from the system every time

def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        torch.ones(SIZE)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

outside = page_faults()
assert outside > 0
with reused_memory(), reused_memory():
    # The heap grows first: aligned blocks leave small pieces beside them, of which glibc keeps up to 7 for itself, and
    # which separate one large block from the next.
    for _ in range(5):
        page_faults()
    assert page_faults() < 0.1 * outside, "not used again"
    inside = resident_memory()
assert resident_memory() < inside - 2 * SIZE, "not returned"
assert page_faults() > 0.5 * outside, "still kept"
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_large_blocks_are_used_again_and_returned_at_the_end() -> None:
    found = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_library", lambda: None)
    with reused_memory():
        torch.ones(10)
