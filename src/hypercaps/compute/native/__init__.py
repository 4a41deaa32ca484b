"""The compiled arithmetic (``kernels.c``): found if it is there, run on threads.

It is compiled when hypercaps is installed. Where that was not possible everything goes through torch, more slowly and
with the same results up to rounding; ``available`` says so once. ``HYPERCAPS_NATIVE=off`` does the same on purpose,
``HYPERCAPS_NATIVE=baseline`` takes the variant for any processor.
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
_PATIENCE = 200_000  # looks for a job before a helper goes to sleep: a few milliseconds, longer than a step's pauses

_threads: int | None = None  # None: as many as torch takes
_inside = 0  # how many are in ``torch_on_one_thread``
_setting = threading.Lock()


class Layers(ctypes.Structure):
    """Sizes of the layers before the routing; channels but ``channels2`` padded to whole vectors."""

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
    """Addresses of their packed weights and biases."""

    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("spatial", "spatial_bias", "primary", "primary_bias", "conv", "conv_bias")
    )


class Routing(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64) for name in ("capsules", "size", "classes", "class_size", "iterations", "tile")
    )


def library_path(variant: str) -> Path:
    """Where the compiled file of a variant, ``baseline`` or ``avx2``, lies if there is one."""
    return Path(__file__).with_name(f"_kernels_{variant}{_SUFFIX}")


class _Pool(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("next", "failed", "state", "generation", "most", "awake", "kernel")),
        ("job", ctypes.c_void_p),
    )


class _Team:
    """The compiled kernels and the threads that help with their jobs."""

    def __init__(self, library: ctypes.CDLL, variant: str) -> None:
        self.variant = variant
        library.hypercaps_run.argtypes = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
        library.hypercaps_help.argtypes = ctypes.c_void_p, ctypes.c_int64
        library.hypercaps_help.restype = None
        self.library = library
        self.start_anew()
        if hasattr(os, "register_at_fork"):  # threads do not survive a fork
            os.register_at_fork(after_in_child=self.start_anew)

    def start_anew(self) -> None:
        self.pool = _Pool()
        self.busy = threading.Lock()
        self.bells: list[threading.Event] = []  # to wake the helpers by

    def run(self, kernel: int, job: Any, helpers: int) -> int:
        if helpers == 0 or not self.busy.acquire(blocking=False):  # another thread of this program has the helpers
            return int(self.library.hypercaps_run(ctypes.byref(_Pool()), kernel, job, 0))
        try:
            self.wake(helpers)
            return int(self.library.hypercaps_run(ctypes.byref(self.pool), kernel, job, helpers))
        finally:
            self.busy.release()

    def wake(self, helpers: int) -> None:
        """See to it that enough helpers look for jobs. One that is asleep may come too late for this job; no matter."""
        while len(self.bells) < helpers:
            bell = threading.Event()
            name = f"hypercaps-{len(self.bells)}"
            threading.Thread(target=self.help, args=(self.pool, bell), name=name, daemon=True).start()
            self.bells.append(bell)
        if self.pool.awake < helpers:
            for bell in self.bells[:helpers]:
                bell.set()

    def help(self, pool: _Pool, bell: threading.Event) -> None:
        while True:
            bell.wait()
            bell.clear()
            self.library.hypercaps_help(ctypes.byref(pool), _PATIENCE)


@cache
def _find_team(wish: str) -> _Team | None:
    if wish == "off" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        library, variant = ctypes.CDLL(str(library_path("baseline"))), "baseline"
        if wish != "baseline" and library.hypercaps_has_avx2():
            library, variant = ctypes.CDLL(str(library_path("avx2"))), "avx2"
    except OSError:
        warnings.warn(
            "hypercaps was installed without its compiled kernels and is several times slower: install a C compiler "
            "and reinstall hypercaps",
            SpeedWarning,
            stacklevel=3,
        )
        return None
    return _Team(library, variant)


def _team() -> _Team | None:
    return _find_team(os.environ.get("HYPERCAPS_NATIVE", ""))


def available() -> bool:
    """Whether there are compiled kernels to use."""
    return _team() is not None


def variant() -> str | None:
    """Which of the compiled kernels are used; None: none of them."""
    team = _team()
    return None if team is None else team.variant


def threads() -> int:
    """How many threads the kernels run on."""
    return torch.get_num_threads() if _threads is None else _threads


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Leave the cores to the kernels: torch's own threads would wait for work on them, spinning.

    What torch still does is small, and on one thread it is the same for any number of threads.
    """
    global _threads, _inside
    with _setting:  # several threads of a program may be inside at once: the last to leave turns the light off
        if _inside == 0:
            _threads = torch.get_num_threads()
        _inside += 1
    # The C library of Linux hands freed memory back to the system at once, and a step that takes the same few MB again
    # waits for every page, up to half of its time. Having seen one large block freed, it keeps that much.
    torch.empty(31 << 20, dtype=torch.uint8)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _setting:
            _inside -= 1
            if _inside == 0 and _threads is not None:
                torch.set_num_threads(_threads)
                _threads = None


def run(name: str, *arguments: Any) -> None:
    """Do a job of a kernel on all threads. Arguments fill the fields of its job in ``kernels.c`` in their order."""
    team = _team()
    assert team is not None
    job = (ctypes.c_int64 * len(arguments))(*(_number(argument) for argument in arguments))
    if team.run(_KERNELS.index(name), job, threads() - 1):
        raise MemoryError("no memory is left for the compiled kernels")


def _number(argument: Any) -> int:
    """A whole number as it is, a tensor, structure or array as its address."""
    if isinstance(argument, Tensor):
        assert argument.is_contiguous() and argument.device.type == "cpu"
        return argument.data_ptr()
    if isinstance(argument, ctypes.Structure):
        return ctypes.addressof(argument)
    return 0 if argument is None else int(argument)
