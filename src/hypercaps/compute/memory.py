"""Memory of this machine and of this process."""

from __future__ import annotations

import psutil


def resident_memory() -> int:
    """Bytes of memory that this process uses."""
    return int(psutil.Process().memory_info().rss)


def total_memory() -> int:
    """Bytes of memory of this machine."""
    return int(psutil.virtual_memory().total)


def available_memory() -> int:
    """Bytes that can be allocated without swapping."""
    return int(psutil.virtual_memory().available)
