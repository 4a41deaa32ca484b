"""Reuse of freed memory while a network is trained."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# Parameters of glibc's mallopt, and their defaults
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_DEFAULT_TRIM, _DEFAULT_MMAPS = 128 << 10, 65536
_KEPT = 2**31 - 1  # bytes of free memory that are not returned: the largest number that mallopt takes

_users = 0
_users_lock = threading.Lock()


@contextmanager
def reused_memory() -> Iterator[None]:
    """Let the C library keep freed blocks of any size for the next allocation; returned to the system at the end.

    glibc gets every block above 32 MB from the system and returns it at once. The system then has to clear the same
    pages in every step of a training, which takes longer than what torch computes on them: 31 instead of 5 ms for the
    product of two tensors of 60 MB. Other C libraries are left as they are.
    """
    global _users
    with _users_lock:
        if _users == 0:
            _set(_MMAP_MAX, 0)  # all blocks come from the heap
            _set(_TRIM_THRESHOLD, _KEPT)
        _users += 1
    try:
        yield
    finally:
        with _users_lock:
            _users -= 1
            if _users == 0:
                _set(_MMAP_MAX, _DEFAULT_MMAPS)
                _set(_TRIM_THRESHOLD, _DEFAULT_TRIM)
                _trim()


@cache
def _library() -> Any | None:
    """The C library if it is glibc."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version, library.mallopt, library.malloc_trim  # noqa: B018 - look them up
    except (OSError, TypeError, AttributeError):  # Windows, macOS, musl
        return None
    return library


def _set(parameter: int, value: int) -> None:
    library = _library()
    if library is not None:
        library.mallopt(ctypes.c_int(parameter), ctypes.c_int(value))


def _trim() -> None:
    library = _library()
    if library is not None:
        library.malloc_trim(ctypes.c_size_t(0))
