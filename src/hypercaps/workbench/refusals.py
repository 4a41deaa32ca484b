"""RefusedError: a request that the page answers with a sentence, and the status of other errors."""

from __future__ import annotations

import errno

from hypercaps.errors import HypercapsError

DISK_FULL = 507


class RefusedError(HypercapsError):
    """A request that can't be carried out; ``status`` is that of the answer."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def not_found(what: str) -> RefusedError:
    return RefusedError(f"there is no {what} here", 404)


def status_of(error: BaseException) -> int:
    """The status of an error's answer: 507 for a full disk, 400 for what the user can correct."""
    if isinstance(error, RefusedError):
        return error.status
    causes = (error, error.__cause__)
    if any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in causes):
        return DISK_FULL
    return 400 if isinstance(error, HypercapsError) else 500
