"""Jobs: one training or export runs, one waits, and a newer one takes the place of the waiting one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from hypercaps.workbench.refusals import RefusedError
from hypercaps.workbench.worker_messages import Cancel, ExplainQuery, ExportTask, Look, Report, Task, TrainTask, View
from hypercaps.workbench.worker_process import WorkerProcess

_PATIENCE = 2.0  # seconds in which a worker must end a task that was cancelled


@dataclass(eq=False)
class Job:
    """A task on its way; ``outcome`` is what the worker says at its end."""

    task: Task
    auto: bool = False
    state: str = "waiting"  # then running, mapping, scoring or exporting
    stage: str = ""
    progress: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    outcome: Future[dict[str, Any]] = field(default_factory=Future)
    is_cancelled: bool = False

    @property
    def id(self) -> str:
        return self.task.id

    def describe(self) -> dict[str, Any]:
        """The part ``training`` of the page's state."""
        done = self.progress.get("done")
        spent = time.monotonic() - self.started
        left = spent * (1 - done) / done if done and done > 0.02 else None
        return {
            "id": self.id,
            "state": self.state,
            "stage": self.stage,
            "epoch": self.progress.get("epoch"),
            "epochs": self.progress.get("epochs"),
            "validation": self.progress.get("validation"),
            "done": done,
            "seconds_left": None if left is None else round(left, 1),
            "auto": self.auto,
        }


@dataclass(frozen=True)
class JobObserver:
    """Functions that are called, in a thread of their own, when something has happened."""

    on_change: Callable[[], None]  # the job that runs or waits is another one, or further
    on_report: Callable[[Job, Report], None]
    on_end: Callable[[Job, Report], None]
    on_message: Callable[[str, str], None]  # level and text


class Jobs:
    """The worker and what it does."""

    def __init__(
        self,
        make_worker: Callable[[Callable[[Report], None], Callable[[], None]], WorkerProcess],
        observer: JobObserver,
    ) -> None:
        self._observer = observer
        self._lock = threading.RLock()
        self.running: Job | None = None
        self.waiting: Job | None = None
        self._queries: dict[int, Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._is_ready = False  # the worker has started
        self.worker = make_worker(self._on_report, self._on_death)

    def start(self) -> None:
        self.worker.start()

    def close(self) -> None:
        self.worker.close()

    # ---- what the page asks for --------------------------------------------------------------------------------------

    def submit(self, task: Task, *, auto: bool = False) -> tuple[Job, Job | None]:
        """Run a task, now or after the one that runs; also the waiting one that it has replaced."""
        with self._lock:
            job, replaced = Job(task, auto), self.waiting
            self.waiting = job
            if replaced is not None:
                replaced.outcome.set_exception(RefusedError("a newer request took its place", 409))
            if self.running is None:
                self._next()
            elif self.running.state == "scoring" and isinstance(task, TrainTask):
                self._stop(self.running)  # its map is there; the scores of the new one count
        self._observer.on_change()
        return job, replaced

    def cancel(self) -> list[Job]:
        """Stop what runs and what waits; the jobs that are left out by that."""
        with self._lock:
            stopped = [job for job in (self.running, self.waiting) if job is not None]
            waiting, self.waiting = self.waiting, None
            if waiting is not None:
                waiting.outcome.set_exception(RefusedError("it was cancelled", 409))
            if self.running is not None:
                self._stop(self.running)
        self._observer.on_change()
        return stopped

    def _stop(self, job: Job) -> None:
        job.is_cancelled = True
        self.worker.send(Cancel(job.id))
        timer = threading.Timer(_PATIENCE, self._insist, args=(job,))
        timer.daemon = True
        timer.start()

    def _insist(self, job: Job) -> None:
        with self._lock:
            if self.running is job:
                self.worker.kill()

    def look(self, view: View) -> None:
        with self._lock:
            if self.running is not None:
                self.worker.send(Look(view))

    def explain(self, query: Callable[[int], ExplainQuery]) -> Future[dict[str, Any]]:
        """Ask the worker; it answers between the steps of its task."""
        with self._lock:
            number, answer = next(self._numbers), Future[dict[str, Any]]()
            self._queries[number] = answer
            self.worker.send(query(number))
            return answer

    @property
    def shown(self) -> Job | None:
        """The job that the page shows: the one that runs and was not cancelled, else the one that waits."""
        with self._lock:
            if self.running is not None and not self.running.is_cancelled:
                return self.running
            return self.waiting

    # ---- what the worker says ----------------------------------------------------------------------------------------

    def _next(self) -> None:
        self.running, self.waiting = self.waiting, None
        if self.running is not None:
            self.running.state = "exporting" if isinstance(self.running.task, ExportTask) else "running"
            self.running.stage = "Starting"
            self.running.started = time.monotonic()
            self.worker.send(self.running.task)

    def _on_report(self, report: Report) -> None:
        if report.kind == "ready":
            self._is_ready = True
            return
        if report.kind == "warning":
            self._observer.on_message("warning", report.data["text"])
            return
        if report.kind == "answer":
            self._on_answer(dict(report.data))
            return
        with self._lock:
            job = self.running
        if job is None or report.id != job.id:
            return
        if report.kind in ("done", "failed", "cancelled"):
            self._finish(job, report)
            return
        if not job.is_cancelled:
            self._on_progress(job, report)

    def _on_answer(self, data: dict[str, Any]) -> None:
        with self._lock:
            answer = self._queries.pop(data.pop("number"), None)
        if answer is None:
            return
        if "error" in data:
            answer.set_exception(RefusedError(data["error"], 409))
        else:
            answer.set_result(data)

    def _on_progress(self, job: Job, report: Report) -> None:
        if report.kind == "progress":
            stage = report.data["stage"]
            if stage != job.stage:
                job.stage, job.started = stage, time.monotonic()
                if not isinstance(job.task, ExportTask) and job.state != "scoring":
                    job.state = "mapping" if stage == "Mapping" else "running"
            job.progress = {name: value for name, value in report.data.items() if name != "stage"}
        elif report.kind == "mapped":
            job.state, job.stage, job.progress = "scoring", "Scoring", {}
            job.started = time.monotonic()
        self._observer.on_report(job, report)
        self._observer.on_change()

    def _finish(self, job: Job, report: Report) -> None:
        with self._lock:
            self._next()
        self._observer.on_end(job, report)
        if report.kind == "done":
            job.outcome.set_result(dict(report.data))
        else:
            text = report.data.get("error", "it was cancelled")
            job.outcome.set_exception(RefusedError(text, 409))
        self._observer.on_change()

    def _on_death(self) -> None:
        """The worker has ended: its task is lost, and another worker goes on with the next one."""
        with self._lock:
            job, self.running = self.running, None
            queries, self._queries = list(self._queries.values()), {}
            was_ready, self._is_ready = self._is_ready, False
        for query in queries:
            query.set_exception(RefusedError("the worker process ended: try again", 409))
        if was_ready:  # one that can't start would end again and again
            self.worker.start()
        if job is not None:
            with self._lock:
                self._next()
            kind: Literal["cancelled", "failed"] = "cancelled" if job.is_cancelled else "failed"
            text = "the worker process ended unexpectedly, perhaps for lack of memory; labels and maps are kept"
            self._observer.on_end(job, Report(job.id, kind, {"error": text}))
            if not job.outcome.done():
                job.outcome.set_exception(RefusedError(text, 409))
            self._observer.on_change()
