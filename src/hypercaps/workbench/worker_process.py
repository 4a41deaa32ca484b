"""WorkerProcess: the worker as the server sees it. It is started at once, and again if it ends."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from hypercaps.io.open import Opening
from hypercaps.workbench.worker import run_worker
from hypercaps.workbench.worker_messages import Order, Report


class WorkerProcess:
    """One process that carries out orders; ``on_report`` and ``on_death`` are called in a thread of this object."""

    def __init__(
        self,
        opening: Opening,
        threads: int | None,
        niceness: int,
        on_report: Callable[[Report], None],
        on_death: Callable[[], None],
    ) -> None:
        self._arguments = opening, threads, niceness
        self._on_report, self._on_death = on_report, on_death
        self._lock = threading.RLock()
        self._is_closed = False
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Start a process, if none runs."""
        with self._lock:
            if self._is_closed or self._process is not None:
                return
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            process = context.Process(
                target=run_worker, args=(theirs, *self._arguments), name="hypercaps-worker", daemon=True
            )
            process.start()  # may fail: then the next order tries again
            theirs.close()
            self._process, self._connection = process, ours
            threading.Thread(target=self._read, args=(process, ours), daemon=True).start()

    def send(self, order: Order) -> None:
        with self._lock:
            self.start()
            if self._connection is not None:
                with suppress(OSError):  # it has just died: the reading thread finds out
                    self._connection.send(order)

    def kill(self) -> None:
        """End the process at once; another one is started when it is needed."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    @property
    def pid(self) -> int | None:
        with self._lock:
            return None if self._process is None else self._process.pid

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            process = self._process
        if process is not None:
            process.kill()
            process.join(5)

    def _read(self, process: SpawnProcess, connection: Connection) -> None:
        while True:
            try:
                report = connection.recv()
            except (EOFError, OSError):
                break
            self._on_report(report)
        process.join()
        with self._lock:
            connection.close()
            self._process = self._connection = None
            if self._is_closed:
                return
        self._on_death()
