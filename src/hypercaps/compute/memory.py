"""Memory of this machine and of this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def resident_memory() -> int:
    """Bytes of memory that this process uses."""
    if sys.platform == "linux":  # without psutil, which a map would otherwise import for this number alone
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return int(psutil.Process().memory_info().rss)


def total_memory() -> int:
    """Bytes of memory of this machine."""
    import psutil

    return int(psutil.virtual_memory().total)


def available_memory() -> int:
    """Bytes that can be allocated without swapping."""
    import psutil

    return int(psutil.virtual_memory().available)
