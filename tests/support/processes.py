"""Worker processes of a running test."""

from __future__ import annotations

from contextlib import suppress

import psutil


def worker_processes(of: int | None = None) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(of).children(recursive=True):
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found
