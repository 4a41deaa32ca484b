"""Work handed to the workers of a dask cluster: one on this machine, or one that is already there.

Functions and small arguments go over the wire and results come back; workers open scenes themselves. dask does the
rest: it finds who is free, and does again what a worker was doing when it died.
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
from hypercaps.compute.devices import arithmetic_here, current_versions, use_threads
from hypercaps.errors import ClusterError, DataWarning, WorkersDiedError, warn_data

T = TypeVar("T")
R = TypeVar("R")

PER_THREAD = 3  # tasks in flight for every thread of a worker: one at work, one ready, one on its way back
_AT_FIRST = 4  # in flight while there is no worker yet: a cluster that grows with its work must see some
_POLL = 2.0  # seconds between looks at the cluster while a result is waited for


@dataclass(frozen=True)
class _Task:
    """What goes over the wire. One piece, because dask looks into tuples and lists for results of other tasks."""

    function: Callable[[Any], Any]
    item: Any
    environment: dict[str, str]
    threads: int | None  # None: as many as the worker's environment says


class _Done(NamedTuple):
    """What comes back."""

    result: Any
    worker: str
    arithmetic: str


class Cluster:
    """Workers of a dask cluster, to be used as a context manager.

    With ``address`` that of a scheduler which is already there; else ``workers`` processes on this machine, which
    listen on loopback only. A task computes on ``threads`` threads: by default its share of the cores of this machine,
    and for a cluster that is already there what its workers were told (dask's own default is one).
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
        self._deaths: deque[str] = deque()  # heard of by dask's thread, told by ours
        self._told_of: set[str] = set()
        self._slots, self._slots_at = 0, float("-inf")

    def __enter__(self) -> Self:
        check_installed()
        from dask.system import CPU_COUNT

        with ExitStack() as stack:  # undoes what was begun if the rest fails
            stack.enter_context(quiet())
            address = self.address
            if self.workers is not None:
                address = stack.enter_context(on_this_machine(self.workers))
                self.threads = self.threads or max(1, CPU_COUNT // self.workers)
            assert address is not None
            self._client = stack.enter_context(connected(address, self.patience))
            self._client.subscribe_topic("all", self._hear)
            stack.callback(self._client.unsubscribe_topic, "all")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def slots(self) -> int:
        """How many tasks the workers do at once, as of the last second; 0 while there are none."""
        if time.monotonic() - self._slots_at > 1:
            with self._explained():
                self._slots = sum(self._client.nthreads().values())
            self._slots_at = time.monotonic()
        return self._slots

    @property
    def _where(self) -> str:
        return "on this machine" if self.address is None else f"at {self.address}"

    def map_in_order(
        self, function: Callable[[T], R], items: Iterable[T], *, most_in_flight: int | None = None
    ) -> Iterator[R]:
        """``function`` of each item, in their order. Items are taken as there is room for them.

        At most ``most_in_flight`` results are under way or wait for those before them: three for every thread of the
        workers if it is left out. What ``function`` raises on a worker is raised here; the rest is then dropped.
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
        self, function: Callable[[T], R], items: Iterable[T], *, most_in_flight: int | None = None
    ) -> Iterator[tuple[T, R | ClusterError]]:
        """Each item with ``function`` of it, as they end; an error where its workers died time and again."""
        under_way: dict[Any, T] = {}
        to_do = enumerate(items)
        try:
            while True:
                while self._has_room(len(under_way), most_in_flight) and (following := next(to_do, None)) is not None:
                    under_way[self._submit(function, *following)] = following[1]
                if not under_way:
                    return
                for future in self._wait_for_one(list(under_way)):
                    item = under_way.pop(future)
                    try:
                        outcome: R | ClusterError = self._result(future)
                    except WorkersDiedError as error:
                        outcome = error
                    yield item, outcome
        finally:
            self._drop(under_way)

    def _has_room(self, in_flight: int, most: int | None) -> bool:
        return in_flight < (PER_THREAD * self.slots or _AT_FIRST if most is None else most)

    def _submit(self, function: Callable[[T], R], number: int, item: T) -> Any:
        task = _Task(function, item, _environment(), self.threads)
        with self._explained():  # those before go first: they are waited for
            return self._client.submit(_work, task, pure=False, priority=-number)

    def _wait_for_one(self, futures: list[Any]) -> set[Any]:
        """Those that have ended, as soon as one has; meanwhile the user is told what is up with the workers."""
        from distributed import wait

        while True:
            self._tell()
            with self._explained():
                try:
                    with self._client.as_current():
                        ended: set[Any] = wait(futures, timeout=_POLL, return_when="FIRST_COMPLETED").done
                except TimeoutError:
                    if self.address is None or self.slots:  # on this machine, dask starts the next one itself
                        continue
                else:
                    self._tell()
                    return ended
            if "no workers" not in self._told_of:
                self._told_of.add("no workers")
                warn_data(f"the cluster at {self.address} has no workers now: waiting for some (Ctrl-C stops)")

    def _result(self, future: Any) -> Any:
        from distributed import KilledWorker

        with self._explained():
            failure = future.exception()
        if isinstance(failure, KilledWorker):
            raise WorkersDiedError(
                f"{failure.allowed_failures + 1} workers died one after another while they did the same piece of work, "
                "most often for want of memory: their logs say why; give them more, or run fewer at once"
            )
        if isinstance(failure, RuntimeError) and "deserialization of the task graph" in str(failure):
            reason = f" ({failure.__cause__})" if failure.__cause__ else ""
            raise ClusterError(
                f"the scheduler {self._where} can't understand what it is sent{reason}: it needs the same environment "
                f"as this machine, with {_in_words(_environment())}"
            ) from failure
        if failure is not None:
            raise failure  # the work's own
        with self._explained():
            done: _Done = future.result()
        ours = arithmetic_here()
        if done.arithmetic != ours and done.arithmetic not in self._told_of:
            self._told_of.add(done.arithmetic)
            warn_data(
                f"{done.worker} computes with {done.arithmetic}, this machine with {ours}: the last digits can differ "
                "from those of one machine"
            )
        return done.result

    def _drop(self, futures: Iterable[Any]) -> None:
        """Nobody waits for these any more: those that have not begun never will."""
        if self._client.status == "running":
            self._client.cancel(list(futures))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A cluster that can't be reached any more, in one sentence."""
        try:
            yield
        except (CancelledError, OSError) as error:
            raise ClusterError(
                f"the scheduler {self._where} went away before the work was done: see that it runs and start again"
            ) from error

    def _hear(self, event: tuple[float, Any]) -> None:
        what = event[1]
        if isinstance(what, dict) and what.get("action") == "remove-worker" and not what.get("expected"):
            self._deaths.append(str(what.get("worker")))

    def _tell(self) -> None:
        while self._deaths:
            warn_data(f"worker {self._deaths.popleft()} died: what it was doing is done again")


def here() -> str:
    """Inside a task: the worker that does it, for messages."""
    from distributed import get_worker

    return f"worker {get_worker().address}"


def still_wanted() -> bool:
    """Inside a task: whether anybody waits for its result. A task that was cancelled goes on unless it asks."""
    from distributed import get_worker

    worker = get_worker()
    state = worker.state.tasks.get(worker.get_current_task())
    return state is not None and state.state != "cancelled"


def _work(task: _Task) -> _Done:
    """What a worker does. Results must not depend on who computed them, so that another environment is refused."""
    ours = _environment()
    if ours != task.environment:
        raise ClusterError(
            f"{here()} has {_in_words(ours)} and this machine {_in_words(task.environment)}: give them the same "
            "environment"
        )
    warnings.simplefilter("ignore", DataWarning)  # said once, where the user is
    if task.threads is not None:
        use_threads(task.threads)
    return _Done(task.function(task.item), here(), arithmetic_here())


@cache
def _environment() -> dict[str, str]:
    """Versions that results depend on; without what follows a +, which names a build for some device."""
    versions = current_versions()
    return {name: versions[name].partition("+")[0] for name in ("hypercaps", "torch")}


def _in_words(environment: dict[str, str]) -> str:
    return " and ".join(f"{name} {version}" for name, version in environment.items())
