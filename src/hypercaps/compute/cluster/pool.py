"""Tasks for the workers of a dask cluster: a temporary one on this machine, or a running one.

Functions, small arguments and results are sent; workers open scenes themselves. dask schedules the tasks, and repeats
those of a worker that died.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from hypercaps.compute.cluster.start import check_installed, connected, on_this_machine, quiet
from hypercaps.compute.devices import arithmetic_here, current_versions, is_same_arithmetic, use_threads
from hypercaps.errors import ClusterError, DataWarning, WorkersDiedError, warn_data

T = TypeVar("T")
R = TypeVar("R")

PER_THREAD = 3  # tasks in flight per worker thread: one running, one ready, one whose result is being sent
_WITHOUT_WORKERS = 4  # tasks in flight without any worker: an adaptive cluster grows only if it has tasks
_POLL = 2.0  # seconds between checks of the cluster while waiting for a result
_TOPIC = "hypercaps"  # of dask's events: messages from running tasks

OnMessage = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class _Task:
    """A task as it is sent. One object, because dask searches tuples and lists for results of other tasks."""

    function: Callable[[Any], Any]
    item: Any
    environment: dict[str, str]
    threads: int | None  # None: as set in the worker's environment


class _Done(NamedTuple):
    """The result of a task as it is sent back."""

    result: Any
    worker: str
    arithmetic: str


class Cluster:
    """Workers of a dask cluster, as a context manager.

    Give either the ``address`` of a running scheduler, or a number of ``workers``: processes on this machine, which
    listen on loopback only. A task computes on ``threads`` threads; by default its share of this machine's cores, or
    for a running cluster the setting of its workers (dask's default is one).
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        threads: int | None = None,
        patience: float = 5.0,  # seconds to wait for the scheduler's answer
    ) -> None:
        if (address is None) == (workers is None):
            raise ClusterError(
                "a cluster is either an address or a number of workers on this machine: give one of them"
            )
        if workers is not None and workers < 1:
            raise ClusterError(f"{workers} workers can't do anything: give 1 or more")
        self.address, self.workers, self.threads, self.patience = address, workers, threads, patience
        self._deaths: deque[str] = deque()  # added by dask's thread, reported by ours
        self._messages: deque[dict[str, Any]] = deque(maxlen=1000)  # likewise
        self._reported: set[str] = set()
        self._slots, self._slots_at = 0, float("-inf")

    def __enter__(self) -> Self:
        check_installed()
        from dask.system import CPU_COUNT

        with ExitStack() as stack:  # closes what was opened if a later step fails
            stack.enter_context(quiet())
            address = self.address
            if self.workers is not None:
                address = stack.enter_context(on_this_machine(self.workers))
                self.threads = self.threads or max(1, CPU_COUNT // self.workers)
            assert address is not None
            self._client = stack.enter_context(connected(address, self.patience))
            self._client.subscribe_topic("all", self._on_event)
            stack.callback(self._client.unsubscribe_topic, "all")
            self._client.subscribe_topic(_TOPIC, lambda event: self._messages.append(event[1]))
            stack.callback(self._client.unsubscribe_topic, _TOPIC)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def slots(self) -> int:
        """Number of tasks that the workers run at once, at most a second old; 0 without workers."""
        if time.monotonic() - self._slots_at > 1:
            with self._translate_errors():
                self._slots = sum(self._client.nthreads().values())
            self._slots_at = time.monotonic()
        return self._slots

    @property
    def _where(self) -> str:
        return "on this machine" if self.address is None else f"at {self.address}"

    def map_in_order(
        self, function: Callable[[T], R], items: Iterable[T], *, most_in_flight: int | None = None
    ) -> Iterator[R]:
        """Yield ``function(item)`` for each item, in order; items are taken from the iterable only as needed.

        At most ``most_in_flight`` tasks are running or have results that wait for earlier ones; by default three per
        worker thread. An exception of ``function`` is raised here, and the remaining tasks are cancelled.
        """
        waiting: deque[Any] = deque()
        to_do = enumerate(items)
        try:
            while True:
                while self._has_room(len(waiting), most_in_flight) and (following := next(to_do, None)) is not None:
                    waiting.append(self._submit(function, *following))
                if not waiting:
                    return
                self._wait_for_one([waiting[0]])
                yield self._result(waiting.popleft())
        finally:
            self._drop(waiting)

    def map_as_done(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        most_in_flight: int | None = None,
        on_message: OnMessage = lambda message: None,
    ) -> Iterator[tuple[T, R | ClusterError]]:
        """Yield each item with ``function(item)``, as they finish; an error where its workers died repeatedly.

        ``on_message`` is called with what running tasks :func:`tell`, seconds later.
        """
        under_way: dict[Any, T] = {}
        to_do = enumerate(items)
        try:
            while True:
                while self._has_room(len(under_way), most_in_flight) and (following := next(to_do, None)) is not None:
                    under_way[self._submit(function, *following)] = following[1]
                if not under_way:
                    return
                for future in self._wait_for_one(list(under_way), on_message):
                    item = under_way.pop(future)
                    try:
                        outcome: R | ClusterError = self._result(future)
                    except WorkersDiedError as error:
                        outcome = error
                    yield item, outcome
        finally:
            self._drop(under_way)

    def _has_room(self, in_flight: int, most: int | None) -> bool:
        return in_flight < (PER_THREAD * self.slots or _WITHOUT_WORKERS if most is None else most)

    def _submit(self, function: Callable[[T], R], number: int, item: T) -> Any:
        task = _Task(function, item, _environment(), self.threads)
        with self._translate_errors():  # earlier items have priority: their results are needed first
            return self._client.submit(_work, task, pure=False, priority=-number)

    def _wait_for_one(self, futures: list[Any], on_message: OnMessage = lambda message: None) -> set[Any]:
        """Wait until a future has ended, and return all that have; meanwhile report dead or missing workers."""
        from distributed import wait

        while True:
            self._report_events(on_message)
            with self._translate_errors():
                try:
                    with self._client.as_current():
                        ended: set[Any] = wait(futures, timeout=_POLL, return_when="FIRST_COMPLETED").done
                except TimeoutError:
                    if self.address is None or self.slots:  # on this machine, dask restarts workers itself
                        continue
                else:
                    self._report_events(on_message)
                    return ended
            if "no workers" not in self._reported:
                self._reported.add("no workers")
                warn_data(f"the cluster at {self.address} has no workers now: waiting for some (Ctrl-C stops)")

    def _result(self, future: Any) -> Any:
        from distributed import KilledWorker

        with self._translate_errors():
            failure = future.exception()
        if isinstance(failure, KilledWorker):
            raise WorkersDiedError(
                f"{failure.allowed_failures + 1} workers died one after another while they did the same piece of work, "
                "most often because memory ran out: see their logs; give them more, or run fewer at once"
            )
        if isinstance(failure, RuntimeError) and "deserialization of the task graph" in str(failure):
            reason = f" ({failure.__cause__})" if failure.__cause__ else ""
            raise ClusterError(
                f"the scheduler {self._where} can't understand what it is sent{reason}: it needs the same environment "
                f"as this machine, with {_versions_text(_environment())}"
            ) from failure
        if failure is not None:
            raise failure  # an exception of the task itself
        with self._translate_errors():
            done: _Done = future.result()
        ours = arithmetic_here()
        if not any(is_same_arithmetic(done.arithmetic, other) for other in (ours, *self._reported)):
            self._reported.add(done.arithmetic)
            warn_data(
                f"{done.worker} computes with {done.arithmetic}, this machine with {ours}: the last digits can differ "
                "from those of one machine"
            )
        return done.result

    def _drop(self, futures: Iterable[Any]) -> None:
        """Cancel tasks that have not started; their results are not needed any more."""
        if self._client.status == "running":
            self._client.cancel(list(futures))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate the errors of a lost connection."""
        try:
            yield
        except (CancelledError, OSError) as error:
            raise ClusterError(
                f"the scheduler {self._where} went away before the work was done: see that it runs and start again"
            ) from error

    def _on_event(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker" and not message.get("expected"):
            self._deaths.append(str(message.get("worker")))

    def _report_events(self, on_message: OnMessage) -> None:
        while self._deaths:
            warn_data(f"worker {self._deaths.popleft()} died: what it was doing is done again")
        while self._messages:
            on_message(self._messages.popleft())


def here() -> str:
    """Inside a task: the worker that runs it, for messages."""
    from distributed import get_worker

    return f"worker {get_worker().address}"


def still_needed() -> bool:
    """Inside a task: whether its result is still needed. A cancelled task continues unless it checks this."""
    from distributed import get_worker

    worker = get_worker()
    state = worker.state.tasks.get(worker.get_current_task())
    return state is not None and state.state != "cancelled"


def tell(message: dict[str, Any]) -> None:
    """Inside a task: send a small message, of numbers and texts, to the process that waits for its result."""
    from distributed import get_worker

    get_worker().log_event(_TOPIC, message)


def _work(task: _Task) -> _Done:
    """Run a task on a worker. Results must not depend on the worker: another environment is refused."""
    ours = _environment()
    # A worker may be without torch: then it refuses only what needs torch.
    if any(ours[name] != version for name, version in task.environment.items() if name in ours):
        raise ClusterError(
            f"{here()} has {_versions_text(ours)} and this machine {_versions_text(task.environment)}: give them the "
            "same environment"
        )
    warnings.simplefilter("ignore", DataWarning)  # the command itself warns
    if task.threads is not None:
        use_threads(task.threads)
    return _Done(task.function(task.item), here(), arithmetic_here())


@cache
def _environment() -> dict[str, str]:
    """Versions that results depend on, without the part after a +, which names the build for a device."""
    versions = current_versions()
    return {name: versions[name].partition("+")[0] for name in ("hypercaps", "torch") if name in versions}


def _versions_text(environment: dict[str, str]) -> str:
    return " and ".join(f"{name} {version}" for name, version in environment.items())
