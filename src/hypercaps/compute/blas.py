"""numpy's linear algebra on one thread, without torch."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[object]:
    """Limit numpy's linear algebra to one thread: small products are faster so on a busy machine."""
    limits: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
    return limits


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """The libraries of this process; ``modules`` have been imported, with which further libraries may have come.

    Looking for them reads a list of all files that the process has mapped: a millisecond, longer than most of the
    products that this is for.
    """
    return ThreadpoolController()
