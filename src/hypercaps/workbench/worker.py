"""The worker process: one task at a time, with the scene and the libraries kept open between them.

A thread receives orders. To cancel a task it interrupts the main thread, wherever that is in its Python code; the
server ends a process that does not react.
"""

from __future__ import annotations

import _thread
import os
import queue
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from hypercaps.errors import DataWarning, HypercapsError
from hypercaps.io.open import Opening
from hypercaps.workbench.worker_messages import Cancel, ExplainQuery, ExportTask, Look, Order, Report, Task, View

_PROGRESS_SECONDS = 0.2
_AGAIN = 0.02  # seconds


class CancelledTask(BaseException):
    """The task was cancelled."""


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def run_worker(connection: Connection, opening: Opening, threads: int | None, niceness: int) -> None:
    """The main function of the process."""
    if hasattr(os, "nice"):
        os.nice(niceness)
    Worker(connection, opening, threads).run()


class Worker:
    """Receives orders, carries out tasks, and reports."""

    def __init__(self, connection: Connection, opening: Opening, threads: int | None) -> None:
        self._connection, self._opening, self._threads = connection, opening, threads
        self._tasks: queue.Queue[Task | ExplainQuery] = queue.Queue()
        self._queries: queue.Queue[ExplainQuery] = queue.Queue()
        self.view: View | None = None
        self._task = ""  # id of the one that runs
        self._is_cancelled = self._is_sending = False
        self._last_progress = 0.0

    def run(self) -> None:
        signal.signal(signal.SIGINT, self._on_interrupt)
        threading.Thread(target=self._listen, daemon=True).start()
        from hypercaps.compute.devices import use_threads
        from hypercaps.workbench.task_runner import TaskRunner

        if self._threads is not None:
            use_threads(self._threads)
        with self._warnings():
            self._runner = TaskRunner(self._opening.open(), self)
            self._runner.warm_up()
        self.report("ready")
        while True:
            with suppress(CancelledTask):  # that arrived when its task had just ended
                order = self._tasks.get()
                if isinstance(order, ExplainQuery):
                    self._answer(order)
                else:
                    self._carry_out(order)

    # ---- orders ------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while True:
            try:
                order: Order = self._connection.recv()
            except (EOFError, OSError):  # the server is gone
                os._exit(0)
            if isinstance(order, Cancel):
                if order.id == self._task:
                    self._is_cancelled = True
                    _thread.interrupt_main()
            elif isinstance(order, Look):
                self.view = order.view
            elif isinstance(order, ExplainQuery) and self._task:
                self._queries.put(order)  # answered between the steps of the task
            else:
                self._tasks.put(order)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Stop the task; Ctrl-C in the terminal, which arrives here too, is for the server."""
        if not self._is_cancelled or self._is_sending:
            return
        if _is_importing(frame):  # a module that is interrupted while it is imported stays broken
            again = threading.Timer(_AGAIN, _thread.interrupt_main)
            again.daemon = True
            again.start()
            return
        self._is_cancelled = False
        raise CancelledTask

    def _carry_out(self, task: Task) -> None:
        self._task, self._is_cancelled = task.id, False
        try:
            with self._warnings():
                if isinstance(task, ExportTask):
                    done = self._runner.export(task)
                else:
                    self.view = task.view
                    done = self._runner.train(task)
            self._end("done", done)
        except CancelledTask:
            self._end("cancelled", {})
        except HypercapsError as error:
            self._end("failed", {"error": str(error)})
        except MemoryError:
            self._end(
                "failed", {"error": "there was not enough memory for this: choose another method or fewer labels"}
            )
        except OSError as error:
            self._end("failed", {"error": f"a file could not be written or read: {error.strerror or error}"})
        except Exception as error:
            import traceback

            traceback.print_exc()
            self._end("failed", {"error": f"unexpected error: {type(error).__name__}: {error}"})
        self.answer_queries()

    def _end(self, kind: Any, data: dict[str, Any]) -> None:
        task, self._task = self._task, ""
        self._send(Report(task, kind, data))

    # ---- reports -----------------------------------------------------------------------------------------------------

    def report(self, kind: Any, **data: Any) -> None:
        """Tell the server; a cancellation that arrives meanwhile takes effect afterwards."""
        self._send(Report(self._task, kind, data))
        if self._is_cancelled:
            self._is_cancelled = False
            raise CancelledTask

    def progress(self, **data: Any) -> None:
        """Tell the server how far the task is, a few times a second, and answer queries."""
        self.answer_queries()
        now = time.monotonic()
        if now - self._last_progress >= _PROGRESS_SECONDS:
            self._last_progress = now
            self.report("progress", **data)

    def _send(self, report: Report) -> None:
        self._is_sending = True
        try:
            self._connection.send(report)
        except OSError:  # the server is gone
            os._exit(0)
        finally:
            self._is_sending = False

    def answer_queries(self) -> None:
        while not self._queries.empty():
            self._answer(self._queries.get())

    def _answer(self, query: ExplainQuery) -> None:
        try:
            answer = self._runner.explain(query)
        except HypercapsError as error:
            answer = {"error": str(error)}
        self.report("answer", number=query.number, **answer)

    @contextmanager
    def _warnings(self) -> Iterator[None]:
        """Send warnings about data to the page, each once for a task."""
        shown: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            if issubclass(category, DataWarning) and str(message) not in shown:
                shown.add(str(message))
                self.report("warning", text=str(message))

        with warnings.catch_warnings():
            warnings.simplefilter("always", DataWarning)
            warnings.showwarning = show
            yield
