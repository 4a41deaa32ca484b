"""What all routes share: the bench, the page that asks, and threads to compute in."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Depends, Header, Request, Response

from hypercaps.workbench.bench import Bench

T = TypeVar("T")
FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}
BYTES = "application/octet-stream"


@functools.cache
def _limiter(kind: str) -> CapacityLimiter:
    return CapacityLimiter((os.cpu_count() or 1) + 2)


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Compute outside of the event loop, in one of few threads: more would only slow each other down."""
    return await anyio.to_thread.run_sync(function, *arguments, limiter=_limiter("any"))


async def soon(function: Callable[..., T], *arguments: Any) -> T:
    """Compute what takes milliseconds, without waiting for pictures of the scene that are being drawn."""
    return await anyio.to_thread.run_sync(function, *arguments, limiter=_limiter("short"))


def bench_of(request: Request) -> Bench:
    bench: Bench = request.app.state.bench
    return bench


def writer_of(request: Request, x_client: Annotated[str, Header(max_length=100)] = "") -> str:
    """The page that wants to change something; refused if another one is the writer."""
    bench_of(request).hub.check_writer(x_client)
    return x_client


OnBench = Annotated[Bench, Depends(bench_of)]
Writer = Annotated[str, Depends(writer_of)]


def as_bytes(content: bytes, *, final: bool = True, **headers: str) -> Response:
    return Response(content, media_type=BYTES, headers={**(FOREVER if final else {}), **headers})
