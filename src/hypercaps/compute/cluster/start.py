"""To reach a dask cluster, or start one on this machine, without its noise."""

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

_BUSY = 60  # seconds that a scheduler may take: it imports torch when it is sent our first task
_SILENT = logging.CRITICAL + 1
# Neither a dashboard nor metrics: dask opens a port for them all the same, on loopback, which has nothing to say then.
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

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", VersionMismatchWarning)
        try:
            LoopRunner().run_sync(_knock, address, patience)  # a client that can't connect does not clean up
            client = Client(address, timeout=_BUSY, set_as_default=False)
        except Exception as error:  # whatever else may listen there can make dask fail in any way
            reason = (str(error) or type(error).__name__).partition("\n")[0]
            raise ClusterError(
                f"no dask scheduler answers at {address!r} ({reason}): start one with 'dask scheduler' and give the "
                "address that it prints, such as tcp://10.0.0.1:8786"
            ) from error
    for warning in said:
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
    """Refuse workers that have no hypercaps or another one; dask lets one die of what it can't import.

    Asked by a function of Python's own, which they all have. Workers that come later are asked with every task.
    """
    for worker, version in client.run(pkgutil.resolve_name, "hypercaps:__version__", on_error="return").items():
        if version != __version__:
            theirs = f"hypercaps {version}" if isinstance(version, str) else f"no hypercaps ({version})"
            raise ClusterError(
                f"worker {worker} of the cluster at {address} has {theirs} and this machine {__version__}: give them "
                "the same environment"
            )


async def _knock(address: str, patience: float) -> None:
    from distributed import Security
    from distributed.comm.core import connect

    knocking = connect(address, timeout=patience, **Security().get_connection_args("client"))
    comm = await asyncio.wait_for(knocking, timeout=patience + 1)  # dask's timeout ends before its handshake
    await comm.close()


@contextmanager
def on_this_machine(workers: int) -> Iterator[str]:
    """The address of a scheduler with worker processes, which nobody outside this machine can reach."""
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
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # any port, not dask's usual one
                    silence_logs=_SILENT,
                    memory_limit=0,  # windows are small, and dask would stop workers whose threads use much
                )
            except (OSError, RuntimeError) as error:
                raise ClusterError(f"{workers} worker processes can't be started ({error}): try fewer") from error
            stack.callback(cluster.close)
        yield cluster.scheduler_address


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Threads and processes that are started inside never see Ctrl-C, nor do those that they start: it is ours.

    One that comes meanwhile waits: dask, stopped half-way through its start, would not clean up.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    resource_tracker.ensure_running()  # Python starts it with the first process, and unblocks Ctrl-C when it does
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))  # other threads may let it in
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
    if came:
        raise KeyboardInterrupt


@contextmanager
def quiet() -> Iterator[None]:
    """dask's log stays off the user's terminal: what matters comes as an error or a warning of ours."""
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
