"""Loader and thread pool of the compiled kernels (``kernels.c``).

The kernels are compiled when hypercaps is installed. Where that was not possible, torch computes the same more slowly,
with results equal up to rounding, and ``available`` warns once. The variant with the widest vectors that the processor
has is used; ``HYPERCAPS_NATIVE=baseline`` or ``avx2`` limits it to these or narrower ones, ``off`` disables all.

Nothing here imports torch, which takes seconds and which mapping does not need. If it is there, the kernels run on as
many threads as torch does.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hypercaps.errors import SpeedWarning

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
# As in kernels.c
TRAIN_CHUNK = 8
LANES = 16  # channels are padded to whole vectors of the widest variant
BLOCK = 4
TILE = 24
SOLVED = 8
# Bits of the vectors of each variant; 0: those that every processor of the architecture has.
VARIANTS = {"baseline": 0, "avx2": 256, "avx512": 512}
_KERNELS = (
    *("layers", "layers_back", "route", "squash_back", "lengths_back", "route_back", "lengths", "whiten"),
    "solver_step",
)
_CACHE_LINE = 64  # bytes
_SPINS = 200_000  # checks for a job before a helper thread sleeps: a few milliseconds, longer than pauses in a step

_chosen: int | None = None  # number of threads that the user asked for
_threads: int | None = None  # while torch is on one thread: those of the kernels
_users = 0  # number of threads inside ``torch_on_one_thread``
_users_lock = threading.Lock()


class _Inside(threading.local):
    depth = 0  # of this thread in ``torch_on_one_thread``


_inside = _Inside()


def _use_one_thread() -> None:
    """In a forked process: threads do not survive a fork, and torch would wait forever for those of OpenMP."""
    global _threads, _users, _users_lock
    _threads, _users, _users_lock = None, 0, threading.Lock()
    set_threads(1)


def _torch() -> Any | None:
    """torch if something has imported it, completely."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "set_num_threads") else None


def set_threads(threads: int) -> None:
    """Set the number of threads of the kernels and of torch, also if torch is imported later (``models.registry``)."""
    global _chosen
    _chosen = threads
    if (torch := _torch()) is not None:
        torch.set_num_threads(threads)


def set_torch_threads() -> None:
    """Give torch, which was just imported, the number of threads that was chosen before."""
    if _chosen is not None and (torch := _torch()) is not None:
        torch.set_num_threads(_chosen)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_use_one_thread)


class Layers(ctypes.Structure):
    """Sizes of the layers before the routing; channels, except ``channels2``, are padded to whole vector registers."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            *("bands", "area", "filters"),
            *("channels1", "window1", "stride1", "positions1"),
            *("channels2", "padded2", "window2", "stride2", "positions2"),
            "capsule",
        )
    )


class LayerWeights(ctypes.Structure):
    """Addresses of the packed weights and biases of these layers."""

    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("spatial", "spatial_bias", "primary", "primary_bias", "conv", "conv_bias")
    )


class Routing(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("capsules", "size", "classes", "class_size", "iterations", "tile")
    )


def library_path(variant: str) -> Path:
    """Path of the compiled library of one of ``VARIANTS``; it may not exist."""
    return Path(__file__).with_name(f"_kernels_{variant}{_SUFFIX}")


class _PoolState(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("next", "failed", "state", "generation", "most", "awake", "kernel")),
        ("job", ctypes.c_void_p),
    )


class _ThreadPool:
    """The compiled kernels and our own spin-waiting thread pool for their jobs."""

    def __init__(self, library: ctypes.CDLL, variant: str) -> None:
        self.variant = variant
        library.hypercaps_run.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
        library.hypercaps_help.argtypes = ctypes.c_void_p, ctypes.c_int64
        library.hypercaps_help.restype = None
        pointer = ctypes.c_void_p
        tables = pointer, pointer, pointer, ctypes.c_float, ctypes.c_float
        library.hypercaps_normals.argtypes = pointer, pointer, *tables, pointer, ctypes.c_int64
        library.hypercaps_normals.restype = None
        self.library = library
        self.reset()
        if hasattr(os, "register_at_fork"):  # threads do not survive a fork
            os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        self.state = _PoolState()
        self.busy = threading.Lock()
        self.events: list[threading.Event] = []  # one per helper thread, to wake it

    def run(self, kernel: int, job: Any, helpers: int) -> int:
        if helpers == 0 or not self.busy.acquire(blocking=False):  # another thread of this program uses the helpers
            return int(self.library.hypercaps_run(ctypes.byref(_PoolState()), kernel, job, 0))
        try:
            self.wake(helpers)
            return int(self.library.hypercaps_run(ctypes.byref(self.state), kernel, job, helpers))
        finally:
            self.busy.release()

    def wake(self, helpers: int) -> None:
        """Start or wake helper threads. One that wakes too late for this job does no harm."""
        while len(self.events) < helpers:
            event = threading.Event()
            name = f"hypercaps-{len(self.events)}"
            threading.Thread(target=self.help, args=(self.state, event), name=name, daemon=True).start()
            self.events.append(event)
        if self.state.awake < helpers:
            for event in self.events[:helpers]:
                event.set()

    def help(self, state: _PoolState, event: threading.Event) -> None:
        """Loop of a helper thread: spin-wait for jobs, and sleep when none came for a while."""
        while True:
            event.wait()
            event.clear()
            self.library.hypercaps_help(ctypes.byref(state), _SPINS)


@cache
def _load(choice: str) -> _ThreadPool | None:
    if choice == "off" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        library, variant = ctypes.CDLL(str(library_path("baseline"))), "baseline"
        widest = min(library.hypercaps_widest(), VARIANTS.get(choice, 512))
        for name, bits in VARIANTS.items():
            if 0 < bits <= widest and library_path(name).exists():
                library, variant = ctypes.CDLL(str(library_path(name))), name
        return _ThreadPool(library, variant)
    except (OSError, AttributeError):  # no library, or one of an older version
        warnings.warn(
            "hypercaps was installed without its compiled kernels and is several times slower: install a C compiler "
            "and reinstall hypercaps (docs/speed.md)",
            SpeedWarning,
            stacklevel=3,
        )
        return None


def _pool() -> _ThreadPool | None:
    return _load(os.environ.get("HYPERCAPS_NATIVE", ""))


def available() -> bool:
    """Whether compiled kernels can be used."""
    return _pool() is not None


def variant() -> str | None:
    """Which of ``VARIANTS`` is in use; None: the compiled kernels are not used."""
    pool = _pool()
    return None if pool is None else pool.variant


def library() -> ctypes.CDLL | None:
    """The library of the variant in use."""
    pool = _pool()
    return None if pool is None else pool.library


def threads() -> int:
    """Number of threads that the kernels run on."""
    if _threads is not None:
        return _threads
    if (torch := _torch()) is not None:
        return int(torch.get_num_threads())
    return _processors() if _chosen is None else _chosen


def _processors() -> int:
    """Number of threads by default, as torch has it: of OpenMP's variable, or the processors of this process."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Leave the cores to the kernels, whose speed suffers from torch's own threads: those spin while they wait.

    The remaining work of torch is small, and on one thread its results do not depend on the number of threads.
    """
    global _threads, _users
    torch = _torch()
    if torch is None:
        yield
        return
    with _users_lock:  # several threads may be inside at once
        if _users == 0:
            _threads = torch.get_num_threads()
        _users += 1
    _keep_freed_blocks()
    _inside.depth += 1
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _users_lock:
            _users -= 1
            _inside.depth -= 1
            # torch counts threads for each thread that calls it: every one restores its own.
            if _inside.depth == 0 and _threads is not None:
                torch.set_num_threads(_threads)
            if _users == 0:
                _threads = None


def _keep_freed_blocks() -> None:
    """Let the C library keep freed blocks of up to 31 MB.

    glibc returns large freed blocks to the system at once, and a step that allocates the same few MB again spends up
    to half of its time on page faults. After one large block was freed, glibc keeps blocks up to that size.
    """
    np.empty(31 << 20, dtype=np.uint8)


def empty(shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> np.ndarray[Any, Any]:
    """An array that begins at a whole cache line, so that the kernels' vectors lie in one line each."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    space = np.empty(size + _CACHE_LINE, dtype=np.uint8)
    start = -space.ctypes.data % _CACHE_LINE
    return space[start : start + size].view(dtype).reshape(shape)


def run(name: str, *arguments: Any) -> None:
    """Run a kernel on all threads. The arguments are the fields of its job in ``kernels.c``, in their order."""
    pool = _pool()
    assert pool is not None
    job = (ctypes.c_int64 * len(arguments))(*map(_number, arguments))
    if pool.run(_KERNELS.index(name), job, threads() - 1):
        raise MemoryError("no memory is left for the compiled kernels")


def _number(argument: Any) -> int:
    """An integer itself, the address of an array, tensor or structure, 0 for None."""
    if type(argument) is int:
        return argument
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return argument.ctypes.data
    if isinstance(argument, ctypes.Structure):
        return ctypes.addressof(argument)
    if argument is None:
        return 0
    if isinstance(argument, np.integer | np.bool_ | bool):
        return int(argument)
    assert argument.is_contiguous() and argument.is_cpu  # a tensor
    return int(argument.data_ptr())
