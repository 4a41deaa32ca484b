"""Files that stay open while a thread reads several windows of them.

Readers that open a file for every window call :func:`opened`. To open a GeoTIFF of many bands takes longer than to
read a row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any


class _Kept(threading.local):
    """The open files of a thread, by what identifies them; None: files are not kept."""

    files: dict[Hashable, Any] | None = None
    closing: ExitStack


_kept = _Kept()


@contextmanager
def keep_open() -> Iterator[None]:
    """Within this block, the thread opens each file once; at its end they are closed."""
    if _kept.files is not None:  # a block inside of another one
        yield
        return
    with ExitStack() as closing:
        _kept.files, _kept.closing = {}, closing
        try:
            yield
        finally:
            _kept.files = None


@contextmanager
def opened(key: Hashable, open_file: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    """The file that ``open_file`` opens, or the one that the thread has open already."""
    if _kept.files is None:
        with open_file() as file:
            yield file
        return
    if key not in _kept.files:
        _kept.files[key] = _kept.closing.enter_context(open_file())
    yield _kept.files[key]
