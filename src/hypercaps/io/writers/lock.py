"""Locks between processes: a file that one process at a time can hold. A killed process releases its locks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hypercaps.io.writers.atomic import open_for_update

try:
    import fcntl
except ImportError:  # Windows: two programs that write the same files are not detected
    fcntl = None  # type: ignore[assignment]


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; False: another process holds it."""
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
    return True


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Hold the lock file ``path``, which exists only meanwhile; False: another process holds it."""
    descriptor = _open_locked(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):
                path.unlink()  # before the lock is released: nobody else has it
            os.close(descriptor)


def _open_locked(path: Path) -> int | None:
    while True:
        descriptor = open_for_update(path)
        if not try_lock(descriptor):
            os.close(descriptor)
            return None
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # its last holder removed it after it was opened here


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
