"""Child processes that end when their parent does."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import wait


def end_with_parent() -> None:
    """Wait for the parent process to end, then end this one; run in a daemon thread of a child process.

    Without it, the children of a killed command would continue in the background.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
