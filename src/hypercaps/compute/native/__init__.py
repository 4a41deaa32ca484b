"""Loader and thread pool of the compiled kernels (``kernels.c``).

The kernels are compiled when hypercaps is installed. Where that was not possible, torch computes the same more slowly,
with results equal up to rounding, and ``available`` warns once. ``HYPERCAPS_NATIVE=off`` disables the kernels,
``HYPERCAPS_NATIVE=baseline`` uses the variant for any processor of the architecture.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hypercaps.errors import SpeedWarning

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
# As in kernels.c
TRAIN_CHUNK = 8
LANES = 8
BLOCK = 4
TILE = 24
_KERNELS = ("layers", "layers_back", "route", "squash_back", "lengths_back", "route_back", "lengths", "whiten")
_SPINS = 200_000  # checks for a job before a helper thread sleeps: a few milliseconds, longer than pauses in a step

_threads: int | None = None  # None: as many as torch uses
_users = 0  # number of threads inside ``torch_on_one_thread``
_users_lock = threading.Lock()


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
    """Path of the compiled library of a variant, ``baseline`` or ``avx2``; it may not exist."""
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
        if choice != "baseline" and library.hypercaps_has_avx2():
            library, variant = ctypes.CDLL(str(library_path("avx2"))), "avx2"
    except OSError:
        warnings.warn(
            "hypercaps was installed without its compiled kernels and is several times slower: install a C compiler "
            "and reinstall hypercaps",
            SpeedWarning,
            stacklevel=3,
        )
        return None
    return _ThreadPool(library, variant)


def _pool() -> _ThreadPool | None:
    return _load(os.environ.get("HYPERCAPS_NATIVE", ""))


def available() -> bool:
    """Whether compiled kernels can be used."""
    return _pool() is not None


def variant() -> str | None:
    """Variant of the compiled kernels in use, ``baseline`` or ``avx2``; None: they are not used."""
    pool = _pool()
    return None if pool is None else pool.variant


def threads() -> int:
    """Number of threads that the kernels run on."""
    return torch.get_num_threads() if _threads is None else _threads


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Leave the cores to the kernels, whose speed suffers from torch's own threads: those spin while they wait.

    The remaining work of torch is small, and on one thread its results do not depend on the number of threads.
    """
    global _threads, _users
    with _users_lock:  # several threads may be inside at once: the last user restores the setting
        if _users == 0:
            _threads = torch.get_num_threads()
        _users += 1
    # glibc returns large freed blocks to the system at once, and a step that allocates the same few MB again spends up
    # to half of its time on page faults. After one large block was freed, glibc keeps blocks up to that size.
    torch.empty(31 << 20, dtype=torch.uint8)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _users_lock:
            _users -= 1
            if _users == 0 and _threads is not None:
                torch.set_num_threads(_threads)
                _threads = None


def run(name: str, *arguments: Any) -> None:
    """Run a kernel on all threads. The arguments are the fields of its job in ``kernels.c``, in their order."""
    pool = _pool()
    assert pool is not None
    job = (ctypes.c_int64 * len(arguments))(*(_number(argument) for argument in arguments))
    if pool.run(_KERNELS.index(name), job, threads() - 1):
        raise MemoryError("no memory is left for the compiled kernels")


def _number(argument: Any) -> int:
    """An integer itself, the address of a tensor or structure, 0 for None."""
    if isinstance(argument, Tensor):
        assert argument.is_contiguous() and argument.device.type == "cpu"
        return argument.data_ptr()
    if isinstance(argument, ctypes.Structure):
        return ctypes.addressof(argument)
    return 0 if argument is None else int(argument)
