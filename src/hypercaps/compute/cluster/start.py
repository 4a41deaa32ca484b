"""Connect to a dask cluster, or start one on this machine, without dask's log messages."""

from __future__ import annotations

import asyncio
import logging
import pkgutil
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from tempfile import TemporaryDirectory
from typing import Any

from hypercaps import __version__
from hypercaps.errors import ClusterError, warn_data

_TIMEOUT = 60  # seconds to wait for a scheduler's answer: it imports torch with the first task
_SILENT = logging.CRITICAL + 1
# No dashboard and no metrics; dask still opens their port, on loopback, which then serves nothing.
_NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


def check_installed() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise ClusterError(
            "dask, which hands work to other processes and machines, is not installed: pip install 'hypercaps[cluster]'"
        ) from None


@contextmanager
def connected(address: str, patience: float) -> Iterator[Any]:
    """A client of the scheduler at ``address``."""
    from distributed import Client
    from distributed.utils import LoopRunner
    from distributed.versions import VersionMismatchWarning

    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always", VersionMismatchWarning)
        try:
            LoopRunner().run_sync(_try_connect, address, patience)  # a client that cannot connect would not clean up
            client = Client(address, timeout=_TIMEOUT, set_as_default=False)
        except Exception as error:  # another kind of server at the address can make dask fail in any way
            reason = (str(error) or type(error).__name__).partition("\n")[0]
            raise ClusterError(
                f"no dask scheduler answers at {address!r} ({reason}): start one with 'dask scheduler' and give the "
                "address that it prints, such as tcp://10.0.0.1:8786 (docs/cluster.md)"
            ) from error
    for warning in recorded:
        if issubclass(warning.category, VersionMismatchWarning):
            rows = [line.split("|") for line in str(warning.message).splitlines() if line.startswith("| ")]
            packages = ", ".join(row[1].strip() for row in rows[1:])
            warn_data(
                f"the cluster at {address} and this machine have different versions of {packages}: if something goes "
                "wrong, give them the same environment"
            )
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    with client:
        _check_versions(client, address)
        yield client


def _check_versions(client: Any, address: str) -> None:
    """Refuse workers without hypercaps or with another version; dask would let them die of the failed import.

    Uses a function of the standard library, which all workers have. Workers that join later are checked by each task.
    """
    for worker, version in client.run(pkgutil.resolve_name, "hypercaps:__version__", on_error="return").items():
        if version != __version__:
            theirs = f"hypercaps {version}" if isinstance(version, str) else f"no hypercaps ({version})"
            raise ClusterError(
                f"worker {worker} of the cluster at {address} has {theirs} and this machine {__version__}: give them "
                "the same environment"
            )


async def _try_connect(address: str, patience: float) -> None:
    from distributed import Security
    from distributed.comm.core import connect

    connecting = connect(address, timeout=patience, **Security().get_connection_args("client"))
    comm = await asyncio.wait_for(connecting, timeout=patience + 1)  # dask's timeout does not cover its handshake
    await comm.close()


@contextmanager
def on_this_machine(workers: int) -> Iterator[str]:
    """Start a scheduler and worker processes that listen on loopback only; the address of the scheduler."""
    import dask
    from distributed import LocalCluster

    with (
        TemporaryDirectory(prefix="hypercaps-", ignore_cleanup_errors=True) as scratch,
        dask.config.set({"temporary-directory": scratch, **_NO_PAGES}),
        ExitStack() as stack,
    ):
        with _without_ctrl_c():
            try:
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    protocol="tcp://",
                    dashboard_address=None,
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # any free port, not dask's default
                    silence_logs=_SILENT,
                    memory_limit=0,  # windows are small, and dask would pause workers that use much memory
                )
            except (OSError, RuntimeError) as error:
                raise ClusterError(f"{workers} worker processes can't be started ({error}): try fewer") from error
            stack.callback(cluster.close)
        yield cluster.scheduler_address


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C for threads and processes that are started inside, and for their children: the command handles it.

    The same for SIGHUP, which a closed terminal sends to all of them. A signal during the start is handled at its end:
    dask would not clean up if it were interrupted in between.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    received: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    resource_tracker.ensure_running()  # would otherwise be started with the first process, and unblock Ctrl-C
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:  # other threads may not block it
        signal.signal(number, lambda number, frame: received.append(number))
    # Not SIGTERM: dask ends its processes with it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


@contextmanager
def quiet() -> Iterator[None]:
    """Keep dask's log off the terminal; what matters is reported as our own errors and warnings."""
    import distributed  # noqa: F401 - sets its loggers up

    loggers = (logging.getLogger(name) for name in ("distributed", "tornado", "tornado.application"))
    levels = {handler: handler.level for logger in loggers for handler in logger.handlers}
    for handler in levels:
        handler.setLevel(_SILENT)
    try:
        yield
    finally:
        for handler, level in levels.items():
            handler.setLevel(level)
